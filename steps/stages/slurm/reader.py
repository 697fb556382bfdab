"""Parses output of Slurm's tools: sinfo, scontrol, slurmd -C, slurm.conf lines, and slurmrestd's JSON; pure, never raises.

Formats: https://slurm.schedmd.com/sinfo.html, https://slurm.schedmd.com/scontrol.html.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON
from steps.stages.shared.slurm_states import takes_jobs
from steps.stages.slurm.contract import SlurmNode

MOST = 100_000
"""Most hosts of a text, more than any cluster has; longer lists are cut."""
MOST_LISTED = 4 * MOST
"""Most names in all host lists of a text: a node stands in the list of each of its partitions."""
_PIECE = re.compile(r"(?:[^\[\],\s]+|\[[\d,-]+\])+")
_BRACKET = re.compile(r"\[([\d,-]+)\]")


def expand_hostlist(text: str, most: int = MOST) -> tuple[str, ...]:
    """Return the hosts of a Slurm hostlist (`gpu[001-003]`, `r[1-2]n[1-4]`) in its order, at most `most` of them.

    Numbers keep their leading zeros.
    """
    names = itertools.chain.from_iterable(_expanded(match[0], most) for match in _PIECE.finditer(text))
    return tuple(itertools.islice(names, most))


def expand_hostlists(texts: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the hosts of each hostlist; once they have MOST_LISTED names together, further lists come out empty."""
    left = MOST_LISTED
    for text in texts:
        hosts = expand_hostlist(text, min(left, MOST)) if left else ()
        left -= len(hosts)
        yield hosts


def _expanded(piece: str, most: int) -> Iterator[str]:
    """Yield the hosts of one name with ranges in brackets, the rightmost bracket running fastest."""
    # in turn text and ranges
    parts = _BRACKET.split(piece)
    if any(next(_numbers(ranges, 1), None) is None for ranges in parts[1::2]):
        return iter(())
    return _joined("", parts, most)


def _joined(before: str, parts: list[str], most: int) -> Iterator[str]:
    if len(parts) == 1:
        yield before + parts[0]
        return
    for number in _numbers(parts[1], most):
        yield from _joined(before + parts[0] + number, parts[2:], most)


def _numbers(ranges: str, most: int) -> Iterator[str]:
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or len(low) > 9 or len(high) > 9:
            continue
        first, last = int(low), int(high) if dash else int(low)
        for value in range(first, min(last, first + most) + 1):
            yield str(value).zfill(len(low))


