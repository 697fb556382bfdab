"""Convert an Ansible inventory into `cluster.yaml`, with a note for each thing that could not be converted."""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from steps.contract.host_play import PYTHON
from steps.contract.host_ranges import fold
from workflows.inventory import foreign_labels, foreign_settings, foreign_taints, grouping, machine_variables
from workflows.inventory.connection import HostAccess, host_access
from workflows.inventory.model import BadInventory, Inventory
from workflows.spec import range_syntax
from workflows.spec.sections.hosts import DNS_SUFFIX

_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
_FRONT = (
    "bringup_registration_address",
    "rke2_api_ip",
    "rke2_kubernetes_api_server_host",
    "apiserver_endpoint",
    "kube_vip_address",
    "kubevip_address",
    "vip_address",
    "api_endpoint",
    "k3s_registration_address",
)
"""Variables with the address in front of the servers: our own, and those of RKE2 roles, k3s-ansible and Kubespray."""
_BALANCER, _DOMAIN = "loadbalancer_apiserver", "apiserver_loadbalancer_domain_name"
"""Kubespray's variables with address and name of a load balancer in front of the servers."""
_NO_FRONT = "no variable has the address in front of the servers"
_CLUSTER_ADDRESSES = ("ip", "access_ip")
"""Kubespray's variables with the address of a host that the cluster uses, which may be another one than that of SSH."""
_NETWORKS = (foreign_settings.PODS, foreign_settings.SERVICES, foreign_settings.PLUGIN)
_PROXIES = ("http_proxy", "https_proxy", "no_proxy")
"""Variables with the proxies of machines in Kubespray and other projects."""
_THROUGH = {"jump": "jump_host", "proxy": "http_proxy"}
"""Field of `HostAccess` → key of a spec, for what stands before a host."""
Reason = TypeVar("Reason")
_ADDRESS = re.compile(r"[A-Za-z0-9:]([A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """Choices of the user for a conversion: name of the cluster, group of servers, and groups to take over."""

    name: str
    servers: str = ""
    groups: Sequence[str] = ()
    folder: str = ""
    """Folder of the inventory, from which relative paths in it start."""


@dataclass(frozen=True, kw_only=True)
class ConvertedSpec:
    """The data of a spec made from an inventory, and notes about what could not be converted."""

    data: Mapping[str, Any]
    notes: tuple[str, ...]


def convert(inventory: Inventory, choice: ConversionOptions) -> ConvertedSpec:
    """Convert an inventory into the data of a spec. Raises BadInventory if it has no usable hosts or no servers."""
    reached = {name: host_access(variables) for name, variables in inventory.hosts.items()}
    hosts, notes = _nodes(inventory, reached)
    if not hosts:
        raise BadInventory(_with("the inventory has no host that could be a node", notes), "is it the right file?")
    try:
        used = grouping.group_hosts(inventory, hosts, choice.servers, choice.groups)
    except BadInventory as error:
        raise BadInventory(_with(str(error), notes), error.hint) from None
    used, taints, taint_notes = foreign_taints.split_groups(used, inventory)
    planned = [host for members in used.groups.values() for host in members]
    ways = {host: reached[host] for host in planned}
    ssh, more_notes = _ssh(ways, choice.folder)
    through = {name: _through(members, ways, ssh) for name, members in used.groups.items()}
    groups = {name: _group(name, members, ways, used, ssh, through[name][0]) for name, members in used.groups.items()}
    more_notes += [note for _, notes in through.values() for note in notes]
    for name in filter(taints.get, groups):
        groups[name]["taints"] = list(taints[name])
    product = _mark_gpus(inventory, used, groups)
    for name, members in used.groups.items():
        more_notes += machine_variables.set_topology(members, inventory.hosts, groups[name])
        more_notes += foreign_labels.set_labels(members, inventory.hosts, groups[name])
    unmarked = ", ".join(name for name in used.gpu if "gpu" not in groups[name])
    remedy = "add accelerator: {product: H200, per_node: 8} and gpu: true to the group"
    gres = foreign_settings.gpus_of_slurm(inventory.hosts[planned[0]])
    source = f"Slurm's groups of nodes say {', '.join(gres)}" if gres else "an inventory does not say which"
    lacking = [f"GPUs of {unmarked}: {source}; {remedy}"] if unmarked else []
    lacking += _other_addresses(inventory, ways)
    rke2, rke2_notes = _rke2(inventory, [host for name in used.servers for host in used.groups[name]], ways)
    data = {
        "apiVersion": "bringup/v1",
        "kind": "Cluster",
        "name": choice.name,
        "owner": "platform-team@example.org",
        "revision": "1",
        "hosts": groups,
        **({"accelerator": product} if product else {}),
        **({"ssh": ssh} if ssh else {}),
        **({"rke2": rke2} if rke2 else {}),
    }
    return ConvertedSpec(
        data=data, notes=(*notes, *used.notes, *taint_notes, *more_notes, *rke2_notes, *lacking, *_variables(ways))
    )


def _with(sentence: str, dropped: Sequence[str]) -> str:
    """Return a sentence with the notes on hosts that were left out, which may be why a group is empty."""
    return f"{sentence} (left out: {'; '.join(dropped)})" if dropped else sentence


def _nodes(inventory: Inventory, reached: Mapping[str, HostAccess]) -> tuple[list[str], list[str]]:
    """Return the hosts that can be cluster nodes, and notes about all other hosts."""
    bastions = {host for name, members in inventory.groups.items() if grouping.is_bastion(name) for host in members}
    rules: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("reached without SSH", lambda host: reached[host].is_local or host in ("localhost", "127.0.0.1", "::1")),
        ("it is a jump host, say whether it is needed: ssh: {jump_host: user@host}", lambda host: host in bastions),
        (
            "a node's name has lower-case letters, digits, dots and dashes, at most 63; rename it in the inventory",
            lambda host: not _HOST.fullmatch(host),
        ),
    )
    why = {host: next((text for text, holds in rules if holds(host)), "") for host in inventory.hosts}
    left_out = _by_reason((text, host) for host, text in why.items() if text)
    notes = [f"host {_named(hosts)}: {reason}" for reason, hosts in left_out.items()]
    return [host for host, text in why.items() if not text], notes


def _ssh(ways: Mapping[str, HostAccess], folder: str) -> tuple[dict[str, Any], list[str]]:
    """Return the section `ssh` with the settings of most hosts, and notes about hosts whose settings a spec cannot express."""
    user, port = _most(way.user for way in ways.values()), _most(way.port for way in ways.values())
    ssh: dict[str, Any] = ({"user": user} if user else {}) | ({"port": port} if port else {})
    notes = [] if user else ["no ansible_user: bringup logs in as root, where ssh: {user: NAME} says nothing else"]
    for field in ("key", "known_hosts"):
        value = _most(getattr(way, field) for way in ways.values())
        others = [host for host, way in ways.items() if getattr(way, field) != value]
        ssh |= {field: {"file": _path(value, folder)} if field == "key" else _path(value, folder)} if value else {}
        notes += [f"{field} of {_named(others)}: not {value}, and a spec has one for all hosts"] if value and others else []
    for field, key in _THROUGH.items():
        values = {getattr(way, field) for way in ways.values()}
        ssh |= {key: max(values)} if len(values) == 1 and any(values) else {}
    jumps = {way.jump for way in ways.values()}
    bare = sorted(jump for jump in jumps if any("@" not in hop for hop in jump.split(",") if hop))
    notes += [f"user of jump host {jump}: root, where jump_host names none (user@host)" for jump in bare]
    return ssh, notes


def _through(members: Sequence[str], ways: Mapping[str, HostAccess], ssh: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return jump host and HTTP proxy of most hosts in a group, and notes about hosts with others.

    Keys that the section `ssh` has for all hosts are left out.
    """
    section: dict[str, str] = {}
    notes: list[str] = []
    for field, key in _THROUGH.items():
        if key in ssh:
            continue
        value = str(_most(getattr(ways[host], field) for host in members))
        others = [host for host in members if getattr(ways[host], field) != value]
        section |= {key: value} if value else {}
        what = key.replace("_", " ")
        notes += [f"{what} of {_named(others)}: not {value or 'none'}, and a group has one for all its hosts"] if others else []
    return section, notes


def _most(values: Iterable[Any]) -> Any:
    """Return the most frequent value; the first one if several are equally frequent."""
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else None


def _path(text: str, folder: str) -> str:
    """Return a path of the inventory, relative ones preceded by the inventory's folder."""
    return text if text.startswith(("/", "~")) or not folder else f"{folder}/{text.removeprefix('./')}"


def _group(
    name: str,
    members: Sequence[str],
    ways: Mapping[str, HostAccess],
    used: grouping.GroupedHosts,
    ssh: Mapping[str, Any],
    through: Mapping[str, str],
) -> dict[str, Any]:
    texts = range_syntax.texts(members)
    ordered = [host for text in texts for host in range_syntax.expand(text)]
    python = str(_most(ways[host].python or PYTHON for host in members))
    overrides = {host: odd for host in ordered if (odd := _odd(ways[host], ssh, python))}
    addresses = _addresses(ordered, {host: ways[host].address or host for host in ordered})
    return {
        "role": "server" if name in used.servers else "agent",
        "ranges": texts[0] if len(texts) == 1 else texts,
        **through,
        **({"python": python} if python != PYTHON else {}),
        **({"addresses": addresses} if addresses else {}),
        **({"overrides": overrides} if overrides else {}),
    }


def _odd(way: HostAccess, ssh: Mapping[str, Any], python: str) -> dict[str, Any]:
    """Return the override of one host: its user, port and Python if they differ from those of other hosts."""
    own = {"ssh_user": way.user or "root", "ssh_port": way.port or 22, "python": way.python or PYTHON}
    common = {"ssh_user": ssh.get("user", "root"), "ssh_port": ssh.get("port", 22), "python": python}
    return {key: value for key, value in own.items() if value != common[key]}


def _addresses(ordered: Sequence[str], addresses: Mapping[str, str]) -> dict[str, Any]:
    """Return the section `addresses` of a group in its shortest form; empty if SSH dials the hosts by name."""
    dialled = [addresses[host] for host in ordered]
    if dialled == list(ordered):
        return {}
    suffix = dialled[0].removeprefix(f"{ordered[0]}.")
    if dialled == [f"{host}.{suffix}" for host in ordered] and re.fullmatch(DNS_SUFFIX, suffix):
        return {"dns_suffix": suffix}
    try:
        first = ipaddress.ip_address(dialled[0])
        if dialled == [str(first + number) for number in range(len(dialled))]:
            return {"start": dialled[0]}
    except ValueError:
        pass  # names, or the end of all addresses
    return {"map": dict(addresses)}


def _rke2(inventory: Inventory, servers: Sequence[str], ways: Mapping[str, HostAccess]) -> tuple[dict[str, Any], list[str]]:
    """Return the section `rke2` with notes: the address in front of the servers, and networks with room for all planned hosts."""
    front, notes = _front(inventory, servers, ways)
    section: dict[str, Any] = {"registration_address": front} if front else {}
    names, san_notes = foreign_settings.further_names(inventory.hosts[servers[0]], _ADDRESS)
    domain = inventory.hosts[servers[0]].get(_DOMAIN)
    names += [domain] if isinstance(domain, str) and _ADDRESS.fullmatch(domain) and domain not in (front, *names) else []
    section |= {"tls_san": names} if names else {}
    notes += san_notes
    foreign, foreign_notes = foreign_settings.convert_networks(inventory.hosts[servers[0]], len(ways))
    network, wide = _network(len(ways)) if "cluster_cidr" not in foreign else ("", [])
    return section | ({"cluster_cidr": network} if network else {}) | foreign, [*notes, *wide, *foreign_notes]


def _front(inventory: Inventory, servers: Sequence[str], ways: Mapping[str, HostAccess]) -> tuple[str, list[str]]:
    """Return the address in front of the servers and notes about it; empty for a single server."""
    if len(servers) == 1:
        return "", []
    variables = inventory.hosts[servers[0]]
    balancer = variables.get(_BALANCER)
    variables = {**variables, _BALANCER: balancer.get("address", "") if isinstance(balancer, Mapping) else ""}
    source = next((name for name in (*_FRONT, _BALANCER, _DOMAIN) if _ADDRESS.fullmatch(str(variables.get(name, "")))), "")
    if source:
        port = "rke2.registration_address: the load balancer must forward port 9345 too, at which machines of RKE2 join"
        return str(variables[source]), [port] if source in (_BALANCER, _DOMAIN) else []
    templates = [name for name in (*_FRONT, _BALANCER, _DOMAIN) if "{{" in str(variables.get(name, ""))]
    why = f"{', '.join(templates)} has a template, which is never evaluated" if templates else _NO_FRONT
    first = ways[servers[0]].address or servers[0]
    return first, [
        f"rke2.registration_address: {why}; {first}, the first of the servers, "
        "stands there: write the virtual IP or DNS name, or agents cannot join while that one is down"
    ]


def _network(nodes: int) -> tuple[str, list[str]]:
    """Return a pod network with a /24 for each node, and a note; empty if the default network is large enough."""
    bits = (nodes - 1).bit_length()
    if bits <= 8:
        return "", []
    network = f"10.64.0.0/{24 - bits}" if bits <= 14 else "10.128.0.0/9"
    return network, [f"rke2.cluster_cidr: {network} has room for {nodes} nodes; write another one where your site uses it"]


def _mark_gpus(inventory: Inventory, used: grouping.GroupedHosts, groups: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Mark groups as GPU groups if all their hosts' variables say so; return the section `accelerator`, empty if it is unknown."""
    marked = [name for name, members in used.groups.items() if machine_variables.all_have_gpus(members, inventory.hosts)]
    product = machine_variables.accelerator(inventory.hosts[used.groups[marked[0]][0]]) if marked else {}
    for name in marked if product else ():
        groups[name]["gpu"] = True
        own = machine_variables.group_accelerator(used.groups[name], inventory.hosts, product)
        groups[name] |= {"accelerator": own} if own else {}
        for host in used.groups[name]:
            if override := machine_variables.gpu_override(inventory.hosts[host], own.get("per_node", product["per_node"])):
                groups[name].setdefault("overrides", {}).setdefault(host, {}).update(override)
    return product


def _variables(ways: Mapping[str, HostAccess]) -> list[str]:
    """Return notes about Ansible variables that were not converted, and about the names of all other variables."""
    by_reason = _by_reason((reason, host) for host, way in ways.items() for reason in way.lost)
    lost = [f"{name} of {_named(hosts)}: {why}" for (name, why), hosts in by_reason.items()]
    own = sorted({name for way in ways.values() for name in way.own} - _CONVERTED)
    elsewhere = foreign_settings.notes_on(own)
    own = [name for name in own if name not in foreign_settings.ELSEWHERE]
    # all names: what a user does not find here was converted
    shown = ", ".join(own)
    kept = [f"variables {shown}: they are your roles' own; a role that roles: names gets what it is given there"] if own else []
    # variables of proxies are not converted, since they may hold templates and passwords
    proxies = ", ".join(name for name in _PROXIES if any(name in way.own for way in ways.values()))
    say = f"variables {proxies}: say them as proxy: {{http: http://HOST:PORT, no_proxy: [.example.org]}}"
    return [*lost, *([say] if proxies else []), *elsewhere, *kept]


_CONVERTED = {
    *(*_FRONT, _BALANCER, _DOMAIN, *_CLUSTER_ADDRESSES),
    *(*_PROXIES, *_NETWORKS, *foreign_settings.SANS),
    *(*foreign_taints.VARIABLES, *foreign_labels.VARIABLES),
}
"""Variables that the spec has, or that have notes of their own."""


def _other_addresses(inventory: Inventory, ways: Mapping[str, HostAccess]) -> list[str]:
    """Return a note about hosts whose cluster is on another network than SSH, which a spec cannot say."""
    others = [
        host
        for host, way in ways.items()
        if any(
            str(inventory.hosts[host].get(name) or way.address or host) not in (way.address, host) for name in _CLUSTER_ADDRESSES
        )
    ]
    remedy = "nodes take the address that SSH dials, unless a file in /etc/rancher/rke2/config.yaml.d of the machine says node-ip"
    return [f"ip or access_ip of {_named(others)}: {remedy} (reaching_machines.md)"] if others else []


def _by_reason(pairs: Iterable[tuple[Reason, str]]) -> dict[Reason, list[str]]:
    """Return the hosts by the reason that applies to them."""
    hosts: dict[Reason, list[str]] = {}
    for reason, host in pairs:
        hosts.setdefault(reason, []).append(host)
    return hosts


def _named(hosts: Sequence[str]) -> str:
    text = fold(hosts)
    return text if len(text) <= 100 else f"{text[:99]}… ({len(hosts)} hosts)"


def render_spec(taken: ConvertedSpec, source: str) -> str:
    """Return the text of `cluster.yaml`, with the notes as comments at its head. Keys keep their order."""
    head = [
        f"# Made from the Ansible inventory {source} by `bringup init --from-inventory`; what it could not take over is below.",
        "# Say who answers for it (owner) and which system the machines run (os), then: bringup validate, bringup plan",
    ]
    printable = ("".join(letter if letter.isprintable() else " " for letter in note) for note in taken.notes)
    notes = [f"#   {' '.join(note.split())}" for note in printable]
    text = yaml.safe_dump(dict(taken.data), sort_keys=False, allow_unicode=True, width=120, default_flow_style=False)
    return "\n".join([*head, *notes, text])
