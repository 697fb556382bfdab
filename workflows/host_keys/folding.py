"""What was found of many hosts as few lines: hosts with the same outcome are one range. Pure.

A fingerprint that somebody has to compare stays on a line of its own, as long as there are few enough for a person.
"""

from collections.abc import Iterable, Iterator, Sequence

from workflows.host_keys.model import Seen, State
from workflows.spec.ranges import compress

SHOWN = 50
"""Hosts whose new keys are shown one by one; more are compared by a program (`-o json`)."""
_ALONE = (State.CHANGED, State.REVOKED)
"""What is always told of each host."""
_BEFORE_HOSTS = "jump host"
NOTHING = "-"
"""What stands in a cell that has nothing to say."""

Cells = tuple[str, str, str, str, str, str]
"""Host, address, type of key, fingerprint, state, and what else is to be said."""


def folded(rows: Sequence[Seen]) -> list[Cells]:
    """The lines for a person, in the order in which the first of each was found."""
    shown = len({row.place for row in rows if row.state is State.NEW}) <= SHOWN
    batches: dict[tuple[object, ...], list[Seen]] = {}
    for row in rows:
        alone = row.state in _ALONE or row.host == _BEFORE_HOSTS or (shown and row.state is State.NEW)
        kind = row.key.kind if row.key else ""
        batches.setdefault((row.state, kind, row.said, *((row.place, row.key) if alone else ())), []).append(row)
    return [_line(batch) for batch in batches.values()]


def columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """The columns in which at least one line says something: hosts that do not answer have neither types nor fingerprints."""
    told = [number for number, _ in enumerate(names) if any(row[number] not in ("", NOTHING) for row in rows)]
    return [names[number] for number in told], [[row[number] for number in told] for row in rows]


def of_each(rows: Iterable[Seen]) -> Iterator[Cells]:
    """A line for each key, for scripts."""
    return (_cells(row, row.host, row.place, row.key.fingerprint if row.key else NOTHING) for row in rows)


def _line(batch: Sequence[Seen]) -> Cells:
    first = batch[0]
    if len({row.host for row in batch}) == 1:
        return _cells(first, first.host, first.place, first.key.fingerprint if first.key else NOTHING)
    prints = {row.key.fingerprint for row in batch if row.key}
    told = next(iter(prints)) if len(prints) == 1 else f"{len(prints)} fingerprints" if prints else NOTHING
    return _cells(first, compress(row.host for row in batch), f"{len({row.place for row in batch})} addresses", told)


def _cells(row: Seen, host: str, place: str, fingerprint: str) -> Cells:
    return (host, place, row.key.kind if row.key else NOTHING, fingerprint, row.state.value, row.said)
