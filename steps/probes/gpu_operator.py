"""Reads the GPU Operator's root resources, its DaemonSets, the nodes' labels and resources, and the CUDA check's pods."""

from collections.abc import Mapping

from msgspec import Struct

from steps.contract.charts import Workload
from steps.contract.stages.gpu_operator import (
    Condition,
    ControlObservation,
    FunctionalObservation,
    Mode,
    Node,
    NodesObservation,
    Root,
    Validator,
)
from steps.probes import charts, checks, managed, workloads
from steps.probes.conditions import Condition as RawCondition
from steps.probes.reader import KubeReader, Scope

NAMESPACE = "gpu-operator"
CHECK = "cuda-smoke"
DEPLOY = "nvidia.com/gpu.deploy."
PCI = tuple(f"feature.node.kubernetes.io/{name}.present" for name in ("pci-10de", "pci-0302_10de", "pci-0300_10de"))
"""Labels by any of which the operator itself finds GPU nodes (gpu_stack §1.5)."""

KEPT_LABELS = frozenset(
    {
        *PCI,
        "nvidia.com/gpu.present",
        "nvidia.com/gpu.product",
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.memory",
        "nvidia.com/cuda.driver-version.full",
        "nvidia.com/gpu-driver-upgrade-state",
    }
)
VALIDATORS = ("nvidia-operator-validator", "nvidia-dra-validator")
DRA_DRIVER = "gpu.nvidia.com"


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


class SliceSpec(Struct, frozen=True, rename="camel"):
    """Devices of a driver on a node."""

    driver: str = ""
    node_name: str = ""
    devices: tuple[workloads.Meta, ...] = ()


class ResourceSlice(Struct, frozen=True):
    """A ResourceSlice."""

    spec: SliceSpec = SliceSpec()


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Charts, root resources, operands with the troubles of their pods, NFD workers, and nodes with a GPU by NFD."""
    operands = workloads.read(kube, NAMESPACE, lambda _: True, ("DaemonSet",))
    settled = all(entry.settled() or entry.desired == 0 for entry in operands)
    return ControlObservation(
        now=scope.now,
        releases=charts.observe(kube, charts.scoped(scope)),
        cluster_policies=_roots(kube, "/apis/nvidia.com/v1/clusterpolicies"),
        gpu_clusters=_roots(kube, "/apis/nvidia.com/v1alpha1/gpuclusters"),
        operands=operands,
        trouble=() if settled else workloads.troubles(workloads.pods(kube, NAMESPACE)),
        nfd=nfd_workers(kube),
        gpu_nodes=_gpu_nodes(kube),
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """The expected nodes; validator pods are read only while their DaemonSet is incomplete."""
    daemon = next(filter(None, (_daemon_set(kube, name) for name in VALIDATORS)), None)
    incomplete = daemon is not None and daemon.ready < daemon.desired
    validators = _validators(kube, daemon.name) if daemon is not None and incomplete else {}
    devices = _devices(kube) if scope.arguments.get("mode") == Mode.GPU_CLUSTER else None
    wanted = frozenset(scope.nodes)
    found = kube.list("/api/v1/nodes", workloads.Node) or ()
    kept = (_node(raw, validators, devices) for raw in found if raw.metadata.name in wanted)
    return NodesObservation(nodes=tuple(sorted(kept, key=lambda node: node.name)), validators=daemon)


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """The check's pods."""
    return FunctionalObservation(pods=checks.read(kube, CHECK))


def nfd_workers(kube: KubeReader) -> tuple[str, ...]:
    """DaemonSets of NFD workers in all namespaces: two of them overwrite each other's labels (gpu_stack §0.8)."""
    found = kube.list("/apis/apps/v1/daemonsets", workloads.Raw) or ()
    return tuple(sorted(f"{raw.metadata.namespace}/{raw.metadata.name}" for raw in found if _is_nfd_worker(raw)))


def _is_nfd_worker(raw: workloads.Raw) -> bool:
    meta = raw.metadata
    named = "node-feature-discovery-worker" in meta.name or "nfd-worker" in meta.name
    labelled = meta.labels.get("app.kubernetes.io/name") == "node-feature-discovery" and meta.labels.get("role") == "worker"
    return named or labelled


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
    names = {
        raw.metadata.name for label in PCI for raw in kube.list("/api/v1/nodes", charts.AnyObject, labels=f"{label}=true") or ()
    }
    return tuple(sorted(names))


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


def _devices(kube: KubeReader) -> dict[str, int]:
    counted: dict[str, int] = {}
    for one in kube.list("/apis/resource.k8s.io/v1/resourceslices", ResourceSlice) or ():
        if one.spec.driver == DRA_DRIVER:
            counted[one.spec.node_name] = counted.get(one.spec.node_name, 0) + len(one.spec.devices)
    return counted


def _node(raw: workloads.Node, validators: Mapping[str, Validator], devices: Mapping[str, int] | None) -> Node:
    name, labels = raw.metadata.name, raw.metadata.labels
    deploy = {key.removeprefix(DEPLOY): value for key, value in labels.items() if key.startswith(DEPLOY)}
    ready = next((entry.status for entry in raw.status.conditions if entry.type == "Ready"), "")
    return Node(
        name=name,
        ready=ready == "True",
        unschedulable=raw.spec.unschedulable,
        labels={key: labels[key] for key in sorted(KEPT_LABELS & labels.keys())},
        deployed=sum(value == "true" for value in deploy.values()),
        paused={key: value for key, value in deploy.items() if value != "true"},
        capacity=_resources(raw.status.capacity),
        allocatable=_resources(raw.status.allocatable),
        devices=-1 if devices is None else devices.get(name, 0),
        validator=validators.get(name),
    )


def _resources(quantities: Mapping[str, str]) -> dict[str, int]:
    """NVIDIA's extended resources; such quantities are whole numbers, with `k` from a thousand on."""
    scale = {"k": 1000}
    found = {}
    for key, text in quantities.items():
        if key.startswith("nvidia.com/"):
            number, unit = (text[:-1], scale[text[-1]]) if text[-1:] in scale else (text, 1)
            found[key] = int(number) * unit if number.isdigit() else -1
    return found
