"""Reads how GPUs are shared: the operator's root object, the plugin's configurations, resources of nodes, and the check's pods."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from steps.contract.objects.checks import CHECK_NAMESPACE
from steps.contract.verdict import ToolError
from steps.stages.shared import kube_objects, probe_charts, probe_checks, probe_devices, probe_workloads
from steps.stages.shared.kube_objects import ManagedMeta
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.quantities import whole_number
from steps.stages.sharing import reader_mig
from steps.stages.sharing.contract import (
    ControlObservation,
    FunctionalObservation,
    NodesObservation,
    SharedNode,
    Shares,
    SharingRoot,
)

MAX_CONFIG = 65536
"""Largest number of characters of a configuration that are parsed."""


def read_shares(text: str) -> Shares | None:
    """Return the sharing configuration in a text of the device plugin's ConfigMap; None if the text is no configuration."""
    import yaml  # 30 ms that only this stage pays

    if len(text) > MAX_CONFIG:
        return None
    try:
        data: Any = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    if not isinstance(data, dict) or "version" not in data:
        return None
    sharing = data.get("sharing") or {}
    for strategy in ("timeSlicing", "mps"):
        part = sharing.get(strategy) if isinstance(sharing, dict) else None
        if isinstance(part, dict):
            return _shares(strategy, part)
    return Shares()


def _shares(strategy: str, part: dict[str, Any]) -> Shares | None:
    resources = part.get("resources")
    first = resources[0] if isinstance(resources, list) and resources else None
    replicas = first.get("replicas") if isinstance(first, dict) and first.get("name") == "nvidia.com/gpu" else None
    if not isinstance(replicas, int):
        return None
    return Shares(
        strategy=strategy,
        replicas=replicas,
        rename=part.get("renameByDefault") is True,
        refuse_two=part.get("failRequestsGreaterThanOne") is True,
    )


OPERATOR = "gpu-operator"
PLUGIN = "nvidia-device-plugin-daemonset"
LABELS = (
    "nvidia.com/gpu.product",
    "nvidia.com/gpu.count",
    "nvidia.com/gpu.replicas",
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/mig.config",
    "nvidia.com/mig.config.state",
    "nvidia.com/mig.strategy",
    "nvidia.com/mps.capable",
    "nvidia.com/device-plugin.config",
    "nvidia.com/dra-kubelet-plugin",
)
MOST_STALE = 8
MIG_MANAGER = "nvidia-mig-manager"
MOST_LOGS, MIG_LINES = 4, 200
"""Most logs of MIG managers that are read in one look, and lines of each: nodes of one product fail alike."""


class _PluginConfig(Struct, frozen=True):
    """The ConfigMap of sharing configurations that the device plugin reads."""

    name: str = ""
    default: str = ""


class _DevicePlugin(Struct, frozen=True):
    enabled: bool = True
    config: _PluginConfig | None = None


class _Mig(Struct, frozen=True):
    strategy: str = ""


class _SharingRootSpec(Struct, frozen=True, rename="camel"):
    device_plugin: _DevicePlugin = _DevicePlugin()
    mig: _Mig = _Mig()