MAX_TEXT = 64 << 20
MARKS = {
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
_SINFO = re.compile(
    rf"^(?P<partition>\S+)[ \t]+(?P<available>up|down|drain|inact)[ \t]+(?:\S+[ \t]+(?P<count>\d{{1,6}})[ \t]+"
    rf"(?:{_STATE}[ \t]+(?P<nodes>\S+)|n/a\b)|(?P<unread>[^\n]*))",
    re.MULTILINE,
)
"""A row of sinfo's own table; a partition without nodes has `0 n/a`."""
_GROUP = re.compile(rf"^{_STATE}\|(?P<gres>[^|\n]*)\|(?P<nodes>\S+)[ \t]*$", re.MULTILINE)
_PAIR = re.compile(rf"^(?P<nodes>[\w.-]+),{_STATE}[ \t]*$", re.MULTILINE)
_HOSTS = r"[\w.-]+(?:\[[\d,-]+\])?(?:,[\w.-]+(?:\[[\d,-]+\])?)*"
_REASON = re.compile(rf"^(?P<reason>\S[^|\n]*?)(?:\||[ \t]{{2,}})(?P<nodes>{_HOSTS})[ \t]*$", re.MULTILINE)
_FIELD = re.compile(r"\b(?P<key>[A-Za-z]\w*)=(?P<value>[^\s=]*)")
_GRES = re.compile(r"(?:^|,)gpu(?::(?P<type>[^:,()]+))?(?::(?P<count>\d{1,6}))?(?=$|[,(])")
_PAREN = re.compile(r"\([^)]*\)")


def states(word: str) -> tuple[str, ...]:
    """Return a state as sinfo prints it (`down*`, `drained`, `idle~`) in plain words."""
    base = word.rstrip("".join(MARKS))
    marks = dict.fromkeys(MARKS[mark] for mark in word[len(base) :])
    # an idle node that backfill keeps for a job is shown as planned alone
    if base in ("planned", "plnd"):
        return ("idle", *dict.fromkeys(("planned", *marks)))
    return (_LONG.get(base, base), *marks)


def gpus(gres: str) -> int:
    """Return the GPUs or GPU instances of a Gres: `gpu:h200:8(S:0-1)` → 8, `gpu:1g.10gb:2,gpu:2g.20gb:2` → 4, `gpu` → 1."""
    text = _PAREN.sub("", gres)
    return sum(_count(match) for match in _GRES.finditer(text))


class SinfoTable(Struct, frozen=True, kw_only=True):
    """Nodes and partitions in output of sinfo, and rows that speak against them.

    `unavailable` maps partitions that take no jobs to their state. `unequal` are rows whose number of nodes is not that of their
    names, `unread` rows that cannot be read. `is_cut`: the text lists more hosts than any cluster has, and none is read.
    """

    nodes: tuple[SlurmNode, ...] = ()
    unavailable: dict[str, str] = {}
    unequal: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    is_cut: bool = False


def sinfo(text: str) -> tuple[SlurmNode, ...]:
    """Return the nodes in sinfo output: its own table, `%T|%G|%N`, or `%n,%T`. A node that stands twice has its worst state."""
    return sinfo_table(text).nodes


def lists_nodes(text: str) -> bool:
    """Return True if a text has a row with nodes that `sinfo` reads."""
    return any(pattern.search(text) is not None for pattern in (_SINFO, _GROUP, _PAIR))


def sinfo_table(text: str) -> SinfoTable:
    """Return the nodes in sinfo output, and what of its rows speaks against them or cannot be read."""
    text = text[:MAX_TEXT]
    table = list(_SINFO.finditer(text))
    rows = [match for match in (*table, *_GROUP.finditer(text), *_PAIR.finditer(text)) if match["nodes"]]
    lists = list(itertools.takewhile(lambda hosts: len(hosts) < MOST, expand_hostlists(match["nodes"] for match in rows)))
    if len(lists) < len(rows) or sum(map(len, lists)) >= MOST_LISTED:
        return SinfoTable(is_cut=True)
    listed: list[SlurmNode] = []
    unequal = []
    for match, hosts in zip(rows, lists, strict=True):
        known = match.groupdict()
        gres = "" if known.get("gres") == "(null)" else known.get("gres") or ""
        words, number = states(match["state"]), gpus(gres)
        listed += [SlurmNode(name=name, states=words, gres=gres, gpus=number) for name in hosts]
        if known.get("count") and int(match["count"]) != len(hosts):
            unequal.append(match[0][:200])
    return SinfoTable(
        nodes=worst(listed),
        unavailable={match["partition"].rstrip("*"): match["available"] for match in table if match["available"] != "up"},
        unequal=tuple(unequal),
        unread=tuple(match[0][:200] for match in table if match["unread"] is not None),
    )


def worst(listed: Iterable[SlurmNode]) -> tuple[SlurmNode, ...]:
    """Return each node once, in its worst state: it stands in the lists of several partitions, or of several outputs."""
    nodes: dict[str, SlurmNode] = {}
    for node in listed:
        known = nodes.setdefault(node.name, node)
        if known.states != node.states and _badness(known.states) < _badness(node.states):
            nodes[node.name] = node
    return tuple(nodes.values())


def _badness(words: tuple[str, ...]) -> int:
    """Return 0 for states in which a node takes jobs, 1 for a node that sleeps, 2 for any other."""
    if takes_jobs(words):
        return 0
    return 1 if takes_jobs(words, powered_down=True) else 2


def reasons(text: str) -> dict[str, str]:
    """Return the reasons for which nodes are not usable, by node, from `sinfo -R` with `%E|%N` or in columns."""
    by_node: dict[str, str] = {}
    rows = [match for match in _REASON.finditer(text[:MAX_TEXT]) if not match["reason"].startswith(("REASON", "PARTITION"))]
    for match, hosts in zip(rows, expand_hostlists(match["nodes"] for match in rows), strict=True):
        for name in hosts:
            by_node.setdefault(name, match["reason"].strip())
    return by_node


def with_reasons(nodes: tuple[SlurmNode, ...], known: dict[str, str]) -> tuple[SlurmNode, ...]:
    """Return the nodes with their reasons filled in."""
    return tuple(msgspec.structs.replace(node, reason=known.get(node.name, node.reason)) for node in nodes)


def read_rest_nodes(text: str) -> tuple[tuple[SlurmNode, ...], tuple[str, ...]]:
    """Return nodes and errors in an answer of slurmrestd's `/slurm/vN/nodes` or `/node/NAME`, of any version."""
    try:
        document = msgspec.json.decode(text[:MAX_TEXT].encode(errors="replace"))
    except UNREADABLE_JSON:
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
