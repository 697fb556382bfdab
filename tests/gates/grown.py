"""Grows a passing gate case to a fleet of any size: its rows of nodes are copied under new names until there are enough."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.verdict import Verdict
from steps.runtime import gating
from tests.gates.case_files import FILES, read_case

FEW = {
    "image_boot/boots": "test machines, of which there are two",
    "reset/servers": "servers of a control plane",
    "rke2/servers": "servers of a control plane",
}
"""Gates whose rows are not the nodes of a fleet, and what they are."""
COUNTED = frozenset({"desired", "ready", "updated", "idle", "allocated", "replicas", "selected"})
"""Fields outside rows of nodes that count nodes."""
NUMBERED = frozenset({"index", "peer"})
"""Fields inside rows that number nodes from 0."""
OWN = ("node", "name", "host")
"""Fields by which a row names its node."""


class GrownCase(Struct, frozen=True, kw_only=True):
    """A gate with the observation and expectation of a grown fleet, and the case that they come from."""

    gate: gating.Gate
    seen: Any
    want: Any
    source: str

    def decide(self) -> Verdict:
        """Return the gate's verdict."""
        verdict: Verdict = self.gate.decide(self.seen, self.want)
        return verdict


def gates_of_nodes() -> dict[str, Path]:
    """Return the gates that judge every node of a fleet, each with the passing case that is grown: the one called `pass` if any."""
    chosen: dict[str, tuple[tuple[bool, bool, int], Path]] = {}
    for path in FILES:
        case = read_case(path)
        if case["verdict"] != "pass" or case["gate"] in FEW:
            continue
        gate = gating.find(case["gate"])
        verdict = gate.decide(msgspec.convert(case["seen"], gate.observation), msgspec.convert(case["want"], gate.expectation))
        plain = path.stem == f"{gate.id.partition('/')[2]}_pass"
        rank = (plain, path.stem.endswith("_pass"), len(verdict.nodes))
        if verdict.nodes and (case["gate"] not in chosen or rank > chosen[case["gate"]][0]):
            chosen[case["gate"]] = rank, path
    return {gate: path for gate, (_, path) in sorted(chosen.items())}


def grow(path: Path, count: int) -> GrownCase:
    """Return a passing case with at least `count` nodes."""
    case = read_case(path)
    growth = _Growth(tuple(sorted(case["want"]["nodes"], key=len, reverse=True)), count)
    gate = gating.find(case["gate"])
    return GrownCase(
        gate=gate,
        seen=msgspec.convert(growth.grown(case["seen"]), gate.observation),
        want=msgspec.convert(growth.grown(case["want"]), gate.expectation),
        source=path.stem,
    )


class _Growth:
    """The names of a case's nodes, and how often its rows are copied."""

    def __init__(self, names: tuple[str, ...], count: int) -> None:
        self._names = names
        self._copies = range(-(-count // len(names)))

    def grown(self, value: Any, key: str = "") -> Any:
        """Return an observation or expectation in which all rows of nodes are copied."""
        if isinstance(value, dict):
            return {name: item for old, part in value.items() for name, item in self._entries(old, part)}
        if isinstance(value, list):
            return [item for part in value for item in self._items(part)]
        scaled = key in COUNTED and isinstance(value, int) and not isinstance(value, bool)
        return value * len(self._copies) if scaled else value

    def _entries(self, key: str, value: Any) -> Iterator[tuple[str, Any]]:
        if key not in self._names:
            yield key, self.grown(value, key)
            return
        for copy in self._copies:
            yield self._renamed(key, copy), self._copied(value, copy)

    def _items(self, value: Any) -> Iterator[Any]:
        named = value if isinstance(value, dict) else {OWN[0]: value}
        named = named["pod"] if isinstance(named.get("pod"), dict) else named
        if not any(named.get(field) in self._names for field in OWN):
            yield self.grown(value)
            return
        for copy in self._copies:
            yield self._copied(value, copy)

    def _copied(self, value: Any, copy: int, key: str = "") -> Any:
        if isinstance(value, dict):
            return {self._renamed(name, copy): self._copied(item, copy, name) for name, item in value.items()}
        if isinstance(value, list):
            return [self._copied(item, copy) for item in value]
        if isinstance(value, str):
            return self._renamed(value, copy)
        numbered = key in NUMBERED and isinstance(value, int) and value >= 0
        return value + copy * len(self._names) if numbered else value

    def _renamed(self, text: str, copy: int) -> str:
        for name in self._names:
            text = text.replace(name, f"{name}-{copy}") if copy else text
        return text
