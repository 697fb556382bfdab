"""Identity and lease of the target. Before the first write it must be the run's cluster, and no other run may hold it."""

import datetime
import math
import tempfile
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from steps import timeouts
from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Kube
from steps.clients.kube.kubeconfig import readdress
from steps.clients.store import AlreadyWritten
from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.run_records import LeaseSpec
from steps.errors import BadTask, NotUnderstood, Refused, Temporary
from steps.runtime.context import Context

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bringup"
OPENING = "opening_kubeconfig"
"""Secret of the run with the kubeconfig that a server of an existing cluster had when the run opened.

Only the lease is held and released through it, until stage rke2 writes the run's own kubeconfig. A play that restarts servers may
therefore find some of them unhealthy.
"""
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class _IdentityMeta(Struct, frozen=True, rename="camel"):
    name: str = ""
    labels: dict[str, str] = {}
    uid: str = ""
    resource_version: str = ""


class IdentifiedObject(Struct, frozen=True):
    """An object of any kind, read for its UID, resource version and labels."""

    metadata: _IdentityMeta = _IdentityMeta()


class _TargetLease(Struct, frozen=True):
    """The lease that keeps a second run out of the target."""

    metadata: _IdentityMeta = _IdentityMeta()
    spec: LeaseSpec = LeaseSpec()


def cluster_uid(kube: Kube) -> str:
    """Return the UID of the namespace kube-system, which identifies a cluster. Raises Refused if there is none."""
    namespace = kube.get("/api/v1/namespaces/kube-system", IdentifiedObject)
    if namespace is None or not namespace.metadata.uid:
        raise Refused(
            "the target has no namespace kube-system, so it cannot be identified", hint="is this a Kubernetes API server?"
        )
    return namespace.metadata.uid


def claim(context: Context, kube: Kube | None = None, *, restored: bool = False) -> None:
    """Check the target's identity and take or renew its lease. Raises Refused before anything is written.

    `restored`: etcd may hold a state from before this run, so a lease that was not renewed since the run opened is ignored.
    """
    kube = kube or context.kube
    uid = cluster_uid(kube)
    expected = agree_on_uid(context, uid)
    if uid != expected:
        raise Refused(
            f"the kubeconfig leads to cluster {uid}, this run is about {expected}",
            hint="nothing was written to it; name the right kubeconfig, or correct target.uid in the spec",
        )
    _hold(context, kube, _opened(context) if restored else -math.inf)


def reserve(context: Context, kubeconfig: str) -> str:
    """Hold the target through the run's own kubeconfig, else through `kubeconfig` from one of its servers.

    The latter is kept for the run's plays and its end. Returns the error if the API does not answer usably, or an empty text if the
    target is held. Raises Refused if another run holds it.
    """
    is_given = context.kubeconfig().exists()
    try:
        claim(context, None if is_given else _client(kubeconfig, _who(context)))
    except (Temporary, ApiError, NotUnderstood, BadTask) as error:
        return str(error)
    if not is_given:
        context.keep_secret(OPENING, kubeconfig)
    return ""


def readdress_server(context: Context, kubeconfig: str, server: str, name: str) -> str:
    """Return a server's kubeconfig with the API address from the spec, if it names one. A simulated cluster keeps its own."""
    return readdress(kubeconfig, server, name) if server and not context.environment.simulator else kubeconfig


def renew(context: Context, *, restored: bool = False) -> None:
    """Renew the lease before a play of a run that has no kubeconfig yet, if it held the target when it opened and the API answers.

    An API that does not answer is no error: the run's own plays restart its servers. Raises Refused if another run holds the
    target.
    """
    kubeconfig = context.run_secrets / OPENING
    if kubeconfig.exists():
        # the run's own plays restart the servers, so the API may be down
        with suppress(Temporary, ApiError, NotUnderstood):
            claim(context, Kube.from_file(kubeconfig, _who(context)), restored=restored)


def _who(context: Context) -> str:
    """Return stage and task for the user agent in the API server's audit log."""
    return f"{context.task.stage}.{context.task.name}"


def _client(kubeconfig: str, who: str) -> Kube:
    with tempfile.NamedTemporaryFile("w", suffix=".kubeconfig") as file:
        file.write(kubeconfig)
        file.flush()
        return Kube.from_file(Path(file.name), who)


def recognize(context: Context, kubeconfig: str) -> None:
    """Check that a kubeconfig from a play leads to the run's cluster, before it is kept. Raises Refused if not."""
    uid = cluster_uid(_client(kubeconfig, _who(context)))
    expected = agree_on_uid(context, uid)
    if uid != expected:
        raise Refused(
            f"the hosts belong to cluster {uid}, this run is about {expected}",
            hint="their preparation and the play on the servers have run; correct the hosts, or target.uid in the spec",
        )


