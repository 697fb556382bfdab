"""A simulated GPU Operator: its chart, node-feature-discovery (NFD), and the controller of ClusterPolicy and GPUCluster.

Behaviour follows `steps/docs/facts/gpu.md`, GPU Operator.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from workflows.rehearsal.simulator.api.api_kinds import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    Obj,
    ObjectKind,
    Ref,
    custom,
    labels_of,
)
from workflows.rehearsal.simulator.charts.chart_installers import CONTROL_PLANE, ChartError, ChartRelease, chart
from workflows.rehearsal.simulator.charts.operators import (
    USUAL,
    ensure_daemon_set,
    fleet_nodes,
    has_ready_pod,
    play_other,
    serves_every_node,
)
from workflows.rehearsal.simulator.controllers.scheduler import admits
from workflows.rehearsal.simulator.stages.gpu_operator.gpu_operator_nodes import (
    CLUSTER_POLICIES,
    FEATURE,
    GPU_CLUSTERS,
    NAMESPACE,
    PCI_GPU,
    VALIDATIONS,
    GpuNodes,
    driver_version,
    tolerations,
)
from workflows.rehearsal.simulator.world import Changes, World

RULES = custom("nfd.k8s-sigs.io", "NodeFeatureRule")
NFD = {"app.kubernetes.io/name": "node-feature-discovery", "role": "worker"}
NFD_IMAGE = "registry.k8s.io/nfd/node-feature-discovery:v0.18.3"
WORKER = "node-feature-discovery-worker"
FOREIGN = Ref("node-feature-discovery", "hardware-labels")
SECOND_PLUGIN = Ref("kube-system", "nvidia-device-plugin-daemonset")
SECOND_OPERATOR = Ref("nvidia-operators", "gpu-operator")
GPU_CLUSTER = "gpu-cluster"
RESERVED = {"key": "reserved-for", "value": "benchmarks", "effect": "NoSchedule"}
STATES = (
    ("state-driver", "nvidia-driver-daemonset", "driver"),
    ("state-container-toolkit", "nvidia-container-toolkit-daemonset", "container-toolkit"),
    ("state-operator-validation", "nvidia-operator-validator", "operator-validator"),
    ("state-device-plugin", "nvidia-device-plugin-daemonset", "device-plugin"),
    ("state-dcgm", "nvidia-dcgm", "dcgm"),
    ("state-dcgm-exporter", "nvidia-dcgm-exporter", "dcgm-exporter"),
    ("gpu-feature-discovery", "gpu-feature-discovery", "gpu-feature-discovery"),
    ("state-mig-manager", "nvidia-mig-manager", "mig-manager"),
)
"""Each state that the operator reports, in its order, with the state's DaemonSet and the deploy label that selects nodes.

