"""Reads RKE2: hosts after a play, static pods and workloads of the control plane, registered nodes, and the pods of check `dns`."""

import datetime
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.host_play import HostOutcome
from steps.contract.objects.checks import CHECK_LABEL, CHECK_NAMESPACE
from steps.contract.runs.quarantine import ANNOTATION, CordonNote
from steps.stages.rke2 import probe_metrics
from steps.stages.rke2.contract import (
    ControlObservation,
    FunctionalObservation,
    HostNetworkObservation,
    NodesObservation,
    PlayObservation,
    RegisteredNode,
    Rke2Host,
    Rke2HostFacts,
    Rke2InstallJob,
    Server,
    StaticPod,
)
from steps.stages.shared import probe_checks, probe_plays, probe_workloads
from steps.stages.shared.kube_objects import Conditioned, Node, ObjectMeta, Pod, seconds
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_containers import ContainerStatus

SYSTEM = "kube-system"
NAMESPACES = (SYSTEM, "calico-system")
"""Namespaces of RKE2's own DNS and network plugins; Calico's operator has a namespace of its own."""
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_INSTALL = "helm-install-rke2-"


class _LeaseSpec(Struct, frozen=True, rename="camel"):
    """Time at which a kubelet renewed its lease."""

    renew_time: datetime.datetime | None = None


