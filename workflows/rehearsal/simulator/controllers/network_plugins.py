"""The DaemonSets of network plugins: a node becomes Ready with that of its main plugin, and their pods are never sampled."""

from __future__ import annotations

from collections.abc import Iterable

CNI = {
    "canal": ("kube-system", "rke2-canal", "canal"),
    "cilium": ("kube-system", "cilium", "cilium"),
    "calico": ("calico-system", "calico-node", "calico-node"),
    "flannel": ("kube-system", "kube-flannel-ds", "flannel"),
    "multus": ("kube-system", "rke2-multus", "rke2-multus"),
}
"""Namespace, name and label `k8s-app` of each network plugin's DaemonSet, by plugin."""


def network_daemon_set(cni: Iterable[str]) -> tuple[str, str]:
    """Return namespace and name of the DaemonSet of the main network plugin, without which no node becomes Ready."""
    plugin = next((name for name in cni if name != "multus"), "canal")
    namespace, name, _ = CNI[plugin]
    return namespace, name