def agree_on_uid(context: Context, uid: str) -> str:
    """Return the UID of the run's cluster. If the run knows none yet, store `uid` as the one that it found."""
    run = context.environment.run
    known = run_records.target_uid(run, context.store.read)
    if known:
        return known
    try:
        context.store.write(run_records.target_key(run), canonical(run_records.TargetIdentity(uid=uid)))
    except AlreadyWritten:  # another task of this run was faster
        return run_records.target_uid(run, context.store.read)
    return uid


def _opened(context: Context) -> float:
    """Return when this run was first opened; minus infinity if it was not."""
    records = context.store.records(context.environment.run, run_records.STAGE, run_records.OPEN)
    return min((record.started for record in records), default=-math.inf)


def _hold(context: Context, kube: Kube, since: float) -> None:
    """Take or renew the lease. Raises Refused if another run holds it, Temporary if others keep changing it.

    Tasks of one run claim at the same time, so a write that comes too late only means to read the lease again.
    """
    for _ in range(timeouts.LEASE_TRIES):
        if _held(context, kube, since):
            return
    raise Temporary("the lease of the target changes all the time", hint="see who holds lease kube-system/bringup of the target")


def keep_out(context: Context, spec: LeaseSpec, since: float = -math.inf) -> None:
    """Raise Refused if `spec` says that another run holds the target, unless that lease was last renewed before `since`."""
    # `release` leaves a lease without a holder, which keeps nobody out
    holder, renewed = spec.holder_identity or context.environment.run, _seconds(spec.renew_time)
    # after a restore of etcd the lease may be one from before this run
    is_history = renewed is not None and renewed < since
    if holder != context.environment.run and _ends(spec) >= context.clock.now() and not is_history:
        raise Refused(
            f"run {holder} holds this cluster, renewed {spec.renew_time} for {spec.lease_duration_seconds} s",
            hint="wait for it, cancel it, or delete the lease kube-system/bringup if that run is dead",
        )


def _held(context: Context, kube: Kube, since: float) -> bool:
    """Take or renew the lease once; return False if it changed between read and write. Raises Refused for another holder."""
    now, run = context.clock.now(), context.environment.run
    header = context.store.read(run_records.header_key(run))
    seconds = run_records.decode_header(header).lease_seconds if header else run_records.LEASE_SECONDS
    renewed = datetime.datetime.fromtimestamp(now, datetime.UTC).strftime(_TIME)
    spec = {"holderIdentity": run, "renewTime": renewed, "leaseDurationSeconds": seconds}
    lease = kube.get(LEASE, _TargetLease)
    try:
        if lease is None:
            meta = {"name": "bringup", "namespace": "kube-system"}
            kube.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})
            return True
        keep_out(context, lease.spec, since)
        # fifty shards claim at once, and only a lease that is due is written
        if lease.spec.holder_identity != run or _is_due(lease.spec, now, seconds):
            # with the resource version, so that a write of somebody else in between is refused with 409
            kube.merge(LEASE, {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec})
    except ApiError as error:
        # 409: changed since it was read; 404: deleted since it was read
        if error.status == 409 or (error.status == 404 and lease is not None):
            return False
        raise
    return True


def release(context: Context) -> None:
    """Release the lease if this run holds it; do nothing for a run that never had a kubeconfig."""
    opening = context.run_secrets / OPENING
    if context.kubeconfig().exists():
        kube = context.kube
    elif opening.exists():
        kube = Kube.from_file(opening, _who(context))
    else:
        return
    lease = kube.get(LEASE, _TargetLease)
    # another run may have taken an expired lease
    if lease is not None and lease.spec.holder_identity == context.environment.run:
        kube.merge(LEASE, {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": {"holderIdentity": ""}})


def _ends(spec: LeaseSpec) -> float:
    """Return when the lease expires; infinity if the lease does not say, because an unreadable lease must keep others out."""
    renewed = _seconds(spec.renew_time)
    return math.inf if renewed is None or spec.lease_duration_seconds is None else renewed + spec.lease_duration_seconds


def _is_due(spec: LeaseSpec, now: float, seconds: int) -> bool:
    """Return True if this run's own lease is old enough to be renewed."""
    renewed = _seconds(spec.renew_time)
    # a new plan of a resumed run may need a longer lease
    return renewed is None or spec.lease_duration_seconds != seconds or now - renewed >= timeouts.LEASE_RENEW


def _seconds(text: str | None) -> float | None:
    """Return an API time, with or without fractions, as seconds since the epoch; None if it is no time."""
    try:
        time = datetime.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
