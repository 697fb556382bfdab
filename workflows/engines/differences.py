"""Two runs compared by their evidence: equal but for times and ids, or where they differ, in sentences.

Objects in a list are compared whatever their order: an API server lists by names that are partly ids.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from steps.clients.store import Store
from steps.contract import run as contract
from steps.errors import BadTask

COMPARED = ("evidence", "quarantine", "hosts.json", "plan.json", "run.json")
"""Parts of `runs/RUN/` that say what happened; reports and seals are derived from them, logs tell it anew."""

_PASSING = frozenset(
    (
        "started",
        "finished",
        "since",
        "time",
        "seen",
        "now",
        "read",
        "epoch",
        "run",
        "engine",
        "uid",
        "target_uid",
        "resourceVersion",
        "evidence_now",
    )
)
"""Fields that are times or ids; `engine` says by what the run was done."""

_TEXTS = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b(?:\d+ h )?(?:\d+ min )?\d+(?:\.\d+)? (?:s|ms)\b"), "SPAN"),
    (re.compile(r"https?://(127\.0\.0\.1|localhost):\d+"), "http://LOCAL"),
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MOST = 200


def differences(store: Store, one: str, other: str) -> tuple[str, ...]:
    """What differs between two runs of a store; empty when nothing does. Raises BadTask for a run that is not there."""
    left, right = _bundle(store, one), _bundle(store, other)
    found = [f"{key}: only in {one}" for key in left if key not in right]
    found += [f"{key}: only in {other}" for key in right if key not in left]
    for key in left:
        if key in right:
            found += [f"{key}: {place}" for place in _compare(left[key], right[key], "")]
    return tuple(found[:MOST]) + ((f"… and {len(found) - MOST} more",) if len(found) > MOST else ())


def _bundle(store: Store, run: str) -> dict[str, Any]:
    """Key below the run → its JSON without what passes."""
    if store.read(contract.header_key(run)) is None:
        raise BadTask(f"the store has no run {run}", hint="bring a run of Argo here first: bringup pull RUN")
    prefix = f"runs/{run}/"
    keys = [key.removeprefix(prefix) for key in store.keys(f"runs/{run}")]
    kept = [key for key in keys if key.split("/", 1)[0] in COMPARED and key.endswith(".json")]
    return {key: _cleaned(msgspec.json.decode(store.read(prefix + key) or b"null"), run) for key in kept}


def _cleaned(value: Any, run: str, field: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _cleaned(item, run, key) for key, item in value.items() if key not in _PASSING}
    if isinstance(value, list):
        cleaned = [_cleaned(item, run, field) for item in value]
        return sorted(cleaned, key=msgspec.json.encode) if any(isinstance(item, dict) for item in cleaned) else cleaned
    return _text(value, run, field) if isinstance(value, str) else value


def _text(text: str, run: str, field: str) -> str:
    text = text.replace(run, "RUN")
    for pattern, word in _TEXTS:
        text = pattern.sub(word, text)
    return text if field in ("input_digest", "plan", "inputDigest") else _DIGEST.sub("DIGEST", text)


def _compare(left: Any, right: Any, place: str) -> Iterator[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys((*left, *right)):
            yield from _compare(left.get(key), right.get(key), f"{place}.{key}" if place else key)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (one, other) in enumerate(zip(left, right, strict=True)):
            yield from _compare(one, other, f"{place}[{number}]")
    elif left != right:
        yield f"{place}: {_short(left)} against {_short(right)}"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}…"
