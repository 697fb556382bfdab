"""Reads the GPU Operator's root resources, its DaemonSets, the nodes' labels and resources, and the CUDA check's pods."""

from collections.abc import Mapping

from msgspec import Struct

from steps.contract.charts import Workload
from steps.contract.stages.gpu_operator import (
    GPU_LABELS,
    Condition,
    ControlObservation,
    FunctionalObservation,
    Mode,
    Node,
    NodesObservation,
    Root,
    Validator,
)
from steps.probes import charts, checks, managed, sharing_devices, workloads
from steps.probes.conditions import Condition as RawCondition
from steps.probes.nfd import nfd_workers
from steps.probes.reader import KubeReader, Scope

NAMESPACE = "gpu-operator"
CHECK = "cuda-smoke"
DEPLOY = "nvidia.com/gpu.deploy."
KEPT_LABELS = frozenset(
    {
        *GPU_LABELS,
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.memory",
        "nvidia.com/cuda.driver-version.full",
        "nvidia.com/gpu-driver-upgrade-state",
    }
)
Devices = tuple[sharing_devices.Device, ...]
VALIDATORS = ("nvidia-operator-validator", "nvidia-dra-validator")


class DriverSpec(Struct, frozen=True):
    """The driver version that a root resource asks for."""

    version: str = ""


class RootSpec(Struct, frozen=True):
    """The part of a root resource's spec that is compared."""

    driver: DriverSpec | None = None


class RootStatus(Struct, frozen=True):
    """Status of ClusterPolicy and GPUCluster."""

    state: str = ""
    conditions: tuple[RawCondition, ...] | None = None


class RawRoot(Struct, frozen=True):
    """A ClusterPolicy or a GPUCluster."""

    metadata: managed.Meta = managed.Meta()
    spec: RootSpec = RootSpec()
    status: RootStatus = RootStatus()


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Charts, root resources, operands with the troubles of their pods, NFD workers, and nodes with a GPU by NFD."""
    operands = workloads.read(kube, NAMESPACE, lambda _: True, ("DaemonSet",))
    settled = all(entry.settled() or entry.desired == 0 for entry in operands)
    return ControlObservation(
        now=scope.now,
        releases=charts.observe(kube, charts.scoped(scope)),
        root_app=charts.root(kube, scope),
        cluster_policies=_roots(kube, "/apis/nvidia.com/v1/clusterpolicies"),
        gpu_clusters=_roots(kube, "/apis/nvidia.com/v1alpha1/gpuclusters"),
        operands=operands,
        trouble=() if settled else workloads.troubles(workloads.pods(kube, NAMESPACE)),
        nfd=nfd_workers(kube),
        gpu_nodes=_gpu_nodes(kube),
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """The expected nodes; validator pods are read only while their DaemonSet is incomplete."""
    found, wanted = workloads.nodes(kube), frozenset(scope.nodes)
    daemon = next(filter(None, (_daemon_set(kube, name) for name in VALIDATORS)), None)
    chosen = sum(raw.metadata.labels.get(f"{DEPLOY}operator-validator") == "true" for raw in found)
    complete = daemon is not None and daemon.ready >= daemon.desired >= max(chosen, len(wanted))
    validators = {} if daemon is None or complete else _validators(kube, daemon.name)
    devices = sharing_devices.by_node(kube) if scope.arguments.get("mode") == Mode.GPU_CLUSTER else None
    kept = (_node(raw, validators, devices) for raw in found if raw.metadata.name in wanted)
    return NodesObservation(nodes=tuple(sorted(kept, key=lambda node: node.name)), validators=daemon)


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """The check's pods."""
    return FunctionalObservation(pods=checks.read(kube, CHECK))


def _roots(kube: KubeReader, path: str) -> tuple[Root, ...]:
    return tuple(_root(raw) for raw in kube.list(path, RawRoot) or ())


def _root(raw: RawRoot) -> Root:
    return Root(
        name=raw.metadata.name,
        state=raw.status.state,
        changed=managed.spec_changed(raw.metadata),
        driver=raw.spec.driver.version if raw.spec.driver else "",
        conditions=tuple(
            Condition(
                type=entry.type,
                status=entry.status,
                reason=entry.reason,
                message=entry.message[:500],
                since=entry.since,
            )
            for entry in raw.status.conditions or ()
        ),
    )


def _gpu_nodes(kube: KubeReader) -> tuple[str, ...]:
    """Nodes that carry one of NFD's labels of an NVIDIA GPU, in one LIST: a selector cannot ask for one of several labels."""
    found = kube.list("/api/v1/nodes", charts.AnyObject) or ()
    return tuple(
        sorted(raw.metadata.name for raw in found if any(raw.metadata.labels.get(label) == "true" for label in GPU_LABELS))
    )


def _daemon_set(kube: KubeReader, name: str) -> Workload | None:
    found = workloads.read(kube, NAMESPACE, lambda raw: raw.metadata.name == name, ("DaemonSet",))
    return found[0] if found else None


def _validators(kube: KubeReader, name: str) -> dict[str, Validator]:
    return {pod.spec.node_name: _validator(pod) for pod in workloads.pods(kube, NAMESPACE, f"app={name}") if pod.spec.node_name}


def _validator(pod: workloads.Pod) -> Validator:
    stuck = pod.stuck_init
    state = (stuck.state.waiting or stuck.state.terminated) if stuck else None
    return Validator(
        pod=pod.metadata.name,
        ready=pod.ready,
        stuck=stuck.name if stuck and not pod.ready else "",
        reason=state.reason if state else "",
        message=state.message[:300] if state else "",
    )


def _node(raw: workloads.Node, validators: Mapping[str, Validator], devices: Mapping[str, Devices] | None) -> Node:
    name, labels = raw.metadata.name, raw.metadata.labels
    deploy = {key.removeprefix(DEPLOY): value for key, value in labels.items() if key.startswith(DEPLOY)}
    return Node(
        name=name,
        ready=raw.ready,
        unschedulable=raw.spec.unschedulable,
        labels={key: labels[key] for key in sorted(KEPT_LABELS & labels.keys())},
        deployed=sum(value == "true" for value in deploy.values()),
        paused={key: value for key, value in deploy.items() if value != "true"},
        capacity=_resources(raw.status.capacity),
        allocatable=_resources(raw.status.allocatable),
        devices=-1 if devices is None else len(devices.get(name, ())),
        drivers=sharing_devices.driver_versions((devices or {}).get(name, ())),
        validator=validators.get(name),
    )


def _resources(quantities: Mapping[str, str]) -> dict[str, int]:
    """NVIDIA's extended resources; -1 where a quantity cannot be read."""
    found = {key: workloads.whole(text) for key, text in quantities.items() if key.startswith("nvidia.com/")}
    return {key: -1 if count is None else count for key, count in found.items()}
