"""Reads RKE2: hosts after a play, the control plane's static pods and workloads, registered nodes, and the pods of check `dns`."""

import datetime
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from steps.contract.checks import CHECK_NAMESPACE
from steps.contract.play import HostOutcome
from steps.contract.stages.rke2 import (
    ControlObservation,
    FunctionalObservation,
    HostFacts,
    HostObservation,
    InstallJob,
    Node,
    NodesObservation,
    PlayObservation,
    Server,
)
from steps.probes import checks, played, workloads
from steps.probes.conditions import Condition, seconds
from steps.probes.reader import KubeReader, Scope
from steps.probes.workloads import Conditioned, Conditions, Meta

SYSTEM = "kube-system"
NAMESPACES = (SYSTEM, "calico-system")
"""Where RKE2's own DNS and network plugins run; Calico's operator has a namespace of its own."""
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_INSTALL = "helm-install-rke2-"


class Address(Struct, frozen=True):
    """An address of a node."""

    type: str = ""
    address: str = ""


class NodeInfo(Struct, frozen=True, rename="camel"):
    """Versions on a node."""

    kubelet_version: str = ""


class Taint(Struct, frozen=True):
    """A taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class RawNodeSpec(Struct, frozen=True):
    """Whether work may come to a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class RawNodeStatus(Conditions, frozen=True, rename="camel"):
    """What the kubelet reports."""

    addresses: tuple[Address, ...] = ()
    node_info: NodeInfo = NodeInfo()


class RawNode(Struct, frozen=True):
    """A node as the API returns it."""

    metadata: Meta = Meta()
    spec: RawNodeSpec = RawNodeSpec()
    status: RawNodeStatus = RawNodeStatus()


class LeaseSpec(Struct, frozen=True, rename="camel"):
    """When a kubelet renewed its lease."""

    renew_time: datetime.datetime | None = None


class Lease(Struct, frozen=True):
    """A kubelet's lease."""

    metadata: Meta = Meta()
    spec: LeaseSpec = LeaseSpec()


def from_play(outcomes: Iterable[HostOutcome]) -> PlayObservation:
    """One observation for each host; facts that nobody can read are told as its message."""
    return PlayObservation(nodes=tuple(_host(outcome) for outcome in outcomes))


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """The control plane. A server that is expected and not registered is left out."""
    nodes = kube.list("/api/v1/nodes", RawNode, labels="node-role.kubernetes.io/control-plane") or ()
    static = kube.list(f"/api/v1/namespaces/{SYSTEM}/pods", Conditioned, labels="tier=control-plane") or ()
    ready = {pod.metadata.name: pod.status.status("Ready") == "True" for pod in static}
    return ControlObservation(
        readyz=read_readyz(kube.text("/readyz?verbose")),
        servers=tuple(_server(node, ready) for node in nodes if node.metadata.name in scope.nodes),
        stray_etcd=tuple(sorted(name for name in ready if _member(name) and _member(name) not in scope.nodes)),
        workloads=tuple(
            found
            for namespace in NAMESPACES
            for found in workloads.read(kube, namespace, lambda _: True, ("Deployment", "DaemonSet"))
        ),
        jobs=_install_jobs(kube),
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """Every registered node, expected or not."""
    renewed = {
        lease.metadata.name: seconds(lease.spec.renew_time)
        for lease in kube.list("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", Lease) or ()
    }
    found = kube.list("/api/v1/nodes", RawNode) or ()
    return NodesObservation(now=scope.now, nodes=tuple(_node(node, renewed.get(node.metadata.name, 0.0)) for node in found))


def functional(kube: KubeReader, scope: Scope) -> FunctionalObservation:
    """The pods of check `dns`."""
    return FunctionalObservation(pods=checks.read(kube, "dns", str(scope.arguments.get("namespace", CHECK_NAMESPACE))))


def read_readyz(text: str | None) -> tuple[str, ...] | None:
    """The names of the checks that are not ok in the text of /readyz; None where it is no such text."""
    if text is None:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    bad = tuple(line[3:].split(" ", 1)[0] for line in lines if line.startswith("[-]"))
    good = bool(lines) and (lines[-1] == "ok" or lines[-1].endswith("check passed"))
    return bad if bad or good else None


def _host(outcome: HostOutcome) -> HostObservation:
    seen = played.bare(outcome, HostObservation)
    facts, why = played.shown(outcome.facts, HostFacts)
    return msgspec.structs.replace(seen, facts=facts, message=seen.message or why)


def _member(pod: str) -> str:
    """The node of an etcd pod; empty for the other static pods."""
    return pod.removeprefix("etcd-") if pod.startswith("etcd-") else ""


def _server(node: RawNode, ready: dict[str, bool]) -> Server:
    name = node.metadata.name
    voter = node.status.status("EtcdIsVoter")
    return Server(
        name=name,
        ready=node.status.status("Ready") == "True",
        voter=voter == "True" if voter else None,
        etcd=ready.get(f"etcd-{name}"),
        apiserver=ready.get(f"kube-apiserver-{name}"),
    )


def _install_jobs(kube: KubeReader) -> tuple[InstallJob, ...]:
    found = kube.list(f"/apis/batch/v1/namespaces/{SYSTEM}/jobs", Conditioned) or ()
    return tuple(
        InstallJob(name=job.metadata.name, complete=job.status.status("Complete") == "True", failed=_failed(job))
        for job in found
        if job.metadata.name.startswith(_INSTALL)
    )


def _failed(job: Conditioned) -> str:
    failed = next((entry for entry in job.status.conditions if entry.type == "Failed" and entry.status == "True"), None)
    return f"{failed.reason}: {failed.message}" if failed else ""


def _node(node: RawNode, renewed: float) -> Node:
    conditions = node.status.conditions
    ready = next((entry for entry in conditions if entry.type == "Ready"), Condition())
    return Node(
        name=node.metadata.name,
        ready=ready.status or "Unknown",
        reason=ready.reason,
        message=ready.message[:300],
        version=node.status.node_info.kubelet_version,
        address=next((entry.address for entry in node.status.addresses if entry.type == "InternalIP"), ""),
        seen=max(renewed, ready.seen),
        since=ready.since,
        cordoned=node.spec.unschedulable,
        taints=tuple(_taint(taint) for taint in node.spec.taints),
        pressure=tuple(entry.type for entry in conditions if entry.type in PRESSURES and entry.status == "True"),
    )


def _taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