class _Lease(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _LeaseSpec = _LeaseSpec()


def from_play(outcomes: Iterable[HostOutcome]) -> PlayObservation:
    """Return one observation for each host of a play of rke2; for unreadable facts, the reason becomes the host's `message`."""
    return PlayObservation(nodes=tuple(_host(outcome) for outcome in outcomes))


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return /readyz, etcd and API server pods of expected servers that are registered, RKE2's workloads and install Jobs."""
    nodes = kube.list("/api/v1/nodes", Node, labels="node-role.kubernetes.io/control-plane") or ()
    jobs = kube.list(f"/apis/batch/v1/namespaces/{SYSTEM}/jobs", Conditioned) or ()
    static = {pod.metadata.name: _shown(pod) for pod in probe_workloads.pods(kube, SYSTEM, "tier=control-plane")}
    return ControlObservation(
        now=scope.now,
        readyz=read_readyz(kube.text("/readyz?verbose")),
        servers=tuple(_server(node, static) for node in nodes if node.metadata.name in scope.nodes),
        stray_etcd=tuple(sorted(name for name in static if _member(name) and _member(name) not in scope.nodes)),
        workloads=tuple(
            workload
            for namespace in NAMESPACES
            for workload in probe_workloads.read(kube, namespace, lambda _: True, ("Deployment", "DaemonSet"))
        ),
        jobs=tuple(
            Rke2InstallJob(name=job.metadata.name, complete=job.status.status("Complete") == "True", failed=job.status.failure)
            for job in jobs
            if job.metadata.name.startswith(_INSTALL)
        ),
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """Return every node that is registered in the cluster, expected or not.

    The task's arguments name the labels to read (`labels`) and select the network plugin's pods: `network_pods` (a label selector)
    in `network_namespace`.
    """
    renewed = {
        lease.metadata.name: seconds(lease.spec.renew_time)
        for lease in kube.list("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", _Lease) or ()
    }
    networks = _network_pods(kube, scope)
    keys = frozenset(map(str, scope.arguments.get("labels", ())))
    return NodesObservation(
        now=scope.now,
        nodes=tuple(
            _node(node, renewed.get(node.metadata.name, 0.0), keys, networks.get(node.metadata.name))
            for node in probe_workloads.nodes(kube)
        ),
    )


def functional(kube: KubeReader, scope: Scope) -> FunctionalObservation:
    """Return the pods of check `dns` with their reports.

    If the task's arguments select the ingress controller's pods (`ingress_pods`, a label selector in kube-system), return their
    nodes too.
    """
    label = str(scope.arguments.get("ingress_pods", ""))
    places = {pod.spec.node_name for pod in probe_workloads.pods(kube, SYSTEM, label) if pod.spec.node_name} if label else None
    return FunctionalObservation(
        pods=probe_checks.read(kube, "dns", str(scope.arguments.get("namespace", CHECK_NAMESPACE))),
        ingress=None if places is None else tuple(sorted(places)),
    )


def host_network(kube: KubeReader, scope: Scope) -> HostNetworkObservation:
    """Return the pods of check `host` with their reports, and the nodes of the ready pods behind the Service that they ask."""
    namespace = str(scope.arguments.get("namespace", CHECK_NAMESPACE))
    answering = probe_workloads.pods(kube, namespace, f"{CHECK_LABEL}=answer")
    return HostNetworkObservation(
        pods=probe_checks.read(kube, "host", namespace),
        answers=tuple(sorted(pod.spec.node_name for pod in answering if pod.ready)),
    )


def read_readyz(text: str | None) -> tuple[str, ...] | None:
    """Return the names of the failed checks in the text of /readyz; None if the text is not such an answer."""
    if text is None:
        return None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    bad = tuple(line[3:].split(" ", 1)[0] for line in lines if line.startswith("[-]"))
    # an HTML page of a proxy is no answer of an API server
    good = bool(lines) and (lines[-1] == "ok" or lines[-1].endswith("check passed"))
    return bad if bad or good else None


def _host(outcome: HostOutcome) -> Rke2Host:
    seen = probe_plays.host_with_facts(outcome, Rke2Host, Rke2HostFacts)
    metrics, _ = probe_plays.decode_facts(outcome.facts.get("etcd_seen") or {}, probe_metrics.ServerTexts)
    if seen.facts is None or metrics is None:
        return seen
    return msgspec.structs.replace(seen, facts=msgspec.structs.replace(seen.facts, member=probe_metrics.etcd(metrics)))


def _shown(pod: Pod) -> StaticPod:
    """Return a static pod's readiness, its youngest container's start, and the sum of restarts."""
    containers = pod.status.container_statuses
    return StaticPod(
        ready=pod.ready,
        restarts=sum(entry.restart_count for entry in containers),
        started=max(map(_running_since, containers), default=0.0),
    )


def _running_since(entry: ContainerStatus) -> float:
    """Return when a container last started, in seconds since the epoch; 0 if it does not run or the time is unknown."""
    text = (entry.state.running or {}).get("startedAt")
    return seconds(msgspec.json.decode(text, type=datetime.datetime | None)) if text else 0.0


def _network_pods(kube: KubeReader, scope: Scope) -> Mapping[str, StaticPod]:
    """Return node → the network plugin's pod there. A ready pod wins over an old one that is being deleted."""
    label = str(scope.arguments.get("network_pods", ""))
    if not label:
        return {}
    pods = probe_workloads.pods(kube, str(scope.arguments.get("network_namespace", SYSTEM)), label)
    return {pod.spec.node_name: _shown(pod) for pod in sorted(pods, key=lambda pod: pod.ready) if pod.spec.node_name}


def _member(pod: str) -> str:
    """Return the name of the node that an etcd pod is named after; empty for other static pods."""
    return pod.removeprefix("etcd-") if pod.startswith("etcd-") else ""


def _server(node: Node, static: Mapping[str, StaticPod]) -> Server:
    name = node.metadata.name
    voter = node.status.status("EtcdIsVoter")
    return Server(
        name=name,
        ready=node.status.status("Ready") == "True",
        voter=voter == "True" if voter else None,
        etcd=static.get(f"etcd-{name}"),
        apiserver=static.get(f"kube-apiserver-{name}"),
    )


def _node(node: Node, renewed: float, keys: frozenset[str], network: StaticPod | None) -> RegisteredNode:
    conditions = node.status.conditions
    ready = node.status.of_type("Ready")
    return RegisteredNode(
        name=node.metadata.name,
        ready=ready.status or "Unknown",
        reason=ready.reason,
        message=ready.message[:300],
        version=node.status.node_info.kubelet_version,
        address=next((entry.address for entry in node.status.addresses if entry.type == "InternalIP"), ""),
        # the kubelet renews its lease every 10 s, but its heartbeat in the status only every 5 minutes
        seen=max(renewed, ready.seen),
        since=ready.since,
        cordoned=node.spec.unschedulable,
        quarantine=_note(node.metadata.annotations.get(ANNOTATION, "")),
        taints=tuple(f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}" for taint in node.spec.taints),
        pressure=tuple(entry.type for entry in conditions if entry.type in PRESSURES and entry.status == "True"),
        labels={key: value for key, value in node.metadata.labels.items() if key in keys},
        network=network,
    )


def _note(text: str) -> CordonNote | None:
    """Return the note that a run left in a cordoned node's annotation; None if somebody wrote another text there."""
    try:
        return msgspec.json.decode(text, type=CordonNote)
    except UNREADABLE_JSON:
        return None
