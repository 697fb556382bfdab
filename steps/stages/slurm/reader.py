"""Parses output of Slurm's tools: sinfo, scontrol, slurmd -C, slurm.conf lines, and slurmrestd's JSON; pure, never raises.

Formats: https://slurm.schedmd.com/sinfo.html, https://slurm.schedmd.com/scontrol.html.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from steps.stages.slurm.contract import SlurmNode

MOST = 100_000
"""Most hosts of a list, more than any cluster has; a longer list is cut."""
_PART = re.compile(r"(?P<before>[^\[\],\s]*)\[(?P<ranges>[\d,-]+)\](?P<after>[^\[\],\s]*)|(?P<plain>[^\[\],\s]+)")


def expand_hostlist(text: str) -> tuple[str, ...]:
    """Return the hosts of a Slurm hostlist (`gpu[001-003]`) in its order; numbers keep their leading zeros."""
    hosts: list[str] = []
    for match in _PART.finditer(text):
        if match["plain"]:
            hosts.append(match["plain"])
            continue
        numbers = _numbers(match["ranges"], MOST - len(hosts))
        hosts.extend(f"{match['before']}{number}{match['after'] or ''}" for number in numbers)
        if len(hosts) >= MOST:
            break
    return tuple(hosts[:MOST])


def _numbers(ranges: str, most: int) -> Iterator[str]:
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or len(low) > 9 or len(high) > 9:
            continue
        first, last = int(low), int(high) if dash else int(low)
        for value in range(first, min(last, first + most) + 1):
            yield str(value).zfill(len(low))


MAX_TEXT = 64 << 20
_MARKS = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "%": "powering_down",
    "!": "power_down",
    "$": "maintenance",
    "@": "reboot",
    "^": "reboot",
    "-": "planned",
}
"""Marks that sinfo appends to a state, and Slurm's word for each."""
_LONG = {"alloc": "allocated", "unk": "unknown", "drng": "draining", "comp": "completing", "mix": "mixed", "maint": "maintenance"}
_STATE = r"(?P<state>[a-z_]+[*~#%!$@^-]*)"
_SINFO = re.compile(rf"^\S+[ \t]+(?:up|down|drain|inact)[ \t]+\S+[ \t]+\d+[ \t]+{_STATE}[ \t]+(?P<nodes>\S+)", re.MULTILINE)
_GROUP = re.compile(rf"^{_STATE}\|(?P<gres>[^|\n]*)\|(?P<nodes>\S+)[ \t]*$", re.MULTILINE)
_PAIR = re.compile(rf"^(?P<nodes>[\w.-]+),{_STATE}[ \t]*$", re.MULTILINE)
_HOSTS = r"[\w.-]+(?:\[[\d,-]+\])?(?:,[\w.-]+(?:\[[\d,-]+\])?)*"
_REASON = re.compile(rf"^(?P<reason>\S[^|\n]*?)(?:\||[ \t]{{2,}})(?P<nodes>{_HOSTS})[ \t]*$", re.MULTILINE)
_FIELD = re.compile(r"\b(?P<key>[A-Za-z]\w*)=(?P<value>[^\s=]*)")
_GRES = re.compile(r"(?:^|,)gpu(?::(?P<type>[^:,()]+))?(?::(?P<count>\d{1,6}))?(?=$|[,(])")
_PAREN = re.compile(r"\([^)]*\)")


def states(word: str) -> tuple[str, ...]:
    """Return a state as sinfo prints it (`down*`, `drained`, `idle~`) in plain words."""
    base = word.rstrip("".join(_MARKS))
    marks = dict.fromkeys(_MARKS[mark] for mark in word[len(base) :])
    # an idle node that backfill keeps for a job is shown as planned alone
    if base in ("planned", "plnd"):
        return ("idle", *dict.fromkeys(("planned", *marks)))
    return (_LONG.get(base, base), *marks)


def gpus(gres: str) -> int:
    """Return the GPUs or GPU instances of a Gres: `gpu:h200:8(S:0-1)` → 8, `gpu:1g.10gb:2,gpu:2g.20gb:2` → 4, `gpu` → 1."""
    text = _PAREN.sub("", gres)
    return sum(_count(match) for match in _GRES.finditer(text))


