"""Settings of other projects that a spec has too: of Kubespray, k3s-ansible, RKE2 roles and StackHPC's slurm-appliance.

Networks are converted. Others are decisions that bringup takes differently, so a note says with which key of a spec.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

PODS, SERVICES, PLUGIN = "kube_pods_subnet", "kube_service_addresses", "kube_network_plugin"
"""Kubespray's variables for the networks of pods and services, and for the network plugin."""
PLUGINS = ("canal", "calico", "cilium", "flannel")
"""Network plugins that RKE2 and a spec have, without Multus, which is an addition to one of them."""
_VERSION = "RKE2 brings its own Kubernetes; to have this minor version, write rke2: {version: …} with a release of it"
_ARGUMENTS = "write what your site needs of them as rke2: {kubelet_args: …}, or as another key of section rke2"
_TOKEN = "not read: each cluster gets a join token of its own"
_PARTITIONS = "write them as slurm: {partitions: …}"
_GPUS = "write accelerator: {product: H200, per_node: 8} and gpu: true for the groups with GPUs"
ELSEWHERE = {
    "kube_version": _VERSION,
    "k3s_version": _VERSION,
    "rke2_version": "write it as rke2: {version: …}, if the catalog knows the release",
    "token": _TOKEN,
    "k3s_token": _TOKEN,
    "rke2_token": _TOKEN,
    "extra_server_args": _ARGUMENTS,
    "extra_agent_args": _ARGUMENTS,
    "k3s_install_opts": _ARGUMENTS,
    "rke2_server_options": _ARGUMENTS,
    "rke2_agent_options": _ARGUMENTS,
    "upstream_dns_servers": "write it as os: {dns: {servers: […]}}",
    "nameservers": "write it as os: {dns: {servers: […]}}",
    "searchdomains": "write it as os: {dns: {search: […]}}",
    "ntp_servers": "write it as os: {time_servers: […]}",
    "nvidia_accelerator_enabled": _GPUS,
    "nvidia_gpu_nodes": _GPUS,
    "openhpc_slurm_partitions": _PARTITIONS,
    "openhpc_partitions": _PARTITIONS,
    "openhpc_nodegroups": _PARTITIONS,
    "openhpc_cluster_name": "write it as name: of the spec; Slurm's cluster gets that name",
    "registry_mirrors": "write it as rke2: {registries: …}",
    "containerd_registries_mirrors": "write it as rke2: {registries: …}",
    "files_repo": "for a site without internet, write section airgap",
}
"""Variable → what a user does instead. Values are not shown: arguments and registries may hold passwords."""


def convert_networks(variables: Mapping[str, Any], nodes: int) -> tuple[dict[str, Any], list[str]]:
    """Return keys of section `rke2` for Kubespray's networks and network plugin, and notes about those that a spec cannot have.

    `variables` are those of a server. The pods' network must have room for a /24 for each of `nodes`.
    """
    settings: dict[str, Any] = {}
    notes: list[str] = []
    for name, key in ((PODS, "cluster_cidr"), (SERVICES, "service_cidr")):
        network = _network(variables.get(name))
        if network is None:
            notes += [f"{name}: it is no IPv4 network, so rke2.{key} keeps its default"] if name in variables else []
        elif name == PODS and (network.prefixlen > 24 or 1 << (24 - network.prefixlen) < nodes):
            notes.append(f"{name}: {network} has no room for a /24 for each of {nodes} nodes, so rke2.{key} keeps its default")
        else:
            settings[key] = str(network)
    plugin = variables.get(PLUGIN)
    if plugin is not None:
        if plugin in PLUGINS:
            settings["cni"] = [plugin]
        else:
            notes.append(f"{PLUGIN}: RKE2 has {', '.join(PLUGINS)} only, so rke2.cni keeps its default")
    return settings, notes


def _network(value: object) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(value) if isinstance(value, str) else None
    except ValueError:
        return None


def notes_on(names: Sequence[str]) -> list[str]:
    """Return a note for each of these variables that a spec expresses in another way, those with the same advice together."""
    advised: dict[str, list[str]] = {}
    for name in names:
        if name in ELSEWHERE:
            advised.setdefault(ELSEWHERE[name], []).append(name)
    return [f"variable{'s' if len(same) > 1 else ''} {', '.join(same)}: {advice}" for advice, same in advised.items()]
