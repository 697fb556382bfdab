"""Rules about the networks of a spec: P25 (they stand apart), P26 (they are large enough), P39 (an MTU reaches an interface).

P40 is about keys of the section fabric that nothing reads, or that contradict each other.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from steps.contract.plain_text import count
from workflows.spec.cluster_spec import ClusterSpec, max_pods
from workflows.spec.compat.rule_table import Platform, RuleFinding, rule
from workflows.spec.fields import is_address
from workflows.spec.sections.platform import Fabric

IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

_NODE_PREFIX = 24
"""Prefix of the pod network of one node, the default of Kubernetes that RKE2 keeps (flag node-cidr-mask-size)."""
_LARGEST_SERVICES, _SMALLEST_SERVICES = 12, 28
"""The API server refuses a Service network above /12, and RKE2 gives its tenth address to the cluster's DNS."""
_LARGEST_PODS = 8
"""The controller manager hands out at most 2^16 node networks: /8 for a /24 each."""
_POD_ADDRESSES = 254
_UNUSABLE = tuple(map(ipaddress.ip_network, ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "::1/128", "fe80::/10")))
"""Networks that no machine routes: this host, loopback, link-local, multicast and reserved ones."""


@dataclass(frozen=True, slots=True)
class _Reserved:
    """A network from which the cluster itself hands out addresses; `gives` says to whom."""

    path: str
    name: str
    gives: str
    network: IpNetwork


@dataclass(frozen=True, slots=True)
class _Used:
    """An address of a spec that machines or pods reach: who has it, and the key that gives it."""

    path: str
    name: str
    text: str


def _reserved(platform: Platform) -> list[_Reserved]:
    return list(platform.parts(_of_cluster(platform.spec), _of_pool(platform.spec)))


def _of_cluster(spec: ClusterSpec) -> Iterator[_Reserved]:
    rke2 = spec.rke2
    yield _Reserved("rke2.cluster_cidr", "the pod network", "pods", ipaddress.ip_network(rke2.cluster_cidr))
    yield _Reserved("rke2.service_cidr", "the Service network", "Services", ipaddress.ip_network(rke2.service_cidr))


def _of_pool(spec: ClusterSpec) -> Iterator[_Reserved]:
    pool = spec.fabric.ip_pool
    if spec.fabric.has_network and pool is not None:
        network = ipaddress.ip_network(pool.subnet)
        yield _Reserved("fabric.ip_pool.subnet", "the pods' address pool on the fabric", "pods", network)


@rule("P25", "error", source="https://docs.rke2.io/networking/basic_network_options")
def networks_stand_apart(platform: Platform) -> Iterator[RuleFinding]:
    """No address or network of the site lies in a network of pods, Services or the fabric's pool, and these do not overlap."""
    spec = platform.spec
    reserved = _reserved(platform)
    yield from platform.parts(
        _apart(reserved),
        _outside(platform, reserved),
        _of_routes(spec, reserved),
        _of_firewall(spec, reserved),
        _wrong_resolvers(spec),
        _wrong_registration(spec),
    )


def _outside(platform: Platform, reserved: list[_Reserved]) -> Iterator[RuleFinding]:
    reported: set[tuple[str, str]] = set()
    for used in _addresses(platform):
        if not is_address(used.text):
            continue
        address = ipaddress.ip_address(used.text)
        for network in (entry for entry in reserved if address in entry.network):
            if (used.path, network.path) not in reported and not _is_allowed(platform.spec, used, network):
                reported.add((used.path, network.path))
                problem = (
                    f"{used.name} ({address}) lies in {network.name} ({network.network}), so {network.gives} could have it too"
                )
                yield RuleFinding(used.path, problem, f"give another address, or move {network.path}")


def _apart(reserved: list[_Reserved]) -> Iterator[RuleFinding]:
    for index, network in enumerate(reserved):
        for other in reserved[:index]:
            # the loader itself compares the networks of pods and Services
            if network.path.startswith("fabric") and network.network.overlaps(other.network):
                problem = f"{network.network} overlaps {other.name} ({other.path}: {other.network})"
                yield RuleFinding(network.path, problem, "give the networks apart: routes of both would be on the same nodes")
        for unusable in _UNUSABLE:
            if network.network.overlaps(unusable):
                problem = f"{network.network} overlaps {unusable}, which no machine routes"
                yield RuleFinding(network.path, problem, "choose a private network, as in 10.42.0.0/16 or 172.20.0.0/16")
                break