Source: https://github.com/NVIDIA/gpu-operator/blob/v26.7.0/controllers/state_manager.go
"""

DRA_STATES = (
    ("state-driver", "nvidia-gpu-driver-ubuntu24.04-6c4d7f9b8", "driver"),
    ("state-dra-driver", "nvidia-dra-driver-kubelet-plugin", "dra-driver"),
    ("state-dra-validation", "nvidia-dra-validator", "dra-validator"),
    ("state-dcgm", "nvidia-dcgm-dra", "dcgm-dra"),
    ("state-dcgm-exporter-dra", "nvidia-dcgm-exporter-dra", "dcgm-exporter-dra"),
)
INIT = {
    "nvidia-driver-daemonset": ("k8s-driver-manager",),
    "nvidia-gpu-driver-ubuntu24.04-6c4d7f9b8": ("k8s-driver-manager",),
    "nvidia-container-toolkit-daemonset": ("driver-validation",),
    "nvidia-operator-validator": VALIDATIONS,
    "nvidia-dra-validator": VALIDATIONS[:1],
}
_SPEC_KEY = {
    "driver": "driver",
    "container-toolkit": "toolkit",
    "device-plugin": "devicePlugin",
    "gpu-feature-discovery": "gfd",
    "dcgm": "dcgm",
    "dcgm-dra": "dcgm",
    "dcgm-exporter": "dcgmExporter",
    "dcgm-exporter-dra": "dcgmExporter",
    "mig-manager": "migManager",
}
_ON = {"dcgm": False, "dcgm-dra": False}
_IMAGES = {
    "nvidia-container-toolkit-daemonset": "k8s/container-toolkit",
    "nvidia-operator-validator": "gpu-operator",
    "nvidia-dra-validator": "gpu-operator",
    "nvidia-device-plugin-daemonset": "k8s-device-plugin",
    "gpu-feature-discovery": "k8s-device-plugin",
    "nvidia-dcgm": "cloud-native/dcgm",
    "nvidia-dcgm-dra": "cloud-native/dcgm",
    "nvidia-dcgm-exporter": "k8s/dcgm-exporter",
    "nvidia-dcgm-exporter-dra": "k8s/dcgm-exporter",
    "nvidia-mig-manager": "cloud-native/k8s-mig-manager",
    "nvidia-dra-driver-kubelet-plugin": "dra-driver-nvidia-gpu",
}
"""DaemonSet → image below nvcr.io/nvidia (deployments/gpu-operator/values.yaml of the chart)."""


@chart("gpu-operator")
def gpu_operator(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart gpu-operator: the operator, NFD, and a ClusterPolicy or GPUCluster as the values say.

    Raises ChartError if the values ask for both, as the chart's own validation does.
    """
    policy, cluster = release.value("clusterPolicy.deployCR", True), release.value("gpuCluster.deployCR", False)
    if policy and cluster:
        raise ChartError(
            "Error: INSTALLATION FAILED: execution error at (gpu-operator/templates/validations.yaml:2:4): "
            "clusterPolicy.deployCR and gpuCluster.deployCR are mutually exclusive"
        )
    release.crds("nvidia.com")
    if release.value("nfd.enabled", True):
        install_nfd(release, "gpu-operator")
    release.deployment("gpu-operator", image=f"nvcr.io/nvidia/gpu-operator:{release.version}", tolerations=CONTROL_PLANE)
    config = release.value("devicePlugin.config", {})
    if config.get("create"):
        release.put(CONFIG_MAPS, {"metadata": {"name": config["name"]}, "data": config["data"]})
    spec = {key: value for key, value in release.values.items() if isinstance(value, dict) and key not in ("nfd", "operator")}
    if policy:
        release.put(CLUSTER_POLICIES, {"metadata": {"name": "cluster-policy"}, "spec": spec})
    if cluster:
        release.put(GPU_CLUSTERS, {"metadata": {"name": GPU_CLUSTER}, "spec": spec})


def install_nfd(release: ChartRelease, prefix: str) -> None:
    """Install the node-feature-discovery chart that an operator's chart contains: CRDs, master, garbage collector and workers."""
    release.crds("nfd.k8s-sigs.io")
    for part in ("master", "gc"):
        release.deployment(
            f"{prefix}-node-feature-discovery-{part}", NFD | {"role": part}, image=NFD_IMAGE, tolerations=CONTROL_PLANE
        )
    on_workers = release.value("node-feature-discovery.worker.tolerations", [*USUAL, *CONTROL_PLANE])
    release.daemon_set(f"{prefix}-{WORKER}", NFD, image=NFD_IMAGE, tolerations=on_workers)


class NodeFeatureDiscovery:
    """Simulated NFD workers: each labels its node some seconds after the node or a rule appears."""

    name = "node_feature_discovery"
    kinds = (DAEMON_SETS, NODES, RULES, NAMESPACES)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Schedule the labels of nodes that lack some; create or delete what faults about a second instance need."""
        if changed.everything:
            _foreign(world)
        _taint(world, changed)
        workers = [daemon for daemon in world.objects(DAEMON_SETS) if daemon["metadata"]["name"].endswith(WORKER)]
        for node in fleet_nodes(world, changed, RULES, DAEMON_SETS) if workers else ():
            name = node["metadata"]["name"]
            if all(admits(node, worker["spec"]["template"]["spec"], daemon=True) for worker in workers):
                continue
            wanted = _features(world, name)
            if wanted.items() - labels_of(node).items():
                world.later(f"nfd/{name}/{len(wanted)}", 5, 25, functools.partial(_label, world, name))


def _taint(world: World, changed: Changes) -> None:
    """Play the fault `gpu_nodes_tainted`: a person reserves nodes by a taint that the operator's DaemonSets do not tolerate."""
    if not world.fault("gpu_nodes_tainted"):
        return
    for node in fleet_nodes(world, changed, RULES, DAEMON_SETS):
        taints = node["spec"].get("taints") or []
        if world.fault("gpu_nodes_tainted", node["metadata"]["name"]) and RESERVED not in taints:
            world.patch(NODES, node, {"spec": {"taints": [*taints, RESERVED]}})


