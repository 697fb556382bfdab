"""Assign inventory hosts to groups of a spec, where each host has one group and each group one role."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from steps.contract.host_ranges import fold
from workflows.inventory.model import BadInventory, Inventory

SERVER_NAMES = (
    "rke2_servers",
    "rke2_server",
    "kube_control_plane",
    "control_plane",
    "controlplane",
    "kube_master",
    "kube_masters",
    "k3s_server",
    "k8s_master",
    "masters",
    "master",
    "servers",
    "server",
    "managers",
)
"""Names of server groups in inventories of rke2-ansible, ansible-role-rke2, Kubespray, k3s-ansible and DeepOps."""
_OTHERS = re.compile(r"bastions?|jump(_?hosts?)?|localhost|etcd|.*_?cluster|calico_rr|vault|nfs.*|loadbalancers?|lb")
"""Names of inventory groups that describe no kind of machine, or whose machines are no cluster nodes."""
_GPU = re.compile(r"(?i)(^|_)(gpus?|dgx|hgx|a100|h100|h200|b200|b300|gb200|gb300)([0-9_]|$)")


@dataclass(frozen=True, kw_only=True)
class GroupedHosts:
    """Hosts by group of the spec, groups of servers first. `gpu` are groups whose names say GPU; `notes` tell what was decided."""

    groups: Mapping[str, tuple[str, ...]]
    servers: tuple[str, ...]
    gpu: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def group_hosts(inventory: Inventory, hosts: Sequence[str], servers: str = "", group_names: Sequence[str] = ()) -> GroupedHosts:
    """Assign each host to one group; the user may choose `servers` and `group_names`. Raises BadInventory without servers."""
    groups = inventory.groups
    for name in (*group_names, *([servers] if servers else [])):
        if name not in groups:
            raise BadInventory(f"the inventory has no group {name}", f"it has {', '.join(sorted(groups)) or 'no groups'}")
    chosen = servers or _servers(hosts, groups)
    known = set(hosts)
    heads = [host for host in groups.get(chosen, tuple(hosts)) if host in known]
    if len(heads) not in (1, 3, 5):
        raise BadInventory(
            f"group {chosen} has {len(heads)} hosts, but 1, 3 or 5 servers hold an etcd majority",
            "name a group of 1, 3 or 5 hosts: --servers GROUP",
        )
    parts = _kinds(inventory, set(heads), within=set(heads)) if chosen in inventory.parents else []
    assigned, rest = _dealt(groups, parts, heads)
    assigned |= {unused(snake(chosen), assigned): tuple(rest)} if rest else {}
    above = tuple(assigned)
    free = [host for host in hosts if host not in heads]
    below, free = _dealt(groups, group_names or _kinds(inventory, set(free)), free, assigned)
    assigned |= below
    notes = [f"hosts {fold(free)}: in none of the groups {', '.join(group_names)}"] if free and group_names else []
    notes += _unnamed({name: known & set(members) for name, members in groups.items()}, assigned)
    if free and not group_names:
        assigned[unused("nodes", assigned)] = tuple(free)
    gpu = tuple(name for name in assigned if _GPU.search(name) and name not in above)
    return GroupedHosts(groups=assigned, servers=above, gpu=gpu, notes=tuple(notes))


def _dealt(
    groups: Mapping[str, tuple[str, ...]], names: Sequence[str], hosts: Sequence[str], taken: Mapping[str, object] | None = None
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return the hosts that each named group gets (a host goes to the first group that has it), and the hosts that are left."""
    assigned: dict[str, tuple[str, ...]] = {}
    free = dict.fromkeys(hosts)
    for name in names:
        members = tuple(host for host in groups[name] if host in free)
        if members:
            assigned[unused(snake(name), {**(taken or {}), **assigned})] = members
            for host in members:
                del free[host]
    return assigned, list(free)


def snake(name: str) -> str:
    """Return the name of an inventory group as an id of a spec: lower case, with underscores."""
    text = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:60]
    return text if text[:1].isalpha() else f"g_{text}".rstrip("_")


def is_bastion(name: str) -> bool:
    """Return True if a group is named as groups of jump hosts are."""
    return re.fullmatch(r"bastions?|jump(_?hosts?)?", snake(name)) is not None


def _servers(hosts: Sequence[str], groups: Mapping[str, tuple[str, ...]]) -> str:
    by_id = {snake(name): name for name in groups}
    chosen = next((by_id[name] for name in SERVER_NAMES if name in by_id), "")
    if not chosen and len(hosts) == 1:
        return "servers"
    if not chosen:
        names = ", ".join(f"{name} ({len(members)})" for name, members in sorted(groups.items())) or "none"
        raise BadInventory(
            "no group of the inventory has a usual name of servers", f"say which one: --servers GROUP; groups: {names}"
        )
    return chosen


def _kinds(inventory: Inventory, free: set[str], within: set[str] | None = None) -> list[str]:
    """Return names of groups that describe a kind of machine and have hosts in `free`: GPU groups first, then the largest.

    With `within`, groups that have other hosts than these are left out.
    """
    counted = {name: len(free & set(members)) for name, members in inventory.groups.items() if name not in inventory.parents}
    if within is not None:
        counted = {name: count for name, count in counted.items() if set(inventory.groups[name]) <= within}
    kinds = [name for name, count in counted.items() if count and not _OTHERS.fullmatch(snake(name))]
    return sorted(kinds, key=lambda name: (not _GPU.search(snake(name)), -counted[name], name))


def unused(name: str, taken: Mapping[str, object]) -> str:
    """Return the name, with underscores at its end if it is taken."""
    return name if name not in taken else unused(f"{name}_", taken)


def _unnamed(groups: Mapping[str, set[str]], assigned: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return a note about inventory groups that are neither a group of the spec nor a union of some; empty without such groups."""
    whole = [set(members) for members in assigned.values()]
    lost = [
        name
        for name, members in sorted(groups.items())
        if not is_bastion(name) and members != set().union(*(part for part in whole if part <= members))
    ]
    return [f"groups {', '.join(lost)}: in a spec each host stands in one group (choose with --group NAME)"] if lost else []
