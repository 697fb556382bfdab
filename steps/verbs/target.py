"""Before the first write: is this the cluster that the run is about, and does no other run hold it? (design §4)"""

import datetime
import math
import tempfile
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from steps import timeouts
from steps.clients.kube import readdressed
from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Kube
from steps.clients.store import AlreadyWritten
from steps.contract import run as contract
from steps.contract.canonical import canonical
from steps.contract.identity import LeaseSpec
from steps.errors import BadTask, NotUnderstood, Refused, Temporary
from steps.verbs.context import Context

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bringup"
OPENING = "opening_kubeconfig"
"""Secret of the run: the kubeconfig that a server of a standing cluster had when the run opened. Only the lease is held and given
back through it, until stage rke2 brings the run's own: a play that restarts servers need not find them all well."""
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class Meta(Struct, frozen=True, rename="camel"):
    """Identity and version of an object."""

    uid: str = ""
    resource_version: str = ""


class Named(Struct, frozen=True):
    """Any object, for its identity."""

    metadata: Meta = Meta()


class Lease(Struct, frozen=True):
    """The lease that keeps a second run out of the target."""

    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


def cluster_uid(kube: Kube) -> str:
    """UID of the namespace kube-system: the identity of a cluster."""
    found = kube.get("/api/v1/namespaces/kube-system", Named)
    if found is None or not found.metadata.uid:
        raise Refused(
            "the target has no namespace kube-system, so it cannot be identified", hint="is this a Kubernetes API server?"
        )
    return found.metadata.uid


def claim(context: Context, kube: Kube | None = None, *, restored: bool = False) -> None:
    """Check the target's identity and take or renew its lease. `restored`: what etcd holds may be from before this run, so a lease
    that nobody renewed since the run opened is history. Raises Refused before anything is written."""
    kube = kube or context.kube
    uid = cluster_uid(kube)
    wanted = agreed(context, uid)
    if uid != wanted:
        raise Refused(
            f"the kubeconfig leads to cluster {uid}, this run is about {wanted}",
            hint="nothing was written to it; name the right kubeconfig, or correct target.uid in the spec",
        )
    _hold(context, kube, _opened(context) if restored else -math.inf)


def reserve(context: Context, kubeconfig: str) -> str:
    """Hold the target through the kubeconfig that was given, else through this one of its servers, which is kept for the run's
    plays and its end. Ends with what was in the way, where the API does not answer. Raises Refused where another run holds it."""
    is_given = context.kubeconfig().exists()
    try:
        claim(context, None if is_given else _client(kubeconfig, _who(context)))
    except (Temporary, ApiError, NotUnderstood, BadTask) as error:
        return str(error)
    if not is_given:
        context.keep_secret(OPENING, kubeconfig)
    return ""


def by_way_of(context: Context, kubeconfig: str, server: str, name: str) -> str:
    """A kubeconfig that a server had, by the way that the spec gives, if any. A simulated cluster has no way but its own."""
    return readdressed.by_way_of(kubeconfig, server, name) if server and not context.environment.simulator else kubeconfig


def renew(context: Context, *, restored: bool = False) -> None:
    """Before a play of a run that has no kubeconfig yet: go on holding a target that it held when it opened, if the API answers:
    the run's own plays restart its servers. Raises Refused where another run holds it by now."""
    kubeconfig = context.run_secrets / OPENING
    if kubeconfig.exists():
        with suppress(Temporary, ApiError, NotUnderstood):
            claim(context, Kube.from_file(kubeconfig, _who(context)), restored=restored)


def _who(context: Context) -> str:
    """Who asks, for the API server's audit log."""
    return f"{context.task.stage}.{context.task.name}"


def _client(kubeconfig: str, who: str) -> Kube:
    with tempfile.NamedTemporaryFile("w", suffix=".kubeconfig") as file:
        file.write(kubeconfig)
        file.flush()
        return Kube.from_file(Path(file.name), who)