def sinfo(text: str) -> tuple[SlurmNode, ...]:
    """Return the nodes in sinfo output: its own table, `%T|%G|%N`, or `%n,%T`. A node in two partitions counts once."""
    text = text[:MAX_TEXT]
    nodes: dict[str, SlurmNode] = {}
    for match in (*_SINFO.finditer(text), *_GROUP.finditer(text), *_PAIR.finditer(text)):
        gres = match.groupdict().get("gres") or ""
        gres = "" if gres == "(null)" else gres
        for name in expand_hostlist(match["nodes"]):
            nodes.setdefault(name, SlurmNode(name=name, states=states(match["state"]), gres=gres, gpus=gpus(gres)))
    return tuple(nodes.values())


def reasons(text: str) -> dict[str, str]:
    """Return the reasons for which nodes are not usable, by node, from `sinfo -R` with `%E|%N` or in columns."""
    by_node: dict[str, str] = {}
    for match in _REASON.finditer(text[:MAX_TEXT]):
        if match["reason"].startswith(("REASON", "PARTITION")):
            continue
        for name in expand_hostlist(match["nodes"]):
            by_node.setdefault(name, match["reason"].strip())
    return by_node


def with_reasons(nodes: tuple[SlurmNode, ...], known: dict[str, str]) -> tuple[SlurmNode, ...]:
    """Return the nodes with their reasons filled in."""
    return tuple(msgspec.structs.replace(node, reason=known.get(node.name, node.reason)) for node in nodes)


def read_rest_nodes(text: str) -> tuple[tuple[SlurmNode, ...], tuple[str, ...]]:
    """Return nodes and errors in an answer of slurmrestd's `/slurm/vN/nodes` or `/node/NAME`, of any version."""
    try:
        document = msgspec.json.decode(text[:MAX_TEXT].encode(errors="replace"))
    except (msgspec.MsgspecError, RecursionError):
        return (), ("no JSON",)
    if not isinstance(document, dict):
        return (), ("no JSON object",)
    errors = tuple(_said(entry) for entry in document.get("errors") or () if entry)
    return tuple(_rest_node(entry) for entry in _maps(document.get("nodes")) if entry.get("name")), errors


def records(text: str) -> tuple[SlurmNode, ...]:
    """Return the nodes in `scontrol show node`, `slurmd -C` or slurm.conf: records that begin with `NodeName=`."""
    return tuple(_record(block) for block in _blocks(text[:MAX_TEXT]))


def fields(block: str) -> dict[str, str]:
    """Return the `Key=Value` pairs of one record that scontrol or slurm.conf prints."""
    return {match["key"]: match["value"] for match in _FIELD.finditer(block)}


def _blocks(text: str) -> Iterator[str]:
    starts = [match.start() for match in re.finditer(r"\bNodeName=", text)]
    for start, end in pairwise([*starts, len(text)]):
        yield text[start:end]


def _record(block: str) -> SlurmNode:
    known = fields(block)
    reason = re.search(r"\bReason=(?P<reason>[^\n]*?)(?:[ \t]*\[[^\]\n]*\])?[ \t]*$", block, re.MULTILINE)
    gres = known.get("Gres", "")
    gres = "" if gres in ("(null)", "N/A") else gres
    words = (part for part in known.get("State", "").lower().split("+") if part)
    named = tuple(dict.fromkeys(word for part in words for word in states(part)))
    return SlurmNode(
        name=known["NodeName"], states=named, reason=reason["reason"].strip() if reason else "", gres=gres, gpus=gpus(gres)
    )


def _rest_node(entry: dict[str, Any]) -> SlurmNode:
    state = entry.get("state")
    words = state if isinstance(state, list) else [state]
    gres = entry.get("gres") if isinstance(entry.get("gres"), str) else ""
    return SlurmNode(
        name=str(entry["name"]),
        states=tuple(word.lower() for word in words if isinstance(word, str)),
        reason=str(entry.get("reason") or ""),
        gres=gres or "",
        gpus=gpus(gres or ""),
    )


def _count(match: re.Match[str]) -> int:
    kind, count = match["type"], match["count"]
    # `gpu:8` has a count and no type, `gpu:h200` a type and no count
    if count is not None:
        return int(count)
    return int(kind) if kind is not None and kind.isdigit() and len(kind) < 7 else 1


def _maps(value: Any) -> Iterator[dict[str, Any]]:
    yield from (entry for entry in value if isinstance(entry, dict)) if isinstance(value, list) else ()


def _said(entry: Any) -> str:
    if isinstance(entry, dict):
        return str(entry.get("description") or entry.get("error") or entry)[:300]
    return str(entry)[:300]
