"""Finds Multus, Network Operators and device plugins for NICs in a cluster, whoever installed them and whatever they are called.

They are known by their images. Sources: https://github.com/k8snetworkplumbingwg/multus-cni, https://docs.rke2.io/networking/multus_sriov,
https://github.com/Mellanox/network-operator, https://github.com/Mellanox/k8s-rdma-shared-dev-plugin,
https://github.com/k8snetworkplumbingwg/sriov-network-device-plugin
"""

import re
from collections.abc import Iterator

from steps.stages.network_operator.contract import OtherInstance
from steps.stages.shared import probe_charts
from steps.stages.shared.kube_reader import KubeReader
from steps.stages.shared.probe_workloads import ObjectMeta, Raw

_MULTUS = re.compile(r"(?:^|/)(?:[\w.]+-)*multus(?:-cni|-thick|-daemon)?(?=[:@]|$)")
"""Images of Multus: `multus-cni`, RKE2's `hardened-multus-cni`. Its helpers, such as `multus-networkpolicy`, have other endings."""
_MULTUS_NAMES = ("kube-multus-ds", "rke2-multus", "multus")
_OPERATOR = re.compile(r"(?:^|/)network-operator(?=[:@]|$)")
_DEVICE_PLUGIN = re.compile(r"(?:^|/)(?:[\w.]+-)*(?:rdma-shared-de?v(?:ice)?-plugin|sriov-network-device-plugin)(?=[:@]|$)")

_OWN_NAMES = ("network-operator-sriov-device-plugin", "sriov-device-plugin", "rdma-shared-dp-ds")
"""Names of the DaemonSets that the operator's controllers make, also where nothing tells their owner."""


def is_multus(raw: Raw) -> bool:
    """Return True for the DaemonSet of Multus itself, by its image or its name.

    The `whereabouts` and DHCP helpers that its charts also bring have other images.
    """
    name = raw.metadata.name
    named = name in _MULTUS_NAMES or name.endswith("-multus-ds")
    return named or any(_MULTUS.search(entry.image) for entry in raw.spec.template.spec.containers)


def others(kube: KubeReader, namespace: str) -> tuple[OtherInstance, ...]:
    """Return Network Operators and device plugins for NICs that the Network Operator of `namespace` did not bring, sorted by name.

    What runs in its namespace is its own if a controller or a chart brought it, or by its name. Workloads scaled to 0 run nothing.
    """
    return tuple(sorted(_others(kube, namespace), key=lambda entry: (entry.part, entry.name)))


def _others(kube: KubeReader, namespace: str) -> Iterator[OtherInstance]:
    kinds = (("deployments", _OPERATOR, "Network Operator"), ("daemonsets", _DEVICE_PLUGIN, "device plugin for NICs"))
    for resource, pattern, part in kinds:
        for raw in kube.list(f"/apis/apps/v1/{resource}", Raw) or ():
            image = next((entry.image for entry in raw.spec.template.spec.containers if pattern.search(entry.image)), "")
            owner = _owner(raw.metadata)
            own = raw.metadata.namespace == namespace and bool(owner or raw.metadata.name in _OWN_NAMES)
            if image and raw.spec.replicas and not own:
                yield OtherInstance(part=part, name=f"{raw.metadata.namespace}/{raw.metadata.name}", image=image, owner=owner)


def _owner(meta: ObjectMeta) -> str:
    """Return `KIND NAME` of an object's controller, or `release NAME` of the chart that brought it; empty if nothing tells."""
    controller = next((f"{entry.kind} {entry.name}" for entry in meta.owner_references if entry.controller), "")
    release = probe_charts.release_of(meta)
    return controller or (f"release {release}" if release else "")
