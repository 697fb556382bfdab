"""Reads gate cases: a file is a whole case, or names a base case of its folder and a JSON Patch over it."""

import json
from pathlib import Path
from typing import Any

import jsonpatch

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*/*.json"))
"""The files of all cases."""
INHERITED = ("gate", "seen", "want")
"""Fields that a case has from its base; the others are its own."""


def read_case(path: Path) -> dict[str, Any]:
    """Return a case with the observation and expectation of its base, if it has one, changed by its `patch` (RFC 6902)."""
    case: dict[str, Any] = json.loads(path.read_bytes())
    if "base" not in case:
        return case
    whole: dict[str, Any] = json.loads(path.with_name(f"{case.pop('base')}.json").read_bytes())
    inherited = {name: whole[name] for name in INHERITED}
    changed: dict[str, Any] = jsonpatch.apply_patch(inherited, case.pop("patch"))
    return changed | case