def _features(world: World, name: str) -> dict[str, str]:
    """Return the labels that NFD writes on a machine's node. NICs get one only with the Network Operator's NodeFeatureRule."""
    if world.fault("nfd_labels_missing"):
        return {}
    labels = {f"{FEATURE}kernel-version.full": world.hardware(name).kernel, f"{FEATURE}system-os_release.ID": "ubuntu"}
    if world.host(name).gpus and not world.fault("no_gpu_nodes"):
        labels[PCI_GPU] = "true"
    if world.host(name).gpus and world.find(RULES, "nvidia-nics-rules") is not None:
        labels[f"{FEATURE}pci-15b3.present"] = "true"
    return labels


def _label(world: World, name: str) -> None:
    world.patch_node(name, {"metadata": {"labels": _features(world, name)}})


def _foreign(world: World) -> None:
    """Play the faults about a second instance: create what somebody else installed; delete it when the fault has ended.

    The second NFD has none of the usual names and labels, only its image. The device plugin is that of its project's own manifest.
    """
    folder = {"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
    plugin = {"volumes": [folder]} | _pod("nvidia-device-plugin-ctr", "nvcr.io/nvidia/k8s-device-plugin:v0.17.1")
    labels = {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/instance": "gpu-operator-1795000000"}
    others: tuple[tuple[str, ObjectKind, Ref, Obj, Obj], ...] = (
        ("foreign_nfd", DAEMON_SETS, FOREIGN, _pod("worker", "nfd/node-feature-discovery:v0.17.0"), {}),
        ("second_device_plugin", DAEMON_SETS, SECOND_PLUGIN, plugin, {}),
        ("second_gpu_operator", DEPLOYMENTS, SECOND_OPERATOR, _pod("gpu-operator", "nvcr.io/nvidia/gpu-operator:v25.3.4"), labels),
    )
    for fault, kind, at, pod, marks in others:
        play_other(world, fault, kind, at, pod, marks)


def _pod(name: str, image: str) -> Obj:
    return {"containers": [{"name": name, "image": image}]}


class GpuOperator:
    """Simulated controller of the GPU Operator. It reacts 2 to 6 virtual seconds after a change (the real one: 5 s)."""

    name = "gpu_operator"
    kinds = (CLUSTER_POLICIES, GPU_CLUSTERS, DAEMON_SETS, DEPLOYMENTS, DEVICE_CLASSES, NODES)

    def reconcile(self, world: World, _changed: Changes) -> None:
        """Schedule the next reconciliation if there is a ClusterPolicy or GPUCluster."""
        if any(world.served(kind) and world.objects(kind) for kind in (CLUSTER_POLICIES, GPU_CLUSTERS)):
            world.later("gpu_operator/look", 2, 6, functools.partial(_look, world))


def _look(world: World) -> None:
    if not has_ready_pod(world, NAMESPACE, "gpu-operator"):
        return
    if world.fault("both_root_resources"):
        world.create(GPU_CLUSTERS, {"metadata": {"name": GPU_CLUSTER}, "spec": {}})
    if world.fault("exporter_not_deployed"):
        _edit_by_hand(world)
    roots = [(kind, root) for kind in (CLUSTER_POLICIES, GPU_CLUSTERS) for root in world.objects(kind)]
    for kind, root in roots:
        if len(roots) > 1:
            message = "ClusterPolicy cannot co-exist with GPUCluster" if kind is CLUSTER_POLICIES else "GPUCluster cannot co-exist"
            _status(world, kind, root, error=("ReconcileFailed", message))
        elif world.fault("clusterpolicy_stale_ready"):
            message = "ClusterPolicy is ready as all resources have been successfully reconciled"
            _status(world, kind, root, ready=("Reconciled", message))
        else:
            _reconcile(world, kind, root)


def _edit_by_hand(world: World) -> None:
    """Play the fault `exporter_not_deployed`: a person switches a part off in the ClusterPolicy itself."""
    for root in world.objects(CLUSTER_POLICIES):
        if root["spec"].get("dcgmExporter", {}).get("enabled", True):
            world.patch(CLUSTER_POLICIES, root, {"spec": {"dcgmExporter": {"enabled": False}}})


def _reconcile(world: World, kind: ObjectKind, root: Obj) -> None:
    """Create the DaemonSets that a ClusterPolicy or GPUCluster asks for, and write in its status which are not ready.

    Without NFD labels or GPU nodes the status is ready too, as with the real controller:
    https://github.com/NVIDIA/gpu-operator/blob/v26.7.0/controllers/clusterpolicy_controller.go
    """
    dra = kind is GPU_CLUSTERS
    if root["spec"].get("devicePlugin", {}).get("config", {}).get("create") and not dra:
        name, selector = "nvidia-device-plugin-mps-control-daemon", {"nvidia.com/mps.capable": "true"}
        ensure_daemon_set(world, (kind, root), NAMESPACE, name, selector=selector, tolerations=tolerations(root))
    missing = [state for state, name, deploy in (DRA_STATES if dra else STATES) if not _state(world, kind, root, name, deploy)]
    if dra:
        world.create(DEVICE_CLASSES, {"metadata": {"name": "gpu.nvidia.com"}, "spec": {}})
    if missing:
        title = "GPUCluster" if dra else "ClusterPolicy"
        _status(world, kind, root, error=("OperandNotReady", f"{title} is not ready; states not ready: [{' '.join(missing)}]"))
        return
    labels = [labels_of(node) for node in world.objects(NODES)]
    if not any(key.startswith(FEATURE) for entry in labels for key in entry):
        _status(world, kind, root, ready=("NFDLabelsMissing", "No NFD labels found"))
    elif not any(entry.get(PCI_GPU) == "true" for entry in labels):
        _status(world, kind, root, ready=("NoGPUNodes", "No GPU node found, watching for new nodes to join the cluster."))
    else:
        _status(world, kind, root, ready=("Reconciled", "all resources have been successfully reconciled"))


def _state(world: World, kind: ObjectKind, root: Obj, name: str, deploy: str) -> bool:
    """Create the DaemonSet of one operator state and return True if it is ready; a state that the spec disables is ready."""
    part = root["spec"].get(_SPEC_KEY.get(deploy, ""), {})
    if not part.get("enabled", _ON.get(deploy, True)):
        if world.find(DAEMON_SETS, name, NAMESPACE) is not None:
            world.delete(DAEMON_SETS, Ref(NAMESPACE, name))
        return True
    operand = functools.partial(_operand, world, (kind, root), deploy)
    if deploy != "driver":
        return serves_every_node(operand(name, f"{_IMAGES.get(name, name)}:simulated"))
    version, init = driver_version(world, root), INIT[name]
    if not part.get("usePrecompiled") or kind is GPU_CLUSTERS:
        return serves_every_node(operand(name, f"driver:{version}-ubuntu24.04", init=init))
    # the modules of precompiled drivers are built for one kernel, so each kernel has a DaemonSet
    kernels = {world.hardware(host.name).kernel for host in world.fleet if host.gpus}
    branch = version.partition(".")[0]
    sets = [
        operand(
            f"{name}-{kernel}-ubuntu24.04",
            f"driver:{branch}-{kernel}-ubuntu24.04",
            init=init,
            kernel={f"{FEATURE}kernel-version.full": kernel},
        )
        for kernel in sorted(kernels)
    ]
    return all(map(serves_every_node, sets))


def _operand(
    world: World,
    owner: tuple[ObjectKind, Obj],
    deploy: str,
    name: str,
    image: str,
    *,
    init: Iterable[str] = (),
    kernel: Mapping[str, str] | None = None,
) -> Obj:
    """Create or update the DaemonSet of an operand; `kernel` is the label of the nodes that a precompiled driver fits."""
    is_driver = deploy == "driver"
    return ensure_daemon_set(
        world,
        owner,
        NAMESPACE,
        name,
        selector={f"nvidia.com/gpu.deploy.{deploy}": "true", **(kernel or {})},
        init=init or INIT.get(name, ("toolkit-validation",)),
        image=f"nvcr.io/nvidia/{image}",
        tolerations=tolerations(owner[1]),
        on_delete=is_driver,
        labels={"app.kubernetes.io/component": "nvidia-driver"} if is_driver else {},
    )


def _status(
    world: World, kind: ObjectKind, root: Obj, *, ready: tuple[str, str] | None = None, error: tuple[str, str] | None = None
) -> None:
    """Write state and conditions of a ClusterPolicy or GPUCluster from `ready` or `error`, each a reason and a message.

    As the operator does, the condition Error holds the diagnostics, and there is no observedGeneration.
    """
    shown = ("Ready", str(bool(ready)), *(ready or ("Error", "")))
    conditions = world.conditions(root, shown, ("Error", str(bool(error)), *(error or ("Ready", ""))))
    state = {"state": "ready" if ready else "notReady", "namespace": NAMESPACE, "conditions": conditions}
    world.patch(kind, root, {"status": state}, status=True)


ROLES = (NodeFeatureDiscovery, GpuOperator, GpuNodes)
