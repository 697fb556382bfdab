"""The GPU Operator's work on each node, in order from driver to validator, and the pods that wait for it.

A node's progress is in its annotations `simulated/…`, so that it survives a restart of the simulator.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from workflows.rehearsal.simulator.api.api_kinds import DAEMON_SETS, NODES, RESOURCE_SLICES, Obj, annotations_of, custom, labels_of
from workflows.rehearsal.simulator.charts.operators import USUAL, fleet_nodes
from workflows.rehearsal.simulator.controllers.scheduler import admits
from workflows.rehearsal.simulator.controllers.simulated_pods import (
    Behaviour,
    BlockedStart,
    Exit,
    LongRunning,
    NeverStarted,
    check,
    pod_program,
)
from workflows.rehearsal.simulator.stages.gpu_operator import gpu_shares
from workflows.rehearsal.simulator.world import Changes, World

CLUSTER_POLICIES = custom("nvidia.com", "ClusterPolicy")
GPU_CLUSTERS = custom("nvidia.com", "GPUCluster")
NAMESPACE = "gpu-operator"
GPU = "nvidia.com/gpu"
FEATURE = "feature.node.kubernetes.io/"
PCI_GPU = f"{FEATURE}pci-10de.present"
DEPLOY = "nvidia.com/gpu.deploy."
DRIVER, TOOLKIT = "simulated/nvidia-driver", "simulated/nvidia-toolkit"
PLUGIN, DISCOVERED = "simulated/nvidia-plugin", "simulated/gpu-feature-discovery"
PARTS = (
    "driver",
    "container-toolkit",
    "device-plugin",
    "gpu-feature-discovery",
    "dcgm",
    "dcgm-exporter",
    "mig-manager",
    "node-status-exporter",
    "operator-validator",
)
DRA_PARTS = ("driver", "dra-driver", "dra-validator", "dcgm-dra", "dcgm-exporter-dra")
OLDER_DRIVER, OLDER_CUDA, OLDER_VBIOS = "570.124.06", "12.8", "96.00.61.00.01"
"""Driver with its CUDA version, and firmware, of the nodes that faults make different from the others."""
OFF_BY_LABEL = "dcgm-exporter"
"""Operand that the fault `operands_off_by_label` switches off."""


def root_resource(world: World) -> Obj | None:
    """Return the ClusterPolicy or, if there is none, the GPUCluster; None if neither exists."""
    for kind in (CLUSTER_POLICIES, GPU_CLUSTERS):
        if world.served(kind) and world.objects(kind):
            return next(iter(world.objects(kind)))
    return None


def tolerations(root: Obj) -> list[Obj]:
    """Return the tolerations of the operator's DaemonSets: those in the spec of `root`, else the chart's."""
    return list(root["spec"].get("daemonsets", {}).get("tolerations", USUAL))


def uses_dra(root: Obj) -> bool:
    """Return True if `root` is the GPUCluster, with which GPUs are advertised as DRA devices instead of by a device plugin."""
    return str(root["metadata"]["name"]) == "gpu-cluster"


def driver_version(world: World, root: Obj) -> str:
    """Return the driver version that the spec of `root` names, else that of the fleet's first GPU machine; empty without GPUs.

    For precompiled drivers the spec names the branch alone, such as `580`.
    """
    gpus = next((host.name for host in world.fleet if host.gpus), "")
    named, of_machine = root["spec"].get("driver", {}).get("version"), world.hardware(gpus).driver if gpus else ""
    return of_machine if not named or of_machine.startswith(f"{named}.") else named


def node_driver(world: World, root: Obj, name: str) -> str:
    """Return the driver version that a node gets; victims of the fault `driver_versions_differ` keep an older one."""
    return OLDER_DRIVER if world.fault("driver_versions_differ", name) else driver_version(world, root)


def driver_of_operator(world: World, name: str) -> str:
    """Return the version of the driver that the operator loaded on a machine.

    It is empty if the operator has loaded none, or if the driver is part of the machine's own software.
    """
    return "" if world.hardware(name).driver_on_host else world.node_annotations(name).get(DRIVER, "")


class GpuNodes:
    """Simulated driver, toolkit, device plugin and feature discovery on each GPU node, one after the other.

    If one of them is broken, the later ones do not start.
    """

    name = "gpu_nodes"
    kinds = (NODES, CLUSTER_POLICIES, GPU_CLUSTERS, RESOURCE_SLICES)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Schedule the next missing step of each changed GPU node; show the effect of faults on nodes that are done."""
        root = root_resource(world)
        if root is None or world.fault("clusterpolicy_stale_ready"):
            return
        for node in fleet_nodes(world, changed, CLUSTER_POLICIES, GPU_CLUSTERS):
            if labels_of(node).get(PCI_GPU) == "true" and not admits(node, {"tolerations": tolerations(root)}, daemon=True):
                _step(world, root, node)
                _switch_off(world, node)
                if changed.everything:
                    _follow_faults(world, node)


