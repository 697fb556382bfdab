"""Reads the GPU Operator's root resources and DaemonSets, labels and resources of the nodes, and the pods of the CUDA check."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from steps.contract.objects.charts import Trouble, Workload
from steps.stages.gpu_operator import probe_instances
from steps.stages.gpu_operator.contract import (
    DRIVER_PODS,
    GPU_LABELS,
    PRODUCT_LABEL,
    AdvertisingMode,
    ControlObservation,
    FunctionalObservation,
    GpuNode,
    NodesObservation,
    OperatorRoot,
    RootCondition,
    Validator,
)
from steps.stages.shared import kube_objects, probe_charts, probe_checks, probe_devices, probe_workloads
from steps.stages.shared.kube_objects import Condition as RawCondition
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_workloads import is_nfd_worker, named_daemon_sets
from steps.stages.shared.quantities import whole_number

NAMESPACE = "gpu-operator"
CHECK = "cuda-smoke"
DEPLOY = "nvidia.com/gpu.deploy."
KEPT_LABELS = frozenset(
    {
        *GPU_LABELS,
        "nvidia.com/gpu.present",
        PRODUCT_LABEL,
        "nvidia.com/gpu.count",
        "nvidia.com/gpu.memory",
        "nvidia.com/cuda.driver-version.full",
        "nvidia.com/cuda.runtime-version.full",
        "nvidia.com/gpu-driver-upgrade-state",
        "nvidia.com/mig.config.state",
    }
)
GPU_RESOURCE = re.compile(r"nvidia\.com/|gpu")
"""Extended resources that are kept: NVIDIA's, and those by which other device plugins count GPUs (`volcano.sh/vgpu-number`)."""
LOG_LINES, LOG_CHARACTERS = 60, 4000
MOST_OFF = 20
"""Most nodes kept for each operand that labels switch off."""
Devices = tuple[probe_devices.Device, ...]
VALIDATORS = {"nvidia-operator-validator": f"{DEPLOY}operator-validator", "nvidia-dra-validator": f"{DEPLOY}dra-validator"}
"""DaemonSets of the operator's validator, of which one runs, and the node labels by which they select nodes."""


class _PartSwitch(Struct, frozen=True):
    """Switch and version of a part in a root resource's spec; both are optional there."""

    enabled: bool | None = None
    version: str | None = ""


class _GpuRootSpec(Struct, frozen=True, rename="camel"):
    """The fields of a root resource's spec that the gate compares."""

    driver: _PartSwitch | None = None
    toolkit: _PartSwitch | None = None
    device_plugin: _PartSwitch | None = None
    dcgm: _PartSwitch | None = None
    dcgm_exporter: _PartSwitch | None = None
    gfd: _PartSwitch | None = None
    mig_manager: _PartSwitch | None = None

    @property
    def disabled(self) -> tuple[str, ...]:
        """Return the names of the parts that are switched off."""
        fields = zip(self.__struct_fields__, self.__struct_encode_fields__, strict=True)
        return tuple(name for field, name in fields if (part := getattr(self, field)) is not None and part.enabled is False)


class _RootStatus(Struct, frozen=True):
    state: str = ""
    conditions: tuple[RawCondition, ...] | None = None


class _RawRoot(Struct, frozen=True):
    """A ClusterPolicy or a GPUCluster as the API returns it."""

    metadata: kube_objects.ManagedMeta = kube_objects.ManagedMeta()
    spec: _GpuRootSpec = _GpuRootSpec()
    status: _RootStatus = _RootStatus()


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return charts, root resources, operands with their pods' troubles, NFD workers, and the nodes in which NFD found a GPU."""
    operands = probe_workloads.read(kube, NAMESPACE, lambda _: True, ("DaemonSet",))
    settled = all(entry.settled() or entry.desired == 0 for entry in operands)
    trouble = () if settled else probe_workloads.troubles(probe_workloads.pods(kube, NAMESPACE))
    # one LIST: a selector cannot ask for one of several labels
    labelled = {raw.metadata.name: raw.metadata.labels for raw in kube.list("/api/v1/nodes", probe_charts.AnyObject) or ()}
    return ControlObservation(
        now=scope.now,
        releases=probe_charts.observe(kube, probe_charts.scoped_releases(scope)),
        root_app=probe_charts.root(kube, scope),
        cluster_policies=_roots(kube, "/apis/nvidia.com/v1/clusterpolicies"),
        gpu_clusters=_roots(kube, "/apis/nvidia.com/v1alpha1/gpuclusters"),
        operands=operands,
        trouble=trouble,
        driver_log=_driver_log(kube, trouble),
        instances=probe_instances.instances(kube),
        nfd=named_daemon_sets(kube, is_nfd_worker),
        gpu_nodes=tuple(sorted(name for name, labels in labelled.items() if _has_gpu(labels))),
        off=_switched_off(labelled),
    )