def _is_allowed(spec: ClusterSpec, used: _Used, network: _Reserved) -> bool:
    """Return True for addresses that may lie in a network: a database that is a Service, and the pool's own gateway."""
    if used.path == "slurm.accounting.host" or network.path != "fabric.ip_pool.subnet":
        return used.path == "slurm.accounting.host" and network.path == "rke2.service_cidr"
    pool = spec.fabric.ip_pool
    return pool is not None and pool.gateway == used.text


def _addresses(platform: Platform) -> Iterator[_Used]:
    """Yield every address of a spec that machines, pods or the run itself must reach; names too, which the caller skips."""
    spec = platform.spec
    sections = (_of_hosts, _of_rke2, _of_os, _of_slurm, _of_proxy, _of_site_servers, _of_delivery, _on_the_way)
    yield from platform.parts(*(section(spec) for section in sections))


def _of_hosts(spec: ClusterSpec) -> Iterator[_Used]:
    yield from (_Used(f"hosts.{host.group}.addresses", host.name, host.address) for host in spec.machines)


def _of_rke2(spec: ClusterSpec) -> Iterator[_Used]:
    rke2 = spec.rke2
    if rke2.registration_address:
        yield _Used("rke2.registration_address", "the servers' common address", rke2.registration_address)
    if rke2.source:
        yield _Used("rke2.source", "a server of the site", _host(rke2.source))
    for name, entry in rke2.registries.items():
        yield from (_Used(f"rke2.registries.{name}.endpoints", "a server of the site", _host(url)) for url in entry.endpoints)
    if rke2.registry_mirror:
        yield _Used("rke2.registry_mirror", "the registry", _host(f"//{rke2.registry_mirror}"))


def _of_os(spec: ClusterSpec) -> Iterator[_Used]:
    dns = spec.os.dns.servers if spec.os.dns else ()
    yield from (_Used("os.dns.servers", "a DNS server", server) for server in dns)
    yield from (_Used("os.time_servers", "a time server", server) for server in spec.os.time_servers)
    yield from (_Used(f"os.routes[{index}].via", "a gateway", route.via or "") for index, route in enumerate(spec.os.routes))


def _of_slurm(spec: ClusterSpec) -> Iterator[_Used]:
    if spec.slurm.accounting:
        yield _Used("slurm.accounting.host", "the accounting database", spec.slurm.accounting.host)
    if spec.slurm.repo:
        yield _Used("slurm.repo", "a server of the site", _host(spec.slurm.repo))


def _of_proxy(spec: ClusterSpec) -> Iterator[_Used]:
    if spec.proxy:
        for path, url in (("proxy.http", spec.proxy.http), ("proxy.https", spec.proxy.https)):
            if url:
                yield _Used(path, "the proxy", _host(url))


def _of_site_servers(spec: ClusterSpec) -> Iterator[_Used]:
    if spec.airgap:
        yield _Used("airgap.charts", "a server of the site", _host(spec.airgap.charts or ""))
        yield _Used("airgap.registry", "the registry", _host(f"//{spec.airgap.registry or ''}"))


def _of_delivery(spec: ClusterSpec) -> Iterator[_Used]:
    if spec.delivery.argo_cd:
        yield _Used("delivery.argo_cd.repo", "a server of the site", _host(spec.delivery.argo_cd.repo))


