"""Settings of other projects that a spec has too: of Kubespray, k3s-ansible, RKE2 roles and StackHPC's slurm-appliance.

Networks are converted. Others are decisions that bringup takes differently, so a note says with which key of a spec.
"""

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any

_GRES, _NAME = re.compile(r"gpu(:[A-Za-z0-9_.-]{1,40}){1,2}"), re.compile(r"[A-Za-z0-9_-]{1,63}")
PODS, SERVICES, PLUGIN = "kube_pods_subnet", "kube_service_addresses", "kube_network_plugin"
"""Kubespray's variables for the networks of pods and services, and for the network plugin."""
PLUGINS = ("canal", "calico", "cilium", "flannel")
"""Network plugins that RKE2 and a spec have, without Multus, which is an addition to one of them."""
_VERSION = "RKE2 brings its own Kubernetes; to have this minor version, write rke2: {version: …} with a release of it"
_ARGUMENTS = "write what your site needs of them as rke2: {kubelet_args: …}, or as another key of section rke2"
_TOKEN = "not read: each cluster gets a join token of its own"
_PARTITIONS = "write them as slurm: {partitions: …}"
_GPUS = "write accelerator: {product: H200, per_node: 8} and gpu: true for the groups with GPUs"
_MINE = "a spec has no place for it: RKE2 decides it, as its documentation says"
_ETCD = "RKE2 runs etcd on its servers, and makes its certificates and members itself"
_NO_DOMAIN = "clusters of bringup have the domain cluster.local, which its checks look up"
_SLURM_FILES = "write what your site needs of it as overrides of Slurm's chart, or as keys of section slurm"
SANS = ("supplementary_addresses_in_ssl_keys", "opt_tls_san", "rke2_additional_sans")
"""Variables with further names and addresses of the API server's certificate."""
MOST_SANS = 50
ELSEWHERE = {
    "kubelet_max_pods": "write it as rke2: {kubelet_args: {max-pods: …}}",
    "kube_network_node_prefix": "RKE2 gives each node a /24 of rke2.cluster_cidr",
    "kube_encrypt_secret_data": "RKE2 encrypts Secrets in etcd by default",
    "container_manager": "RKE2 brings its own containerd",
    "containerd_version": "RKE2 brings its own containerd",
    "kube_proxy_mode": _MINE,
    "kube_read_only_port": _MINE,
    "kube_apiserver_port": _MINE,
    "enable_nodelocaldns": "write it as overrides of RKE2's chart rke2-coredns, outside of bringup",
    "cluster_name": _NO_DOMAIN,
    "dns_domain": _NO_DOMAIN,
    "etcd_deployment_type": _ETCD,
    "etcd_member_name": _ETCD,
    "etcd_data_dir": _ETCD,
    "cloud_provider": "bringup starts from machines that it reaches over SSH, and installs no cloud provider",
    "metallb_enabled": "bringup installs no load balancer; the site's own may hold rke2.registration_address",
    "ingress_nginx_enabled": "write it as rke2: {ingress_controller: ingress-nginx}",
    "cert_manager_enabled": "write it as base_services: {cert_manager: true}",
    "local_path_provisioner_enabled": "write it as base_services: {storage: {provisioner: local_path}}",
    "ntp_enabled": "write its servers as os: {time_servers: […]}",
    "server_config_yaml": _ARGUMENTS,
    "cluster_rke2_config": _ARGUMENTS,
    "group_rke2_config": _ARGUMENTS,
    "host_rke2_config": _ARGUMENTS,
    "rke2_config": _ARGUMENTS,
    "rke2_cni": "write it as rke2: {cni: …}",
    "airgap_dir": "for a site without internet, write section airgap",
    "rke2_airgap_mode": "for a site without internet, write section airgap",
    "nfs_configurations": "write the export of /home as slurm: {home: {server: …, path: …}}",
    "openhpc_config": _SLURM_FILES,
    "openhpc_config_extra": _SLURM_FILES,
    "openhpc_slurmdbd_host": "write the database as slurm: {accounting: …}",
    "openhpc_slurmdbd_mysql_database": "write the database as slurm: {accounting: …}",
    "openhpc_enable": "Slurm runs in pods: slurm: {kind: slinky}",
    "basic_users_users": "bringup makes no users of Slurm; accounts of admins are os: {users: …}, others come from your directory",
    "cuda_nvidia_driver_version": "write it as accelerator: {driver_version: …}",
    "doca_version": "write which NIC driver the hosts have as fabric: {driver: …}",
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


def further_names(variables: Mapping[str, Any], form: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Return the further names of the API server's certificate as `rke2.tls_san`, and notes about those of no such form."""
    written = [entry for name in SANS for entry in _listed(variables.get(name))]
    names = [entry for entry in written if isinstance(entry, str) and form.fullmatch(entry)][:MOST_SANS]
    lost = len(written) - len(names)
    shown = ", ".join(name for name in SANS if variables.get(name))
    return list(dict.fromkeys(names)), [
        f"{shown}: {lost} of {len(written)} are no names or addresses, and were left out"
    ] if lost else []


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [] if value in (None, "") else [value]


def gpus_of_slurm(variables: Mapping[str, Any]) -> list[str]:
    """Return what slurm-appliance's groups of nodes say of GPUs, as `GROUP: gpu:h200:8`."""
    groups = [group for name in ("openhpc_nodegroups", "openhpc_slurm_partitions") for group in _listed(variables.get(name))]
    gpus = []
    for group in groups:
        name, entries = (group.get("name"), _listed(group.get("gres"))) if isinstance(group, Mapping) else ("", [])
        for entry in entries:
            conf = entry.get("conf") if isinstance(entry, Mapping) else entry
            if isinstance(conf, str) and isinstance(name, str) and _GRES.fullmatch(conf) and _NAME.fullmatch(name):
                gpus.append(f"{name}: {conf}")
    return list(dict.fromkeys(gpus))[:20]


def notes_on(names: Sequence[str]) -> list[str]:
    """Return a note for each of these variables that a spec expresses in another way, those with the same advice together."""
    advised: dict[str, list[str]] = {}
    for name in names:
        if name in ELSEWHERE:
            advised.setdefault(ELSEWHERE[name], []).append(name)
    return [f"variable{'s' if len(same) > 1 else ''} {', '.join(same)}: {advice}" for advice, same in advised.items()]
