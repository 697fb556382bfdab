"""A gate does not pass without evidence: a passing case must not pass any more once one part of its observation is missing.

The things left out are every field and every row, at any depth; a text, time or list that must be there is emptied instead.
`allowed_gaps.json` lists the paths that no verdict hangs on, each with its reason; entries that nothing needs are reported too.
"""

import copy
import functools
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from steps.runtime import gating
from tests.gates import case_files
from tests.gates.case_files import read_case

FILES = [path for path in case_files.FILES if read_case(path)["verdict"] == "pass"]
NAMES = ("name", "type", "node", "kind", "size")
"""Fields that name a row in a path, by precedence; a row without any of them is named by its index."""
SEPARATOR = " > "
EMPTIED = (str, float, list, dict)
"""Types of values that can be present and empty; a number 0 or a `false` is information."""

Steps = tuple[str | int, ...]


class Gap(Struct, frozen=True, forbid_unknown_fields=True):
    """Paths that may be missing, as `GATE: FIELD > ROW > FIELD` with shell patterns for each part, and why; `cases` are the names
    of the only cases in which they may."""

    why: str
    paths: tuple[str, ...]
    cases: tuple[str, ...] = ("*",)


GAPS = msgspec.json.decode((case_files.FOLDER / "allowed_gaps.json").read_bytes(), type=tuple[Gap, ...])


def everything(value: Any, steps: Steps = (), labels: tuple[str, ...] = ()) -> Iterator[tuple[Steps, tuple[str, ...]]]:
    """Every field and row of an observation: how to get there, and what the way is called."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        label = str(key) if isinstance(value, dict) else called(item, key)
        yield (*steps, key), (*labels, label)
        yield from everything(item, (*steps, key), (*labels, label))


def called(row: Any, place: int) -> str:
    if isinstance(row, dict):
        return next((str(row[name]) for name in NAMES if isinstance(row.get(name), str | int)), str(place))
    return str(row)


def without(seen: Any, steps: Steps, kind: type) -> Any | None:
    """The observation without one thing; None where nobody can make such an observation.

    Only what lies on the way is copied: whole copies for each thing took half the time of all gate cases.
    """
    for empty in (False, True):
        changed = place = copy.copy(seen)
        for step in steps[:-1]:
            place[step] = place = copy.copy(place[step])
        gone = place.pop(steps[-1])
        if empty and not isinstance(gone, EMPTIED):
            return None
        if empty:
            place[steps[-1]] = type(gone)()
        try:
            return msgspec.convert(changed, kind)
        except msgspec.ValidationError:
            continue
    return None


@functools.cache
def gaps(path: Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The gate of a case, and the ways to what can be left out of its observation without another verdict than pass."""
    case = read_case(path)
    gate = gating.find(case["gate"])
    want: Any = msgspec.convert(case["want"], gate.expectation)
    seen = msgspec.json.decode(msgspec.json.encode(msgspec.convert(case["seen"], gate.observation)))
    return tuple(
        (gate.id, labels)
        for steps, labels in everything(seen)
        if (less := without(seen, steps, gate.observation)) is not None and gate.decide(less, want).is_pass
    )


def allows(pattern: str, gate: str, labels: tuple[str, ...]) -> bool:
    gates, _, way = pattern.partition(": ")
    parts = way.split(SEPARATOR)
    matches = (fnmatchcase(label, part) for label, part in zip(labels, parts, strict=False))
    return len(parts) == len(labels) and fnmatchcase(gate, gates) and all(matches)


def allowed(stem: str) -> list[str]:
    return [path for gap in GAPS if any(fnmatchcase(stem, name) for name in gap.cases) for path in gap.paths]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_missing_observation_is_no_pass(path: Path) -> None:
    patterns = allowed(path.stem)
    odd = [(gate, labels) for gate, labels in gaps(path) if not any(allows(pattern, gate, labels) for pattern in patterns)]
    assert not odd, "passes without: " + "; ".join(dict.fromkeys(f"{gate}: {SEPARATOR.join(labels)}" for gate, labels in odd))


def test_every_allowed_gap_is_one() -> None:
    found = [(path.stem, gaps(path)) for path in FILES]
    unused = [
        pattern
        for gap in GAPS
        for pattern in gap.paths
        if not any(
            allows(pattern, gate, labels)
            for stem, ways in found
            if any(fnmatchcase(stem, name) for name in gap.cases)
            for gate, labels in ways
        )
    ]
    assert unused == []


def test_reasons_are_given() -> None:
    assert all(len(gap.why) > 20 for gap in GAPS)
