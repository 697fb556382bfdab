"""Before the first write: is this the cluster that the run is about, and does no other run hold it? (design §4)"""

import datetime
import tempfile
from pathlib import Path

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.kube import Kube
from steps.clients.kube_http import ApiError
from steps.clients.store import AlreadyWritten
from steps.contract import run as contract
from steps.errors import Refused
from steps.verbs.context import Context

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/bringup"
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


class Meta(Struct, frozen=True, rename="camel"):
    """Identity and version of an object."""

    uid: str = ""
    resource_version: str = ""


class Named(Struct, frozen=True):
    """Any object, for its identity."""

    metadata: Meta = Meta()


class LeaseSpec(Struct, frozen=True, rename="camel"):
    """Who holds the lease and until when."""

    holder_identity: str | None = None
    renew_time: str | None = None
    lease_duration_seconds: int | None = None


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


def claim(context: Context) -> None:
    """Check the target's identity and take or renew its lease. Raises Refused before anything is written."""
    uid = cluster_uid(context.kube)
    wanted = _known_uid(context, uid)
    if uid != wanted:
        raise Refused(
            f"the kubeconfig leads to cluster {uid}, this run is about {wanted}",
            hint="nothing was written to it; name the right kubeconfig, or correct target.uid in the spec",
        )
    _hold(context)


def recognize(context: Context, kubeconfig: str) -> None:
    """Check a kubeconfig that a play brought before it is kept: a new cluster is this run's only if the run knows no other."""
    with tempfile.NamedTemporaryFile("w", suffix=".kubeconfig") as file:
        file.write(kubeconfig)
        file.flush()
        uid = cluster_uid(Kube.from_file(Path(file.name)))
    wanted = _known_uid(context, uid)
    if uid != wanted:
        raise Refused(
            f"the hosts belong to cluster {uid}, this run is about {wanted}",
            hint="their preparation has run, the cluster itself was not touched; correct the hosts, or target.uid in the spec",
        )


def _known_uid(context: Context, uid: str) -> str:
    run = context.environment.run
    header = context.store.read(contract.header_key(run))
    if header and (named := contract.decode_header(header).target_uid):
        return named
    data = msgspec.json.encode({"uid": uid})
    try:
        context.store.write(contract.target_key(run), data)
    except AlreadyWritten:
        data = context.store.read(contract.target_key(run)) or b"{}"
    return str(msgspec.json.decode(data).get("uid", ""))


def _hold(context: Context) -> None:
    now, run = context.clock.now(), context.environment.run
    spec = {"holderIdentity": run, "renewTime": _text(now), "leaseDurationSeconds": timeouts.TARGET_LEASE}
    lease = context.kube.get(LEASE, Lease)
    try:
        if lease is None:
            meta = {"name": "bringup", "namespace": "kube-system"}
            context.kube.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})
        elif lease.spec.holder_identity in (run, "", None) or _expired(lease.spec, now):
            context.kube.merge(LEASE, {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec})
        else:
            raise Refused(
                f"run {lease.spec.holder_identity} holds this cluster since {lease.spec.renew_time}",
                hint="wait for it, cancel it, or delete the lease kube-system/bringup if that run is dead",
            )
    except ApiError as error:
        if error.status == 409:
            raise Refused(
                "another run took this cluster at the same moment", hint="see `bringup status` of the other run"
            ) from error
        raise


def release(context: Context) -> None:
    """Give the lease back if this run holds it."""
    lease = context.kube.get(LEASE, Lease)
    if lease is not None and lease.spec.holder_identity == context.environment.run:
        context.kube.merge(
            LEASE, {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": {"holderIdentity": ""}}
        )


def _expired(spec: LeaseSpec, now: float) -> bool:
    if not spec.renew_time:
        return True
    renewed = datetime.datetime.strptime(spec.renew_time, _TIME).replace(tzinfo=datetime.UTC).timestamp()
    return renewed + (spec.lease_duration_seconds or 0) < now


def _text(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime(_TIME)