class _Root(Struct, frozen=True):
    """A ClusterPolicy or GPUCluster as the API returns it."""

    metadata: ManagedMeta = ManagedMeta()
    spec: _SharingRootSpec = _SharingRootSpec()
    status: kube_objects.Conditions = kube_objects.Conditions()


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return the objects that decide how GPUs are shared: root resource, plugin's ConfigMap and pods, DRA classes, workloads."""
    policy = _policy(kube)
    path = f"/api/v1/namespaces/{OPERATOR}/configmaps/{policy.config if policy else ''}"
    config_map = kube.get(path, probe_charts.DataObject) if policy and policy.config else None
    configs = {key: read_shares(text) for key, text in config_map.data.items()} if config_map else {}
    classes = kube.list("/apis/resource.k8s.io/v1/deviceclasses", probe_charts.AnyObject)
    return ControlObservation(
        policy=policy,
        releases=probe_charts.observe(kube, probe_charts.scoped_releases(scope)),
        root_app=probe_charts.root(kube, scope),
        configs={key: shares for key, shares in configs.items() if shares} if config_map else None,
        unreadable=tuple(sorted(key for key, shares in configs.items() if shares is None)),
        stale=_stale(kube, config_map.metadata) if config_map else (),
        device_classes=None if classes is None else tuple(sorted(device_class.metadata.name for device_class in classes)),
        workloads=probe_workloads.read(kube, OPERATOR, lambda _: True, ("DaemonSet",)),
        trouble=probe_workloads.troubles(probe_workloads.pods(kube, OPERATOR)),
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """Return the GPU resources, labels and DRA devices of every expected node that is registered.

    Of some nodes whose MIG configuration is pending or failed, the errors in the MIG manager's log are returned too.
    """
    pools, raw_nodes = probe_devices.by_node(kube), probe_workloads.expected_nodes(kube, scope)
    errors = _mig_errors(kube, raw_nodes)
    return NodesObservation(
        nodes=tuple(_node(node, pools.get(node.metadata.name), errors.get(node.metadata.name, ())) for node in raw_nodes)
    )


def _mig_errors(kube: KubeReader, raw_nodes: Iterable[kube_objects.Node]) -> dict[str, tuple[ToolError, ...]]:
    """Return node → errors in the MIG manager's log there, for a few nodes whose configuration has failed or is pending."""
    states = {node.metadata.name: node.metadata.labels.get("nvidia.com/mig.config.state", "") for node in raw_nodes}
    # the failed ones first: a pending one may only need time
    unfinished = sorted((name for name, state in states.items() if state in ("failed", "pending")), key=lambda name: states[name])
    if not unfinished:
        return {}
    managers = {pod.spec.node_name: pod.metadata.name for pod in probe_workloads.pods(kube, OPERATOR, f"app={MIG_MANAGER}")}
    read = [name for name in unfinished if name in managers][:MOST_LOGS]
    return {name: reader_mig.errors(kube.log(OPERATOR, managers[name], tail=MIG_LINES)) for name in read}


def limit(kube: KubeReader, scope: Scope) -> FunctionalObservation:
    """Return the pods of check `sharing-limit` with their reports."""
    space = str(scope.arguments.get("namespace", CHECK_NAMESPACE))
    return FunctionalObservation(pods=probe_checks.read(kube, "sharing-limit", space))


def functional(kube: KubeReader, scope: Scope) -> FunctionalObservation:
    """Return the pods of check `sharing` with their reports."""
    return FunctionalObservation(pods=probe_checks.read(kube, "sharing", str(scope.arguments.get("namespace", CHECK_NAMESPACE))))


def _policy(kube: KubeReader) -> SharingRoot | None:
    for kind, path in (
        ("ClusterPolicy", "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"),
        ("GPUCluster", "/apis/nvidia.com/v1alpha1/gpuclusters/gpu-cluster"),
    ):
        root = kube.get(path, _Root)
        if root is not None:
            return _root(kind, root)
    return None


def _root(kind: str, root: _Root) -> SharingRoot:
    ready, error = root.status.of_type("Ready"), root.status.of_type("Error")
    plugin = root.spec.device_plugin
    return SharingRoot(
        kind=kind,
        ready=ready.status == "True",
        reason=ready.reason,
        error=f"{error.reason}: {error.message}"[:500] if error.status == "True" else "",
        config=plugin.config.name if plugin.config else "",
        default=plugin.config.default if plugin.config else "",
        mig_strategy=root.spec.mig.strategy,
        device_plugin=plugin.enabled and kind == "ClusterPolicy",
    )


def _stale(kube: KubeReader, meta: ManagedMeta) -> tuple[str, ...]:
    """Return the names of device plugin pods that started before their ConfigMap was last written."""
    # a change of labels needs no restart, so only writes of `data` count
    written = [entry.time for entry in meta.managed_fields if entry.time and "f:data" in entry.fields_v1]
    changed = max(written, default=meta.creation_timestamp)
    if changed is None:
        return ()
    pods = probe_workloads.pods(kube, OPERATOR, f"app={PLUGIN}")
    old = [pod.metadata.name for pod in pods if pod.status.start_time and pod.status.start_time < changed]
    return tuple(old[:MOST_STALE])


def _node(node: kube_objects.Node, devices: tuple[probe_devices.Device, ...] | None, errors: tuple[ToolError, ...]) -> SharedNode:
    return SharedNode(
        name=node.metadata.name,
        capacity=_nvidia(node.status.capacity),
        allocatable=_nvidia(node.status.allocatable),
        labels={key: node.metadata.labels[key] for key in LABELS if key in node.metadata.labels},
        devices=None if devices is None else len(devices),
        drivers=probe_devices.driver_versions(devices or ()),
        tainted=probe_devices.tainted(devices or ()),
        mig_errors=errors,
    )


def _nvidia(resources: dict[str, str]) -> dict[str, int]:
    """Return GPU resources only: SR-IOV devices may share the prefix `nvidia.com/`. Unreadable quantities are left out."""
    named = {key: whole_number(text) for key, text in resources.items() if key == "nvidia.com/gpu" or key.startswith(_PREFIXES)}
    return {key: count for key, count in sorted(named.items()) if count is not None}


_PREFIXES = ("nvidia.com/gpu.", "nvidia.com/mig-")