def _step(world: World, root: Obj, node: Obj) -> None:
    """Schedule the first missing step of a node: deploy labels, driver, toolkit, device plugin, feature discovery."""
    name, labels, done = node["metadata"]["name"], labels_of(node), annotations_of(node)
    capable = world.hardware(name).mig_capable
    parts = DRA_PARTS if uses_dra(root) else [part for part in PARTS if capable or part != "mig-manager"]
    key = f"gpu_nodes/{name}"
    if any(f"{DEPLOY}{part}" not in labels for part in parts):
        wanted = {f"{DEPLOY}{part}": labels.get(f"{DEPLOY}{part}", "true") for part in parts} | {"nvidia.com/gpu.present": "true"}
        world.later(f"{key}/mark", 1, 6, functools.partial(_annotate, world, name, {}, wanted))
    elif done.get(DRIVER) != (version := node_driver(world, root, name)):
        if not driver_broken(world, name):
            built = root["spec"].get("driver", {}).get("enabled", True)
            # The driver container compiles the kernel module; a driver of the host only has to be found.
            low, high = (60.0, 300.0) if built else (1.0, 4.0)
            world.later(f"{key}/driver/{version}", low, high, functools.partial(_load_driver, world, name, version))
    elif TOOLKIT not in done:
        world.later(f"{key}/toolkit", 8, 30, functools.partial(_annotate, world, name, {TOOLKIT: "ready"}, {}))
    elif PLUGIN not in done:
        world.later(f"{key}/plugin", 5, 25, functools.partial(_advertise, world, name))
    elif not uses_dra(root) and DISCOVERED not in done:
        world.later(f"{key}/gfd", 3, 15, functools.partial(_discover, world, name))


def _switch_off(world: World, node: Obj) -> None:
    """Play the fault `operands_off_by_label`: a person sets a deploy label to false, which the operator leaves as it is."""
    label = f"{DEPLOY}{OFF_BY_LABEL}"
    name = node["metadata"]["name"]
    if labels_of(node).get(label) == "true" and world.fault("operands_off_by_label", name):
        _annotate(world, name, {}, {label: "false"})


def _discover(world: World, name: str) -> None:
    """Write the labels of feature discovery and MIG manager on a node, except those that a sharing configuration decides."""
    node = world.find(NODES, name)
    if node is None:
        return
    present = labels_of(node)
    labels = gfd_labels(world, name)
    if gpu_shares.has_sharing_label(node):
        for key in ("product", "replicas", "sharing-strategy"):
            del labels[f"nvidia.com/gpu.{key}"]
    _annotate(world, name, {DISCOVERED: "ready"}, {key: value for key, value in labels.items() if not _chosen(key, present)})


def _chosen(key: str, present: Mapping[str, str]) -> bool:
    """Return True if `key` is a MIG label and the node has one already, because the operator writes only a default."""
    return key.startswith("nvidia.com/mig.config") and "nvidia.com/mig.config" in present


def _annotate(world: World, name: str, annotations: Mapping[str, str], labels: Mapping[str, str]) -> None:
    world.patch_node(name, {"metadata": {"annotations": dict(annotations), "labels": dict(labels)}})


def _load_driver(world: World, name: str, version: str) -> None:
    """Record on the node that the driver is loaded. If feature discovery has run before, update its label of the version too."""
    if not driver_broken(world, name):
        full = {"nvidia.com/cuda.driver-version.full": version} if DISCOVERED in world.node_annotations(name) else {}
        _annotate(world, name, {DRIVER: version}, full)


def _advertise(world: World, name: str) -> None:
    """Advertise a node's GPUs: as resource nvidia.com/gpu, or in a ResourceSlice with a GPUCluster."""
    root, node = root_resource(world), world.find(NODES, name)
    if root is None or node is None:
        return
    _annotate(world, name, {PLUGIN: "ready"}, {})
    if uses_dra(root):
        world.ensure(RESOURCE_SLICES, resource_slice(world, name))
    elif _plugin_on(root) and not gpu_shares.has_sharing_label(node):
        world.patch_soon(NODES, node, {"status": _amounts(world, name)}, status=True)


def _amounts(world: World, name: str) -> Obj:
    visible = visible_gpus(world, name)
    healthy = visible - (1 if world.fault("gpu_unhealthy", name) else 0)
    return {"capacity": {GPU: str(visible)}, "allocatable": {GPU: str(healthy)}}


UNHEALTHY = {"key": "gpu.nvidia.com/unhealthy", "value": "xid", "effect": "NoSchedule"}
"""Taint of a DRA device that its driver has found unhealthy."""


