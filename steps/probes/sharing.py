"""Reads how GPUs are shared: the operator's root object, the plugin's configurations, what nodes advertise, and the check."""

import datetime

from msgspec import Struct

from steps.contract.checks import CHECK_NAMESPACE
from steps.contract.stages.sharing import (
    ControlObservation,
    FunctionalObservation,
    Node,
    NodesObservation,
    Policy,
)
from steps.probes import charts, checks, sharing_devices, workloads
from steps.probes.conditions import Condition
from steps.probes.managed import Meta
from steps.probes.reader import KubeReader, Scope
from steps.probes.sharing_config import read_shares

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


class PluginConfig(Struct, frozen=True):
    """Which ConfigMap the device plugin reads."""

    name: str = ""
    default: str = ""


class DevicePlugin(Struct, frozen=True):
    """The device plugin's part of a ClusterPolicy."""

    enabled: bool = True
    config: PluginConfig | None = None


class Mig(Struct, frozen=True):
    """The MIG part of a ClusterPolicy."""

    strategy: str = ""


class RootSpec(Struct, frozen=True, rename="camel"):
    """Spec of a root object."""

    device_plugin: DevicePlugin = DevicePlugin()
    mig: Mig = Mig()


class Root(Struct, frozen=True):
    """A ClusterPolicy or GPUCluster."""

    metadata: Meta = Meta()
    spec: RootSpec = RootSpec()
    status: workloads.Conditions = workloads.Conditions()


class ConfigMap(Struct, frozen=True):
    """A ConfigMap."""

    metadata: Meta = Meta()
    data: dict[str, str] = {}


class Started(Struct, frozen=True, rename="camel"):
    """When a pod started."""

    start_time: datetime.datetime | None = None


class PluginPod(Struct, frozen=True):
    """A pod of the device plugin."""

    metadata: Meta = Meta()
    status: Started = Started()


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """What decides about sharing, in the operator's namespace and cluster-wide."""
    policy = _policy(kube)
    path = f"/api/v1/namespaces/{OPERATOR}/configmaps/{policy.config if policy else ''}"
    found = kube.get(path, ConfigMap) if policy and policy.config else None
    configs = {key: read_shares(text) for key, text in found.data.items()} if found else {}
    classes = kube.list("/apis/resource.k8s.io/v1/deviceclasses", charts.AnyObject)
    return ControlObservation(
        policy=policy,
        releases=charts.observe(kube, charts.scoped(scope)),
        root_app=charts.root(kube, scope),
        configs={key: shares for key, shares in configs.items() if shares} if found else None,
        unreadable=tuple(sorted(key for key, shares in configs.items() if shares is None)),
        stale=_stale(kube, found) if found else (),
        device_classes=None if classes is None else tuple(sorted(one.metadata.name for one in classes)),
        workloads=workloads.read(kube, OPERATOR, lambda _: True, ("DaemonSet",)),
        trouble=workloads.troubles(workloads.pods(kube, OPERATOR)),
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """What every expected node advertises."""
    wanted = frozenset(scope.nodes)
    pools = sharing_devices.by_node(kube)
    found = (node for node in workloads.nodes(kube) if node.metadata.name in wanted)
    return NodesObservation(nodes=tuple(_node(node, pools.get(node.metadata.name)) for node in found))


def functional(kube: KubeReader, scope: Scope) -> FunctionalObservation:
    """The pods of check `sharing`."""
    return FunctionalObservation(pods=checks.read(kube, "sharing", str(scope.arguments.get("namespace", CHECK_NAMESPACE))))


def _policy(kube: KubeReader) -> Policy | None:
    for kind, path in (
        ("ClusterPolicy", "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"),
        ("GPUCluster", "/apis/nvidia.com/v1alpha1/gpuclusters/gpu-cluster"),
    ):
        root = kube.get(path, Root)
        if root is not None:
            return _root(kind, root)
    return None


def _root(kind: str, root: Root) -> Policy:
    conditions = {entry.type: entry for entry in root.status.conditions}
    none = Condition()
    ready, error = conditions.get("Ready", none), conditions.get("Error", none)
    plugin = root.spec.device_plugin
    return Policy(
        kind=kind,
        ready=ready.status == "True",
        reason=ready.reason,
        error=f"{error.reason}: {error.message}"[:500] if error.status == "True" else "",
        config=plugin.config.name if plugin.config else "",
        default=plugin.config.default if plugin.config else "",
        mig_strategy=root.spec.mig.strategy,
        device_plugin=plugin.enabled and kind == "ClusterPolicy",
    )


def _stale(kube: KubeReader, found: ConfigMap) -> tuple[str, ...]:
    """Plugin pods that started before the ConfigMap was last written."""
    meta = found.metadata
    written = [entry.time for entry in meta.managed_fields if entry.time and "f:data" in entry.fields_v1]
    changed = max(written, default=meta.creation_timestamp)
    if changed is None:
        return ()
    pods = kube.list(f"/api/v1/namespaces/{OPERATOR}/pods", PluginPod, labels=f"app={PLUGIN}") or ()
    old = [pod.metadata.name for pod in pods if pod.status.start_time and pod.status.start_time < changed]
    return tuple(sorted(old)[:MOST_STALE])


def _node(node: workloads.Node, devices: tuple[sharing_devices.Device, ...] | None) -> Node:
    return Node(
        name=node.metadata.name,
        capacity=_nvidia(node.status.capacity),
        allocatable=_nvidia(node.status.allocatable),
        labels={key: node.metadata.labels[key] for key in LABELS if key in node.metadata.labels},
        devices=None if devices is None else len(devices),
        drivers=sharing_devices.driver_versions(devices or ()),
    )


def _nvidia(resources: dict[str, str]) -> dict[str, int]:
    """GPU resources alone: SR-IOV devices may share the prefix `nvidia.com/`; quantities that cannot be read are left out."""
    named = {key: workloads.whole(text) for key, text in resources.items() if key == "nvidia.com/gpu" or key.startswith(_PREFIXES)}
    return {key: count for key, count in sorted(named.items()) if count is not None}


_PREFIXES = ("nvidia.com/gpu.", "nvidia.com/mig-")