def _driver_log(kube: KubeReader, trouble: Iterable[Trouble]) -> str:
    """Return the end of the log of the first driver container in trouble, of its run before the last restart if there was one."""
    bad = next((entry for entry in trouble if entry.pod.startswith(DRIVER_PODS) and entry.container), None)
    if bad is None:
        return ""
    logs = (kube.log(NAMESPACE, bad.pod, bad.container, tail=LOG_LINES, previous=previous) for previous in (True, False))
    return next(filter(str.strip, logs), "")[-LOG_CHARACTERS:]


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """Return the registered expected nodes with labels, resources and devices. Validator pods are read only while their
    DaemonSet is incomplete."""
    raw_nodes, wanted = probe_workloads.nodes(kube), frozenset(scope.nodes)
    daemon = next(filter(None, (_daemon_set(kube, name) for name in VALIDATORS)), None)
    complete = daemon is not None and _is_on_all(daemon, raw_nodes, wanted)
    pods = () if daemon is None or complete else probe_workloads.pods(kube, NAMESPACE, f"app={daemon.name}")
    validators = {pod.spec.node_name: _validator(pod) for pod in pods if pod.spec.node_name}
    devices = probe_devices.by_node(kube) if scope.arguments.get("mode") == AdvertisingMode.GPU_CLUSTER else None
    kept = (_node(raw, validators, devices) for raw in raw_nodes if raw.metadata.name in wanted)
    return NodesObservation(nodes=tuple(sorted(kept, key=lambda node: node.name)), validators=daemon)


def functional(kube: KubeReader, _scope: Scope) -> FunctionalObservation:
    """Return the pods of check `cuda-smoke` with their reports."""
    return FunctionalObservation(pods=probe_checks.read(kube, CHECK))


def _roots(kube: KubeReader, path: str) -> tuple[OperatorRoot, ...]:
    return tuple(
        OperatorRoot(
            name=raw.metadata.name,
            state=raw.status.state,
            changed=kube_objects.spec_change_time(raw.metadata),
            driver=(raw.spec.driver.version or "") if raw.spec.driver else "",
            disabled=raw.spec.disabled,
            conditions=tuple(
                RootCondition(type=row.type, status=row.status, reason=row.reason, message=row.message[:500], since=row.since)
                for row in raw.status.conditions or ()
            ),
        )
        for raw in kube.list(path, _RawRoot) or ()
    )


def _has_gpu(labels: Mapping[str, str]) -> bool:
    """Return True if one of NFD's labels of an NVIDIA GPU is set."""
    return any(labels.get(label) == "true" for label in GPU_LABELS)


def _switched_off(labelled: Mapping[str, Mapping[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return operands whose deploy label is not true on some GPU nodes, with the first of these nodes and the value there."""
    off: dict[str, list[str]] = {}
    for node, labels in sorted(labelled.items()):
        for key, value in labels.items() if _has_gpu(labels) else ():
            if key.startswith(DEPLOY) and value != "true":
                off.setdefault(key.removeprefix(DEPLOY), []).append(f"{node}={value}")
    return {name: tuple(nodes[:MOST_OFF]) for name, nodes in sorted(off.items())}


def _is_on_all(daemon: Workload, raw_nodes: tuple[kube_objects.Node, ...], wanted: frozenset[str]) -> bool:
    """Return True if a validators' DaemonSet evidently has a ready pod on each expected node, without a look at its pods.

    One that has not seen a new node yet is complete without it. Nodes that are not expected may be as many as those that it lacks.
    """
    label = VALIDATORS[daemon.name]
    chosen = {raw.metadata.name for raw in raw_nodes if raw.metadata.labels.get(label) == "true"}
    return daemon.ready >= daemon.desired >= max(len(chosen), len(wanted)) and wanted <= chosen


def _daemon_set(kube: KubeReader, name: str) -> Workload | None:
    daemons = probe_workloads.read(kube, NAMESPACE, lambda raw: raw.metadata.name == name, ("DaemonSet",))
    return daemons[0] if daemons else None


def _validator(pod: kube_objects.Pod) -> Validator:
    stuck = pod.stuck_init
    state = (stuck.state.waiting or stuck.state.terminated) if stuck else None
    return Validator(
        pod=pod.metadata.name,
        ready=pod.ready,
        stuck=stuck.name if stuck and not pod.ready else "",
        reason=state.reason if state else "",
        message=state.message[:300] if state else "",
    )


def _node(raw: kube_objects.Node, validators: Mapping[str, Validator], devices: Mapping[str, Devices] | None) -> GpuNode:
    name, labels = raw.metadata.name, raw.metadata.labels
    deploy = {key.removeprefix(DEPLOY): value for key, value in labels.items() if key.startswith(DEPLOY)}
    return GpuNode(
        name=name,
        ready=raw.ready,
        unschedulable=raw.spec.unschedulable,
        kernel=raw.status.node_info.kernel_version,
        labels={key: labels[key] for key in sorted(KEPT_LABELS & labels.keys())},
        deployed=sum(value == "true" for value in deploy.values()),
        paused={key: value for key, value in deploy.items() if value != "true"},
        capacity=_resources(raw.status.capacity),
        allocatable=_resources(raw.status.allocatable),
        devices=-1 if devices is None else len(devices.get(name, ())),
        drivers=probe_devices.versions((devices or {}).get(name, ()), "driverVersion"),
        cuda=probe_devices.versions((devices or {}).get(name, ()), "cudaDriverVersion"),
        validator=validators.get(name),
    )


def _resources(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return a node's extended resources that count GPUs, as numbers; -1 for a quantity that is not a whole number."""
    counts = {key: whole_number(text) for key, text in quantities.items() if GPU_RESOURCE.search(key)}
    return {key: -1 if count is None else count for key, count in counts.items()}