def visible_gpus(world: World, name: str) -> int:
    """Return how many GPUs the driver of a machine sees; the fault `gpu_missing` hides one."""
    return world.host(name).gpus - (1 if world.fault("gpu_missing", name) else 0)


def resource_slice(world: World, name: str) -> Obj:
    """Return the ResourceSlice of a node's GPUs (https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu)."""
    hardware, root = world.hardware(name), root_resource(world)
    version = node_driver(world, root, name) if root else hardware.driver
    cuda = OLDER_CUDA if version == OLDER_DRIVER else hardware.cuda
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "type": {"string": "gpu"},
                "uuid": {"string": gpu_uuid(world, name, number)},
                "productName": {"string": hardware.product},
                "driverVersion": {"version": version},
                "cudaDriverVersion": {"version": f"{cuda}.0"},
            },
            **({"taints": [UNHEALTHY]} if number == 0 and world.fault("dra_device_tainted", name) else {}),
            "capacity": {"memory": {"value": f"{hardware.gpu_memory_mib}Mi"}},
        }
        for number in range(visible_gpus(world, name))
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{name}-gpu.nvidia.com"}, "spec": spec}


def gfd_labels(world: World, name: str) -> dict[str, str]:
    """Return the labels that GPU feature discovery writes for whole GPUs (https://github.com/NVIDIA/k8s-device-plugin)."""
    hardware, root = world.hardware(name), root_resource(world)
    version = node_driver(world, root, name) if root else hardware.driver
    cuda = OLDER_CUDA if version == OLDER_DRIVER else hardware.cuda
    major, _, minor = hardware.compute.partition(".")
    mig = {"nvidia.com/mig.config": "all-disabled", "nvidia.com/mig.config.state": "success"} if hardware.mig_capable else {}
    return {
        "nvidia.com/gpu.product": hardware.product,
        "nvidia.com/gpu.family": hardware.family,
        "nvidia.com/gpu.machine": hardware.machine,
        "nvidia.com/gpu.count": str(visible_gpus(world, name)),
        "nvidia.com/gpu.memory": str(hardware.gpu_memory_mib),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/cuda.driver-version.full": version,
        "nvidia.com/cuda.runtime-version.full": cuda,
        "nvidia.com/mig.capable": "true" if hardware.mig_capable else "false",
        "nvidia.com/mps.capable": "false",
    } | mig


def _follow_faults(world: World, node: Obj) -> None:
    """Update the number of GPUs that a finished node advertises, because a fault may have begun or ended."""
    if PLUGIN in annotations_of(node) and not gpu_shares.has_sharing_label(node):
        name, root = node["metadata"]["name"], root_resource(world)
        if root is not None and not uses_dra(root) and _plugin_on(root):
            world.patch_soon(NODES, node, {"status": _amounts(world, name)}, status=True)
        if DISCOVERED in annotations_of(node):
            _annotate(world, name, {}, {"nvidia.com/gpu.count": str(visible_gpus(world, name))})


def _plugin_on(root: Obj) -> bool:
    return bool(root["spec"].get("devicePlugin", {}).get("enabled", True))


def driver_broken(world: World, node: str) -> bool:
    """Return True if a fault keeps the GPU driver of a node from starting."""
    return bool(world.fault("driver_crash", node) or world.fault("operands_broken", node))


def gpu_uuid(world: World, node: str, number: int) -> str:
    """Return the UUID of a node's GPU; victims of the fault `duplicate_gpu_uuid` have those of the first victim."""
    fault = world.fault("duplicate_gpu_uuid", node)
    owner = fault.nodes[0] if fault is not None and fault.nodes else node
    return gpu_shares.device_uuid(owner, number)


VALIDATIONS = ("driver-validation", "toolkit-validation", "cuda-validation", "plugin-validation")
"""Init containers of the operator's validator, in order (https://github.com/NVIDIA/gpu-operator, cmd/nvidia-validator)."""

CRASH = "Could not resolve Linux kernel version"


def _progress(world: World, node: str) -> dict[str, str]:
    """Return the node annotations that record its progress.

    In large fleets a healthy node outside the sample counts as done, because its waiting pods would otherwise become objects.
    """
    if not world.sampled(node) and not driver_broken(world, node) and not world.fault("fabric_manager_missing", node):
        return {DRIVER: "ready", TOOLKIT: "ready", PLUGIN: "ready"}
    return world.node_annotations(node)


