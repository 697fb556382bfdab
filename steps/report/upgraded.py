"""From which release to which an upgrade of RKE2 took hosts, or a rollback took them back, as their own plays show it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from steps.contract.evidence import Evidence
from steps.contract.operation import Kind
from steps.contract.plural import count

STAGE = "rke2"


def upgraded(operation: str, records: Iterable[Evidence]) -> str:
    """`RKE2 v1.35.6+rke2r1 → v1.35.7+rke2r1 on 12 hosts`, `RKE2 v1.35.6+rke2r1 again on 12 hosts; etcd set back to FILE on sv1`;
    empty for other operations, and where no host has changed its release.
    """
    rows = [row for record in records if record.stage == STAGE for row in _rows(record.observation)]
    match operation.partition(" ")[0]:
        case Kind.UPGRADE.value:
            return _forward(rows)
        case Kind.ROLLBACK.value:
            return _back(rows)
        case _:
            return ""


def _back(rows: Iterable[dict[str, Any]]) -> str:
    """A host counts once it runs the release that is kept there, and some attempt of this run changed something."""
    again: dict[str, str] = {}
    restored: dict[str, str] = {}
    changed: set[str] = set()
    for node, facts, touched in _shown(rows):
        changed |= {node} if touched else set()
        if facts.get("version") and facts.get("version") == facts.get("kept"):
            again[node] = str(facts["version"])
        if facts.get("restored"):
            restored[node] = str(facts["restored"])
    found = Counter(version for node, version in again.items() if node in changed)
    said = [f"RKE2 {version} again on {count(number, 'host')}" for version, number in found.most_common()]
    return "; ".join([*said, *(f"etcd set back to {path} on {node}" for node, path in restored.items())])


def _forward(rows: Iterable[dict[str, Any]]) -> str:
    """A host counts once it runs another release than the one kept there, and some attempt of this run changed something."""
    changed: set[str] = set()
    went: dict[str, tuple[str, str]] = {}
    for node, facts, touched in _shown(rows):
        before, now = str(facts.get("kept", "")), str(facts.get("version", ""))
        changed |= {node} if touched else set()
        if before and now:
            went[node] = (before, now)
    found = Counter(pair for node, pair in went.items() if node in changed and pair[0] != pair[1])
    return "; ".join(f"RKE2 {before} → {now} on {count(number, 'host')}" for (before, now), number in found.most_common())


def _shown(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Name, facts, and whether the play changed something, of each host."""
    for row in rows:
        yield str(row.get("node", "")), row.get("facts") or {}, bool(row.get("changed"))


def _rows(observation: Any) -> list[dict[str, Any]]:
    """The hosts of a play, as its record has them; none of any other record."""
    rows = observation.get("nodes") if isinstance(observation, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list | tuple) else []
