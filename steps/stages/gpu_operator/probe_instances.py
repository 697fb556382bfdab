"""Finds GPU Operators and GPU device plugins that run in a cluster, whoever installed them and whatever their objects are called.

An operator is known by its image. A device plugin is known by its image, or by mounting the kubelet's folder of device plugins with
a GPU named in its image, arguments or environment. Images: https://github.com/NVIDIA/gpu-operator (deployments/gpu-operator),
https://github.com/NVIDIA/k8s-device-plugin, https://github.com/Project-HAMi/HAMi, https://github.com/AliyunContainerService/gpushare-device-plugin,
https://github.com/volcano-sh/devices, https://github.com/run-ai/fake-gpu-operator
"""

import re
from collections.abc import Iterator

from steps.stages.gpu_operator.contract import PartInstance, PartKind
from steps.stages.shared import probe_charts
from steps.stages.shared.kube_objects import ContainerProgram, ImagePodSpec, ObjectMeta, PluginPodSpec, WorkloadObject
from steps.stages.shared.kube_reader import KubeReader

_OPERATOR = re.compile(r"(?:^|/)gpu-operator(?=[:@]|$)")
_DEVICE_PLUGIN = re.compile(
    r"(?:^|/)(?:k8s-device-plugin|(?:[\w.-]+-)?gpu-device-plugin|nvidia-(?:[\w.-]+-)?device-plugin|(?:k8s-)?gpushare-(?:device-)?plugin"
    r"|volcano-(?:vgpu-)?device-plugin|hami|fake-gpu-operator/device-plugin)(?=[:@]|$)"
)
_OTHER_PROGRAMS = re.compile(r"gpu-feature-discovery|mps-control-daemon|config-manager")
"""Programs of the device plugin's image that advertise nothing."""
_GPU = re.compile(r"nvidia\.com/|(?:^|[^a-z])gpu", re.IGNORECASE)
_NIC_PLUGIN = re.compile(r"rdma|sriov|infiniband")
"""Images of device plugins for network devices, whose resources may have the prefix nvidia.com too."""


def instances(kube: KubeReader) -> tuple[PartInstance, ...]:
    """Return the operators and device plugins of all namespaces, sorted by kind and name. Workloads scaled to 0 run nothing."""
    return tuple(sorted((*_operators(kube), *_device_plugins(kube)), key=lambda entry: (entry.kind, entry.name)))


def _operators(kube: KubeReader) -> Iterator[PartInstance]:
    # the operator's image also has its validator, but a DaemonSet runs that
    for workload in kube.list("/apis/apps/v1/deployments", WorkloadObject[ImagePodSpec]) or ():
        image = next((entry.image for entry in workload.pod.containers if _OPERATOR.search(entry.image)), "")
        # a mirror may have renamed the image, so our own operator is known by its release too
        own = workload.metadata.name == "gpu-operator" and bool(_release(workload.metadata))
        if (image or own) and workload.spec.replicas:
            yield _instance(PartKind.OPERATOR, workload.metadata, image)


def _device_plugins(kube: KubeReader) -> Iterator[PartInstance]:
    for workload in kube.list("/apis/apps/v1/daemonsets", WorkloadObject[PluginPodSpec]) or ():
        pod = workload.pod
        image = next((entry.image for entry in pod.containers if _is_plugin(entry, pod.registers)), "")
        own = workload.metadata.name == "nvidia-device-plugin-daemonset" and bool(_controller(workload.metadata))
        if image or own:
            yield _instance(PartKind.DEVICE_PLUGIN, workload.metadata, image)


def _is_plugin(container: ContainerProgram, mounts: bool) -> bool:
    if _OTHER_PROGRAMS.search(container.program):
        return False
    if _DEVICE_PLUGIN.search(container.image):
        return True
    words = " ".join((container.image, container.program, *container.settings))
    return mounts and not _NIC_PLUGIN.search(container.image) and _GPU.search(words) is not None


def _instance(kind: PartKind, meta: ObjectMeta, image: str) -> PartInstance:
    owner = _controller(meta) or _release(meta)
    return PartInstance(kind=kind, name=f"{meta.namespace}/{meta.name}", image=image, owner=owner)


def _controller(meta: ObjectMeta) -> str:
    """Return `KIND NAME` of the object that controls this one; empty if none does."""
    return next((f"{entry.kind} {entry.name}" for entry in meta.owner_references if entry.controller), "")


def _release(meta: ObjectMeta) -> str:
    """Return `NAMESPACE/RELEASE` of the chart that brought an object; empty if no mark of Helm or Argo CD tells."""
    name = probe_charts.release_of(meta)
    return f"{meta.namespace}/{name}" if name else ""