@pod_program("app.kubernetes.io/component", "nvidia-driver")
def driver(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play the driver's pod: it waits until the driver is loaded, then runs; it crashes if a fault breaks the driver."""
    if driver_broken(world, node):
        return BlockedStart(reason="CrashLoopBackOff", message=CRASH, log=f"{CRASH}\n")
    return LongRunning() if DRIVER in _progress(world, node) else BlockedStart(init="k8s-driver-manager")


@pod_program("app", "nvidia-container-toolkit-daemonset")
def toolkit(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play the container toolkit's pod: it waits for the driver, then runs."""
    return LongRunning() if DRIVER in _progress(world, node) else BlockedStart(init="driver-validation")


def _after_toolkit(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play a pod that needs the NVIDIA container runtime: it waits for the toolkit, then runs."""
    return LongRunning() if TOOLKIT in _progress(world, node) else BlockedStart(init="toolkit-validation")


for _name in (
    "nvidia-device-plugin-daemonset",
    "gpu-feature-discovery",
    "nvidia-dcgm",
    "nvidia-dcgm-exporter",
    "nvidia-mig-manager",
    "nvidia-dra-driver-kubelet-plugin",
    "nvidia-dcgm-dra",
    "nvidia-dcgm-exporter-dra",
):
    pod_program("app", _name)(_after_toolkit)


@pod_program("app", "nvidia-operator-validator")
def validator(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play the operator's validator: it waits in the init container of the first part that is not ready, then runs.

    Like the real one it does not check the number of GPUs.
    """
    done = _progress(world, node)
    for step, mark in (("driver-validation", DRIVER), ("toolkit-validation", TOOLKIT)):
        if mark not in done:
            return BlockedStart(init=step)
    if world.fault("fabric_manager_missing", node):
        text = "Failed to allocate device vector A (error code system not yet initialized)!"
        return BlockedStart(init="cuda-validation", reason="CrashLoopBackOff", message=text, log=f"{text}\n")
    if PLUGIN not in done:
        return BlockedStart(init="plugin-validation")
    return LongRunning(log="all validations are successful\n")


@pod_program("app", "nvidia-dra-validator")
def dra_validator(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play the validator beside the DRA driver: it waits until GPUs are advertised, then runs."""
    return LongRunning() if PLUGIN in _progress(world, node) else BlockedStart(init="driver-validation")


@check("cuda-smoke")
def cuda_smoke(world: World, _pod: Obj, node: str) -> Behaviour:
    """Play the check `cuda-smoke`: report GPUs, driver, devices that ran a vector addition, and GPUs that the exporter serves.

    The report has the form that `workflows/stages/scripts/cuda_smoke.sh` prints.
    """
    if TOOLKIT not in world.node_annotations(node):
        return Exit(message={"node": node, "uuids": [], "devices": 0, "passed": 0, "error": "nvidia-smi: not found"})
    if world.fault("cdi_devices_unknown", node):
        return NeverStarted(code=128, reason="StartError", message=f"{NO_CDI}={gpu_uuid(world, node, 0)}: unknown")
    count = visible_gpus(world, node)
    passed = 0 if world.fault("cuda_fails", node) else count
    error = "" if passed else f"{gpu_uuid(world, node, 0)}: CUDA driver version is insufficient for CUDA runtime version"
    uuids = [gpu_uuid(world, node, number) for number in range(count)]
    lines = [f"{device}: {'Test PASSED' if passed else error}" for device in uuids]
    hardware, exported = world.hardware(node), _exported(world, node)
    driver = world.node_annotations(node).get(DRIVER) or hardware.driver
    report = {
        "node": node,
        "uuids": uuids,
        "vbios": [OLDER_VBIOS if world.fault("vbios_differs", node) else hardware.vbios] * count,
        "driver": driver,
        "driver_flavour": hardware.driver_flavour,
        "cuda": OLDER_CUDA if driver == OLDER_DRIVER else hardware.cuda,
        "devices": count,
        "passed": passed,
        "exported": exported,
        "exporter_error": "curl: (7) Failed to connect: Connection refused" if exported < 0 else "",
        "error": error,
    }
    return Exit(message=report, log="\n".join(lines), seconds=12)


NO_CDI = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: failed to inject CDI devices: "
    "unresolvable CDI devices management.nvidia.com/gpu"
)
"""Beginning of containerd's message about a CDI device that no file in /var/run/cdi names."""


def _exported(world: World, node: str) -> int:
    """Return how many GPUs the metrics exporter on a node serves; -1 if none runs there."""
    names = ("nvidia-dcgm-exporter", "nvidia-dcgm-exporter-dra")
    daemons = [daemon for name in names if (daemon := world.find(DAEMON_SETS, name, NAMESPACE)) is not None]
    selectors = [daemon["spec"]["template"]["spec"].get("nodeSelector") or {} for daemon in daemons]
    node_object = world.find(NODES, node)
    labels = labels_of(node_object) if node_object else {}
    if not any(selector.items() <= labels.items() for selector in selectors):
        return -1
    return visible_gpus(world, node) - (1 if world.fault("exporter_misses_gpu", node) else 0)
