"""Taints of nodes in inventories of Kubespray, RKE2 roles and k3s-ansible, which a spec has for each group of hosts.

Sources: https://github.com/kubernetes-sigs/kubespray/blob/master/docs/ansible/vars.md, https://github.com/lablabs/ansible-role-rke2
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from steps.contract.host_ranges import fold
from workflows.inventory.grouping import GroupedHosts, unused
from workflows.inventory.model import Inventory
from workflows.spec.fields import Taint

OF_ALL, OF_SERVERS, OF_AGENTS = ("node_taints", "k3s_node_taints"), ("rke2_server_node_taints",), ("rke2_agent_node_taints",)
VARIABLES = (*OF_ALL, *OF_SERVERS, *OF_AGENTS)
"""Variables with lists of taints, each `KEY=VALUE:EFFECT`, or `KEY: VALUE:EFFECT` as a mapping."""
MOST = 50
"""Largest number of taints that one variable is read for."""
_TAINT: TypeAdapter[str] = TypeAdapter(Taint)
_PATH = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")

Taints = tuple[str, ...]


def split_groups(used: GroupedHosts, inventory: Inventory) -> tuple[GroupedHosts, dict[str, Taints], list[str]]:
    """Return the groups with hosts of other taints in groups of their own, the taints of each group, and notes about both."""
    groups: dict[str, tuple[str, ...]] = {}
    taints: dict[str, Taints] = {}
    servers, gpu, notes = list(used.servers), list(used.gpu), list[str]()
    for name, members in used.groups.items():
        by_taints, wrong = _by_taints(members, inventory, is_server=name in used.servers)
        notes += wrong
        for own, hosts in by_taints:
            # the largest part comes first and keeps the name; ids of groups have 63 characters at most
            kind = "tainted" if own else "untainted"
            target = name if name not in groups else unused(f"{name[:50]}_{kind}", {**used.groups, **groups})
            groups[target], taints[target] = hosts, own
            if target != name:
                servers += [target] if name in used.servers else []
                gpu += [target] if name in used.gpu else []
                shown = ", ".join(own) or "none"
                notes.append(f"hosts {fold(hosts)}: their taints ({shown}) differ in group {name}, so they have group {target}")
    return replace(used, groups=groups, servers=tuple(servers), gpu=tuple(gpu)), taints, notes


def _by_taints(
    members: Sequence[str], inventory: Inventory, *, is_server: bool
) -> tuple[list[tuple[Taints, tuple[str, ...]]], list[str]]:
    """Return the hosts of a group by their taints, the largest part first, and notes about values that are no taints."""
    parts: dict[Taints, list[str]] = {}
    wrong: dict[str, list[str]] = {}
    for host in members:
        variables = inventory.hosts[host]
        own: dict[str, None] = {}
        for variable in (*OF_ALL, *(OF_SERVERS if is_server else OF_AGENTS)):
            values, bad = _read(variables.get(variable))
            own |= dict.fromkeys(values)
            if bad:
                wrong.setdefault(variable, []).append(host)
        parts.setdefault(tuple(sorted(own)), []).append(host)
    notes = [
        f"{variable} of {fold(hosts)}: some of it is no taint (KEY=VALUE:EFFECT), and was left out; write it as taints of the group"
        for variable, hosts in wrong.items()
    ]
    ordered = sorted(parts.items(), key=lambda part: (-len(part[1]), len(part[0])))
    return [(taints, tuple(hosts)) for taints, hosts in ordered], notes


def _read(value: Any) -> tuple[list[str], bool]:
    """Return the taints in the value of a variable, and True if a part of it is none, such as a template."""
    if value in (None, "", []):
        return [], False
    entries = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [None]
    texts: list[Any] = []
    for entry in entries[:MOST]:
        texts += [f"{key}={rest}" for key, rest in entry.items()] if isinstance(entry, Mapping) else [entry]
    taints = [_taint(text) for text in texts]
    return [taint for taint in taints if taint], not all(taints) or len(entries) > MOST


def _taint(text: Any) -> str:
    """Return a taint as a spec has it; empty if the text is none."""
    if not isinstance(text, str) or len(text) > 400:
        return ""
    try:
        taint = _TAINT.validate_python(text.strip())
    except ValidationError:
        return ""
    return taint if _PATH.fullmatch(re.split(r"[=:]", taint, maxsplit=1)[0]) else ""