def _on_the_way(spec: ClusterSpec) -> Iterator[_Used]:
    """Yield the jump hosts and SSH proxies: machines answer them by their own routes, as they answer everybody."""
    ssh = spec.ssh
    ways = {"ssh.jump_host": ssh.jump_host, "ssh.http_proxy": ssh.http_proxy}
    for name, group in spec.hosts.items():
        ways |= {f"hosts.{name}.jump_host": group.jump_host, f"hosts.{name}.http_proxy": group.http_proxy}
    for path, way in ways.items():
        for hop in (way or "").split(","):
            if hop:
                yield _Used(path, "the way to the machines", _host(hop if "://" in hop else f"//{hop}"))


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _of_routes(spec: ClusterSpec, reserved: list[_Reserved]) -> Iterator[RuleFinding]:
    for index, route in enumerate(spec.os.routes):
        to = ipaddress.ip_network(route.to)
        for network in (entry for entry in reserved if not entry.path.startswith("fabric")):
            # a wider route is no harm: the network plugin's own routes are narrower and win
            if _inside(to, network.network):
                problem = f"this route takes packets for {network.name} ({network.network}) out of the cluster"
                yield RuleFinding(f"os.routes[{index}].to", problem, f"route another network, or move {network.path}")


def _of_firewall(spec: ClusterSpec, reserved: list[_Reserved]) -> Iterator[RuleFinding]:
    for text in spec.os.firewall_networks:
        source, path = ipaddress.ip_network(text), "os.firewall_networks"
        for network in (entry for entry in reserved if not entry.path.startswith("fabric")):
            if _inside(source, network.network):
                problem = f"{source} lies in {network.name} ({network.network}): no machine has an address there"
                yield RuleFinding(path, problem, "name the networks of the machines only")
            elif source.prefixlen and _inside(network.network, source):
                problem = f"{source} holds {network.name} ({network.network}): every pod reaches kubelets, etcd and VXLAN"
                yield RuleFinding(path, problem, "name narrower networks, or move the pods' network out of it", "warning")


def _inside(inner: IpNetwork, outer: IpNetwork) -> bool:
    return inner.version == outer.version and inner.overlaps(outer) and inner.prefixlen >= outer.prefixlen


def _wrong_resolvers(spec: ClusterSpec) -> Iterator[RuleFinding]:
    """Yield DNS servers that are another machine on each machine."""
    for server in spec.os.dns.servers if spec.os.dns else ():
        address = ipaddress.ip_address(server)
        if address.is_loopback or address.is_link_local or address.is_unspecified:
            problem = f"{server} is another resolver on every machine, and none in a pod: CoreDNS would ask itself"
            yield RuleFinding("os.dns.servers", problem, "name the site's own DNS servers, as in 10.10.0.53")


def _wrong_registration(spec: ClusterSpec) -> Iterator[RuleFinding]:
    """Yield a registration address that is every machine's own, an agent's, or that of one server among several."""
    joined, path = spec.rke2.registration_address or "", "rke2.registration_address"
    if is_address(joined) and ipaddress.ip_address(joined).is_loopback and len(spec.machines) > 1:
        problem = f"{joined} is every machine itself, so no agent finds the servers there"
        yield RuleFinding(path, problem, "write an address that all machines reach")
    if agent := next((machine for machine in spec.machines if machine.role == "agent" and machine.address == joined), None):
        problem = f"{joined} is the agent {agent.name}, and no server listens there"
        yield RuleFinding(path, problem, "write the address in front of the servers")
    if len(spec.servers) > 1 and joined in {server.address for server in spec.servers}:
        problem = f"{joined} is one server alone: while it is down, no machine joins and none that restarts comes back"
        yield RuleFinding(path, problem, "write an address in front of all servers", "warning")


@rule("P26", "error", source="https://github.com/Mellanox/nvidia-k8s-ipam")
def networks_are_large_enough(platform: Platform) -> Iterator[RuleFinding]:
    """The fabric's pool has a block for each node and an address for each attachment; pods and Services have enough addresses."""
    yield from platform.parts(_pool_size(platform.spec), _cluster_sizes(platform.spec))


