"""From which release to which an upgrade of RKE2 took hosts, as their own plays show it."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from steps.contract.evidence import Evidence
from steps.contract.operation import Kind
from steps.contract.plural import count

STAGE = "rke2"


def upgraded(operation: str, records: Iterable[Evidence]) -> str:
    """`RKE2 v1.35.6+rke2r1 → v1.35.7+rke2r1 on 12 hosts`; empty for other operations, and where no host has changed its release.

    A host counts once it runs another release than the one that is kept there, and some attempt of this run changed something.
    """
    if operation.partition(" ")[0] != Kind.UPGRADE.value:
        return ""
    changed: set[str] = set()
    went: dict[str, tuple[str, str]] = {}
    for row in (row for record in records if record.stage == STAGE for row in _rows(record.observation)):
        node, facts = str(row.get("node", "")), row.get("facts") or {}
        before, now = str(facts.get("kept", "")), str(facts.get("version", ""))
        changed |= {node} if row.get("changed") else set()
        if before and now:
            went[node] = (before, now)
    found = Counter(pair for node, pair in went.items() if node in changed and pair[0] != pair[1])
    return "; ".join(f"RKE2 {before} → {now} on {count(number, 'host')}" for (before, now), number in found.most_common())


def _rows(observation: Any) -> list[dict[str, Any]]:
    """The hosts of a play, as its record has them; none of any other record."""
    rows = observation.get("nodes") if isinstance(observation, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list | tuple) else []
