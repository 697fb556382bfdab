"""Finds which releases of RKE2 an upgrade or rollback changed, from what the plays recorded for each host."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from steps.contract.plain_text import count
from steps.contract.runs.evidence import Evidence
from steps.contract.runs.operation import OperationKind

STAGE = "rke2"


def changed_releases(operation: str, records: Iterable[Evidence]) -> str:
    """Return the changed releases in words; empty for other operations, or if no host has changed its release.

    Examples: `RKE2 v1.35.6+rke2r1 → v1.35.7+rke2r1 on 12 hosts`, `RKE2 v1.35.6+rke2r1 again on 12 hosts; etcd set back to FILE on
    sv1`.
    """
    rows = [row for record in records if record.stage == STAGE for row in _rows(record.observation)]
    match operation.partition(" ")[0]:
        case OperationKind.UPGRADE.value:
            return _forward(rows)
        case OperationKind.ROLLBACK.value:
            return _back(rows)
        case _:
            return ""


def _back(rows: Iterable[dict[str, Any]]) -> str:
    """Return the sentence about a rollback. A host counts if it runs the release kept on it and this run changed something."""
    rolled_back: dict[str, str] = {}
    restored: dict[str, str] = {}
    changed: set[str] = set()
    for node, facts, touched in _shown(rows):
        changed |= {node} if touched else set()
        # `kept` is the release that the node kept for a rollback
        if facts.get("version") and facts.get("version") == facts.get("kept"):
            rolled_back[node] = str(facts["version"])
        if facts.get("restored"):
            restored[node] = str(facts["restored"])
    counts = Counter(version for node, version in rolled_back.items() if node in changed)
    sentences = [f"RKE2 {version} again on {count(number, 'host')}" for version, number in counts.most_common()]
    return "; ".join([*sentences, *(f"etcd set back to {path} on {node}" for node, path in restored.items())])


def _forward(rows: Iterable[dict[str, Any]]) -> str:
    """Return the sentence about an upgrade.

    A host counts if it runs another release than the one kept on it and an attempt changed something.
    """
    changed: set[str] = set()
    upgrades: dict[str, tuple[str, str]] = {}
    for node, facts, touched in _shown(rows):
        before, after = str(facts.get("kept", "")), str(facts.get("version", ""))
        changed |= {node} if touched else set()
        if before and after:
            upgrades[node] = (before, after)
    counts = Counter(pair for node, pair in upgrades.items() if node in changed and pair[0] != pair[1])
    return "; ".join(f"RKE2 {before} → {after} on {count(number, 'host')}" for (before, after), number in counts.most_common())


def _shown(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield for each host its name, its facts, and True if the play changed something."""
    for row in rows:
        yield str(row.get("node", "")), row.get("facts") or {}, bool(row.get("changed"))


def _rows(observation: Any) -> list[dict[str, Any]]:
    """Return the entries about hosts in a play's observation; none for an observation of another verb."""
    rows = observation.get("nodes") if isinstance(observation, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list | tuple) else []