def _pool_size(spec: ClusterSpec) -> Iterator[RuleFinding]:
    fabric, pool = spec.fabric, spec.fabric.ip_pool
    if not fabric.has_network or pool is None:
        return
    network, nodes = ipaddress.ip_network(pool.subnet), len(spec.machines)
    usable = network.num_addresses - 2
    if nodes * pool.per_node_block > usable:
        bits = (nodes * pool.per_node_block + 1).bit_length()
        problem = f"{nodes} nodes need {pool.per_node_block} addresses each, servers too, and {pool.subnet} has {max(usable, 0)}"
        fix = f"use a /{network.max_prefixlen - bits} or larger, or per_node_block: {max(usable // nodes, 1)} or less"
        yield RuleFinding("fabric.ip_pool.subnet", problem, fix)
    if pool.per_node_block < fabric.attachments:
        problem = f"a pod attaches {fabric.attachments} times, and a node has {pool.per_node_block} addresses"
        yield RuleFinding(
            "fabric.ip_pool.per_node_block", problem, f"write at least {fabric.attachments}, times the pods of a node"
        )
    if pool.gateway and ipaddress.ip_address(pool.gateway) in (network.network_address, network.broadcast_address):
        problem = f"{pool.gateway} is the network or broadcast address of {pool.subnet}, which no machine can have"
        yield RuleFinding("fabric.ip_pool.gateway", problem, f"write {network.network_address + 1}, or the gateway's real address")


def _cluster_sizes(spec: ClusterSpec) -> Iterator[RuleFinding]:
    rke2 = spec.rke2
    pods, services = ipaddress.ip_network(rke2.cluster_cidr), ipaddress.ip_network(rke2.service_cidr)
    if pods.prefixlen > _NODE_PREFIX or pods.prefixlen < _LARGEST_PODS:
        problem = f"nodes get a /{_NODE_PREFIX} each, and the controller manager starts with a network of /8 to /24 only"
        yield RuleFinding("rke2.cluster_cidr", problem, "use a network between /8 and /24, as in 10.42.0.0/16")
    if not _LARGEST_SERVICES <= services.prefixlen <= _SMALLEST_SERVICES:
        problem = "the API server takes a Service network of /12 at most, and the tenth address is the cluster's DNS"
        yield RuleFinding("rke2.service_cidr", problem, "use a network between /12 and /28, as in 10.43.0.0/16")
    limit = max_pods(spec)
    if limit > _POD_ADDRESSES and "calico" not in rke2.cni:  # Calico hands out further blocks to a node that is full
        setting = "kubelet_args.max-pods" if "max-pods" in rke2.kubelet_args else "kubelet_config.maxPods"
        problem = f"a node has {_POD_ADDRESSES} pod addresses (/{_NODE_PREFIX}), and its kubelet would take {limit} pods"
        yield RuleFinding(f"rke2.{setting}", problem, f"write {_POD_ADDRESSES - 4} or less, or cni: calico")


@rule("P39", "warning", source="https://github.com/Mellanox/network-operator/tree/master/example/crs")
def mtu_reaches_an_interface(platform: Platform) -> Iterator[RuleFinding]:
    """The MTU of the fabric is set by some stage: on the machines' interfaces, or on those of pods."""
    spec, fabric = platform.spec, platform.spec.fabric
    if fabric.mtu is None:
        return
    enabled, by_object = spec.enabled_stages(), fabric.mode in ("macvlan", "sriov")
    if fabric.kind == "none":
        reason, step = "there is no fabric", "remove it, or name the fabric's kind"
    elif fabric.driver == "host" and "os_prep" not in enabled:
        reason, step = "stage os_prep, which sets it on the machines, is left out", "let os_prep run, or set it on the machines"
    elif by_object:
        reason = f"stage network_operator, which sets it on the interfaces of pods with mode {fabric.mode}, is left out"
        step = "let network_operator run, or remove it here"
    else:
        reason = f"with driver: operator nobody sets it on the machines, and mode {fabric.mode} has no MTU of its own for pods"
        step = "set it in the machines' own network configuration and remove it here, or use driver: host"
    on_hosts = fabric.driver == "host" and "os_prep" in enabled
    if fabric.kind == "none" or not ((by_object and "network_operator" in enabled) or on_hosts):
        yield RuleFinding("fabric.mtu", f"{fabric.mtu} sets nothing: {reason}", step)


_PLUGIN_NAME = re.compile(r"[A-Za-z0-9_]+")
"""Resource names that the SR-IOV operator and its device plugin accept."""