def recognize(context: Context, kubeconfig: str) -> None:
    """Check a kubeconfig that a play brought before it is kept: a new cluster is this run's only if the run knows no other."""
    uid = cluster_uid(_client(kubeconfig, _who(context)))
    wanted = agreed(context, uid)
    if uid != wanted:
        raise Refused(
            f"the hosts belong to cluster {uid}, this run is about {wanted}",
            hint="their preparation and the play on the servers have run; correct the hosts, or target.uid in the spec",
        )


def agreed(context: Context, uid: str) -> str:
    """UID of the cluster that this run is about: a run that knows none is from now on about the one that was found."""
    run = context.environment.run
    known = contract.target_uid(run, context.store.read)
    if known:
        return known
    try:
        context.store.write(contract.target_key(run), canonical(contract.Target(uid=uid)))
    except AlreadyWritten:  # another task of this run was quicker
        return contract.target_uid(run, context.store.read)
    return uid


def _opened(context: Context) -> float:
    """When this run was opened first; endlessly long ago where it was not."""
    records = context.store.records(context.environment.run, contract.STAGE, contract.OPEN)
    return min((record.started for record in records), default=-math.inf)


def _hold(context: Context, kube: Kube, since: float) -> None:
    """Hold the lease. Tasks of one run claim side by side, so a write that comes too late is a reason to look again, no more."""
    for _ in range(timeouts.LEASE_TRIES):
        if _held(context, kube, since):
            return
    raise Temporary("the lease of the target changes all the time", hint="see who holds lease kube-system/bringup of the target")


def keep_out(context: Context, spec: LeaseSpec, since: float = -math.inf) -> None:
    """Raise Refused where another run holds the target by this lease, renewed after `since`."""
    holder, renewed = spec.holder_identity or context.environment.run, _seconds(spec.renew_time)
    is_history = renewed is not None and renewed < since
    if holder != context.environment.run and _ends(spec) >= context.clock.now() and not is_history:
        raise Refused(
            f"run {holder} holds this cluster, renewed {spec.renew_time} for {spec.lease_duration_seconds} s",
            hint="wait for it, cancel it, or delete the lease kube-system/bringup if that run is dead",
        )


def _held(context: Context, kube: Kube, since: float) -> bool:
    """Whether this run holds the lease now; False when somebody changed it between look and write."""
    now, run = context.clock.now(), context.environment.run
    header = context.store.read(contract.header_key(run))
    seconds = contract.decode_header(header).lease_seconds if header else contract.LEASE_SECONDS
    spec = {"holderIdentity": run, "renewTime": _text(now), "leaseDurationSeconds": seconds}
    lease = kube.get(LEASE, Lease)
    try:
        if lease is None:
            meta = {"name": "bringup", "namespace": "kube-system"}
            kube.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})
            return True
        keep_out(context, lease.spec, since)
        if lease.spec.holder_identity != run or _is_due(lease.spec, now, seconds):
            kube.merge(LEASE, {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec})
    except ApiError as error:
        if error.status == 409 or (error.status == 404 and lease is not None):
            return False
        raise
    return True


def release(context: Context) -> None:
    """Give the lease back if this run holds it; a run that never had a kubeconfig holds none."""
    opening = context.run_secrets / OPENING
    if context.kubeconfig().exists():
        kube = context.kube
    elif opening.exists():
        kube = Kube.from_file(opening, _who(context))
    else:
        return
    lease = kube.get(LEASE, Lease)
    if lease is not None and lease.spec.holder_identity == context.environment.run:
        kube.merge(LEASE, {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": {"holderIdentity": ""}})


def _ends(spec: LeaseSpec) -> float:
    """When the lease runs out; never, where it does not say when: a lease that cannot be read keeps others out."""
    renewed = _seconds(spec.renew_time)
    return math.inf if renewed is None or spec.lease_duration_seconds is None else renewed + spec.lease_duration_seconds


def _is_due(spec: LeaseSpec, now: float, seconds: int) -> bool:
    """Whether this run's own lease must be renewed."""
    renewed = _seconds(spec.renew_time)
    return renewed is None or spec.lease_duration_seconds != seconds or now - renewed >= timeouts.LEASE_RENEW


def _seconds(text: str | None) -> float | None:
    """Seconds since the epoch of a time as the API gives it, with or without fractions."""
    try:
        time = datetime.datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()


def _text(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime(_TIME)
