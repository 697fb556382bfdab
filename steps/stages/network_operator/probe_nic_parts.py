"""Finds Multus, Network Operators and device plugins for NICs in a cluster, whoever installed them and whatever they are called.

They are known by their images. A device plugin from a mirror that renamed it is known by mounting the kubelet's folder of device
plugins, with a word for such devices in its names, arguments or environment. Sources:
https://github.com/k8snetworkplumbingwg/multus-cni, https://docs.rke2.io/networking/multus_sriov,
https://github.com/Mellanox/network-operator, https://github.com/Mellanox/k8s-rdma-shared-dev-plugin,
https://github.com/k8snetworkplumbingwg/sriov-network-device-plugin
"""

import re
from collections.abc import Iterator

from steps.stages.network_operator.contract import OtherInstance
from steps.stages.shared import probe_charts
from steps.stages.shared.kube_objects import DeployedWorkload, ImagePodSpec, ObjectMeta, PluginPodSpec, WorkloadObject
from steps.stages.shared.kube_reader import KubeReader

_MULTUS = re.compile(r"(?:^|/)(?:[\w.]+-)*multus(?:-cni|-thick|-daemon)?(?=[:@]|$)")
"""Images of Multus: `multus-cni`, RKE2's `hardened-multus-cni`. Its helpers, such as `multus-networkpolicy`, have other endings."""
_MULTUS_NAMES = ("kube-multus-ds", "rke2-multus", "multus")
_OPERATOR = re.compile(r"(?:^|/)network-operator(?=[:@]|$)")
_DEVICE_PLUGIN = re.compile(r"(?:^|/)(?:[\w.]+-)*(?:rdma-shared-de?v(?:ice)?-plugin|sriov-network-device-plugin)(?=[:@]|$)")

_NIC_WORD = re.compile(r"(?:^|[^a-z])(?:rdma|sriov|infiniband|roce|hca|mlx)", re.IGNORECASE)
_GPU_PLUGIN = re.compile(r"(?:gpu|nvidia)[\w.-]*device-plugin|(?:^|/)k8s-device-plugin", re.IGNORECASE)
"""Images of device plugins for GPUs, whose arguments may speak of RDMA."""
_OWN_NAMES = ("network-operator-sriov-device-plugin", "sriov-device-plugin", "rdma-shared-dp-ds")
"""Names of the DaemonSets that the operator's controllers make, also where nothing tells their owner."""
_OWN_KINDS = ("NicClusterPolicy", "SriovOperatorConfig", "SriovNetworkNodePolicy")
"""Kinds whose controllers make device plugins for the operator."""


def is_multus(raw: DeployedWorkload) -> bool:
    """Return True for the DaemonSet of Multus itself, by its image or its name.

    The `whereabouts` and DHCP helpers that its charts also bring have other images.
    """
    name = raw.metadata.name
    named = name in _MULTUS_NAMES or name.endswith("-multus-ds")
    return named or any(_MULTUS.search(entry.image) for entry in raw.pod.containers)


def others(kube: KubeReader, namespace: str, release: str, resource: str = "") -> tuple[OtherInstance, ...]:
    """Return Network Operators and device plugins for NICs that this platform's release did not bring, sorted by part and name.

    What runs in the operator's namespace is its own only if its chart is `release`, or if a controller of the operator made it.
    `resource` is the RDMA resource of the plan, which another plugin may name. Workloads scaled to 0 run nothing.
    """
    entries = (*_operators(kube, namespace, release), *_device_plugins(kube, namespace, release, resource))
    return tuple(sorted(entries, key=lambda entry: (entry.part, entry.name)))


def _operators(kube: KubeReader, namespace: str, release: str) -> Iterator[OtherInstance]:
    for raw in kube.list("/apis/apps/v1/deployments", WorkloadObject[ImagePodSpec]) or ():
        image = next((entry.image for entry in raw.pod.containers if _OPERATOR.search(entry.image)), "")
        own = raw.metadata.namespace == namespace and _owner(raw.metadata) == f"release {release}"
        if image and raw.spec.replicas and not own:
            yield _instance("Network Operator", raw.metadata, image)


def _device_plugins(kube: KubeReader, namespace: str, release: str, resource: str) -> Iterator[OtherInstance]:
    for raw in kube.list("/apis/apps/v1/daemonsets", WorkloadObject[PluginPodSpec]) or ():
        image = _plugin_image(raw, resource)
        if image and not (raw.metadata.namespace == namespace and _is_of_operator(raw.metadata, release)):
            yield _instance("device plugin for NICs", raw.metadata, image)


def _plugin_image(raw: WorkloadObject[PluginPodSpec], resource: str) -> str:
    """Return the image of a device plugin for NICs; empty if the workload is none."""
    pod = raw.pod
    if known := next((entry.image for entry in pod.containers if _DEVICE_PLUGIN.search(entry.image)), ""):
        return known
    images = [entry.image for entry in pod.containers if not _GPU_PLUGIN.search(entry.image)]
    if not pod.registers or not images:
        return ""
    words = (raw.metadata.name, *_words(pod))
    return images[0] if any(_NIC_WORD.search(word) or (resource and resource in word) for word in words) else ""


def _words(pod: PluginPodSpec) -> Iterator[str]:
    """Yield each name, argument and variable of a pod."""
    for container in pod.containers:
        yield from (container.name, container.image, *container.command, *container.args, *container.settings)
    for volume in pod.volumes:
        yield from (volume.name, volume.config_map.name if volume.config_map else "")


def _is_of_operator(meta: ObjectMeta, release: str) -> bool:
    owner = _owner(meta)
    if not owner:
        return meta.name in _OWN_NAMES
    return owner == f"release {release}" or owner.partition(" ")[0] in _OWN_KINDS


def _instance(part: str, meta: ObjectMeta, image: str) -> OtherInstance:
    return OtherInstance(part=part, name=f"{meta.namespace}/{meta.name}", image=image, owner=_owner(meta))


def _owner(meta: ObjectMeta) -> str:
    """Return `KIND NAME` of an object's controller, or `release NAME` of the chart that brought it; empty if nothing tells."""
    controller = next((f"{entry.kind} {entry.name}" for entry in meta.owner_references if entry.controller), "")
    release = probe_charts.release_of(meta)
    return controller or (f"release {release}" if release else "")