@rule("P40", "error", source="https://github.com/k8snetworkplumbingwg/sriov-network-device-plugin")
def fabric_keys_have_effect(platform: Platform) -> Iterator[RuleFinding]:
    """Every key of the section fabric has an effect with its kind and mode, and its lists of NICs agree with nics_per_node."""
    fabric = platform.spec.fabric
    if fabric.kind == "none":
        for key in sorted(_changed(fabric) - {"kind", "mtu"}):  # P39 is about the MTU
            problem = "there is no fabric (kind: none), so this key has no effect"
            yield RuleFinding(f"fabric.{key}", problem, "remove it, or write kind: infiniband or kind: roce")
        return
    if fabric.ip_pool is not None and not fabric.has_network:
        problem = f"mode {fabric.mode} has no secondary network, so nothing hands out addresses of this pool"
        fix = f"remove it, or write mode: {'ipoib' if fabric.kind == 'infiniband' else 'macvlan'}"
        yield RuleFinding("fabric.ip_pool", problem, fix)
    if fabric.multus == "operator" and not fabric.has_network:
        problem = f"mode {fabric.mode} has no secondary network, so the Network Operator installs no Multus"
        yield RuleFinding("fabric.multus", problem, "remove it, or write rke2.cni: [multus, …]")
    if "virtual_functions" in _changed(fabric) and fabric.mode != "sriov":
        problem = f"mode {fabric.mode} makes no virtual functions"
        yield RuleFinding("fabric.virtual_functions", problem, "remove it, or write mode: sriov")
    if fabric.attachments_are_allocated and not _PLUGIN_NAME.fullmatch(fabric.resource_name):
        problem = f"the device plugin of mode {fabric.mode} takes letters, digits and underscores only, not {fabric.resource_name}"
        fix = f"write {re.sub('[^A-Za-z0-9_]', '_', fabric.resource_name)}"
        yield RuleFinding("fabric.resource_name", problem, fix)
    yield from _nic_lists(fabric)


def _changed(fabric: Fabric) -> set[str]:
    """Return the keys of the section that are written and differ from their defaults."""
    fields = type(fabric).model_fields
    return {key for key in fabric.model_fields_set if getattr(fabric, key) != fields[key].default}


def _nic_lists(fabric: Fabric) -> Iterator[RuleFinding]:
    """Yield lists of NICs with an entry twice, or with a number of entries that cannot be that of nics_per_node."""
    for key in ("device_ids", "interfaces", "rails"):
        names = getattr(fabric, key)
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield RuleFinding(f"fabric.{key}", f"{twice[0]} is listed twice", "list each once")
    rails, interfaces, nics = len(set(fabric.rails)), len(set(fabric.interfaces)), fabric.nics_per_node
    if rails and rails < nics:
        problem = f"rails names {count(rails, 'device')}, and nics_per_node expects {nics} on each machine: no machine passes both"
        yield RuleFinding("fabric.rails", problem, f"name all {nics} rails, or write nics_per_node: {rails}")
    elif rails > nics:  # machines of another vendor may have other names for the same rails
        problem = f"rails names {rails} devices, and each machine must have {nics} of them: one that lost a device may pass"
        yield RuleFinding("fabric.rails", problem, f"write nics_per_node: {rails}, unless their names differ by machine", "warning")
    # pods of these modes get one device of each NIC; other modes need an interface as master, or none
    if fabric.attachments_are_allocated and interfaces > nics:
        problem = f"with mode {fabric.mode} pods get devices of {interfaces} interfaces, and each machine has {nics} NICs"
        fix = f"write nics_per_node: {interfaces}, unless the names of interfaces differ by machine"
        yield RuleFinding("fabric.interfaces", problem, fix, "warning")
    elif fabric.attachments_are_allocated and interfaces and interfaces < nics:
        problem = f"with mode {fabric.mode} pods get devices of {interfaces} of {nics} NICs, and the checks expect one of each NIC"
        fix = f"name all {nics} interfaces or none, or write nics_per_node: {interfaces}"
        yield RuleFinding("fabric.interfaces", problem, fix)
    elif fabric.attachments_are_allocated and rails and not interfaces:
        problem = "rails tells these NICs from others with the same device ids, and the device plugin gives pods either kind"
        yield RuleFinding("fabric.interfaces", problem, "name the interfaces of the rails", "warning")
