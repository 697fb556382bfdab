"""Multus, Network Operators and device plugins for NICs are found by their images, in any namespace and under any name."""

from typing import Any

import msgspec
import pytest

from steps.stages.network_operator import probe_nic_parts
from steps.stages.shared.kube_objects import DeployedWorkload

NAMESPACE = "nvidia-network-operator"


class Lists:
    """A KubeReader with fixed lists by path; lists that it does not have are empty."""

    def __init__(self, **lists: list[Any]) -> None:
        self._lists = lists

    def list(self, path: str, kind: type) -> list[Any]:
        return [msgspec.convert(item, kind) for item in self._lists.get(path.rpartition("/")[2], [])]


def workload(place: str, image: str, **meta: Any) -> dict[str, Any]:
    namespace, _, name = place.partition("/")
    pod = {"spec": {"containers": [{"image": image}]}}
    return {"metadata": {"namespace": namespace, "name": name, **meta}, "spec": {"template": pod}}


@pytest.mark.parametrize(
    ("image", "multus"),
    [
        ("ghcr.io/k8snetworkplumbingwg/multus-cni:v4.2.2-thick", True),
        ("rancher/hardened-multus-cni:v4.2.1-build20250627", True),
        ("nvcr.io/nvidia/mellanox/multus-cni@sha256:0a", True),
        ("registry.local:5000/team/multus", True),
        ("ghcr.io/k8snetworkplumbingwg/multus-networkpolicy-iptables:v1", False),
        ("ghcr.io/k8snetworkplumbingwg/multus-dynamic-networks-controller:latest", False),
        ("rancher/hardened-whereabouts:v0.9", False),
    ],
)
def test_multus_is_known_by_its_image(image: str, multus: bool) -> None:
    assert probe_nic_parts.is_multus(msgspec.convert(workload("a/agent", image), DeployedWorkload)) is multus


def test_multus_is_known_by_its_name_too() -> None:
    assert probe_nic_parts.is_multus(msgspec.convert(workload("kube-system/kube-multus-ds", "mirror/cni:1"), DeployedWorkload))


def test_what_the_platform_brought_is_no_other_instance() -> None:
    policy = [{"kind": "NicClusterPolicy", "name": "nic-cluster-policy", "controller": True}]
    kube = Lists(
        daemonsets=[
            workload(
                f"{NAMESPACE}/rdma-shared-dp-ds", "nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin:1", ownerReferences=policy
            ),
            workload(f"{NAMESPACE}/sriov-device-plugin", "ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:1"),
        ],
        deployments=[
            workload(
                f"{NAMESPACE}/network-operator",
                "nvcr.io/nvidia/cloud-native/network-operator:v26.4.1",
                annotations={"meta.helm.sh/release-name": "network-operator"},
            ),
            workload("openshift-network-operator/network-operator", "quay.io/openshift/origin-cluster-network-operator:1"),
        ],
    )
    assert probe_nic_parts.others(kube, NAMESPACE, "network-operator", "rdma_shared_device_a") == ()


def test_others_are_found_in_any_namespace_and_under_any_name() -> None:
    kube = Lists(
        daemonsets=[
            workload(f"{NAMESPACE}/by-hand", "mellanox/k8s-rdma-shared-dev-plugin:v1.5.2"),
            workload("kube-system/vf-resources", "ghcr.io/k8snetworkplumbingwg/sriov-network-device-plugin:v3.9"),
        ],
        deployments=[workload("mellanox/controller", "nvcr.io/nvidia/cloud-native/network-operator:v25.7.0")],
    )
    found = [
        (entry.part, entry.name) for entry in probe_nic_parts.others(kube, NAMESPACE, "network-operator", "rdma_shared_device_a")
    ]
    assert found == [
        ("Network Operator", "mellanox/controller"),
        ("device plugin for NICs", "kube-system/vf-resources"),
        ("device plugin for NICs", f"{NAMESPACE}/by-hand"),
    ]


def test_another_release_in_the_operators_namespace_is_not_the_platforms() -> None:
    """Another chart brought them; of two plugins from a mirror only mounts and words tell."""

    def owned(release: str) -> dict[str, Any]:
        return {"annotations": {"meta.helm.sh/release-name": release}}

    def registering(place: str, image: str, **volume: Any) -> dict[str, Any]:
        plugin = workload(place, image)
        folder = {"name": "plugins", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}
        plugin["spec"]["template"]["spec"]["volumes"] = [folder, volume] if volume else [folder]
        return plugin

    kube = Lists(
        daemonsets=[
            workload(f"{NAMESPACE}/rdma2", "mellanox/k8s-rdma-shared-dev-plugin:v1.5.2", **owned("rdma2")),
            registering("site/agent", "mirror/site/dp:1", name="config", configMap={"name": "rdma-devices"}),
            registering("site/rdma-dp", "mirror/site/dp:1"),
            registering("site/fpga", "mirror/site/fpga-plugin:1"),
            registering("gpu-operator/plugin", "nvcr.io/nvidia/k8s-device-plugin:v1", name="rdma"),
        ],
        deployments=[workload(f"{NAMESPACE}/second", "nvcr.io/nvidia/cloud-native/network-operator:v25.7.0", **owned("second"))],
    )
    entries = probe_nic_parts.others(kube, NAMESPACE, "network-operator", "rdma_shared_device_a")
    assert [(entry.name, entry.owner) for entry in entries] == [
        (f"{NAMESPACE}/second", "release second"),
        (f"{NAMESPACE}/rdma2", "release rdma2"),
        ("site/agent", ""),
        ("site/rdma-dp", ""),
    ]
