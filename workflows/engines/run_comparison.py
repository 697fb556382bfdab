"""Compare the evidence of two runs except for times and ids, and list the differences as sentences.

Lists of objects are compared without regard to order, because an API server lists objects by names that contain ids.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from steps.clients.store import Store
from steps.contract import run_records
from steps.errors import BadTask

COMPARED = ("evidence", "quarantine", "hosts.json", "plan.json", "run.json")
"""Files and folders below `runs/RUN/` that record what happened.

Reports and seals are not compared, since they are derived from these; logs differ in every run.
"""

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
"""Fields that are not compared: times, ids, and `engine`, the name of the engine of the run."""

_TEXTS = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b(?:\d+ h )?(?:\d+ min )?\d+(?:\.\d+)? (?:s|ms)\b"), "SPAN"),
    (re.compile(r"https?://(127\.0\.0\.1|localhost):\d+"), "http://LOCAL"),
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MOST_DIFFERENCES = 200


def differences(store: Store, first: str, second: str) -> tuple[str, ...]:
    """Return the differences between two runs of a store, at most `MOST_DIFFERENCES` and a count of the others.

    Raises BadTask for a run that is not in the store.
    """
    first_files, second_files = _bundle(store, first), _bundle(store, second)
    lines = [f"{key}: only in {first}" for key in first_files if key not in second_files]
    lines += [f"{key}: only in {second}" for key in second_files if key not in first_files]
    for key in first_files:
        if key in second_files:
            lines += [f"{key}: {place}" for place in _compare(first_files[key], second_files[key], "")]
    return tuple(lines[:MOST_DIFFERENCES]) + (
        (f"… and {len(lines) - MOST_DIFFERENCES} more",) if len(lines) > MOST_DIFFERENCES else ()
    )


def _bundle(store: Store, run: str) -> dict[str, Any]:
    """Return key → JSON data without times and ids, for each file of a run that is compared."""
    if store.read(run_records.header_key(run)) is None:
        raise BadTask(
            f"no run {run} on this machine", hint="`bringup runs` lists them; bring a run of Argo here first: bringup pull RUN"
        )
    prefix = f"runs/{run}/"
    keys = [key.removeprefix(prefix) for key in store.keys(f"runs/{run}")]
    compared = [key for key in keys if key.split("/", 1)[0] in COMPARED and key.endswith(".json")]
    return {key: _cleaned(msgspec.json.decode(store.read(prefix + key) or b"null"), run) for key in compared}


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
    # digests of evidence cover times and therefore differ; those of inputs must be equal
    return text if field in ("input_digest", "plan", "inputDigest") else _DIGEST.sub("DIGEST", text)


def _compare(left: Any, right: Any, place: str) -> Iterator[str]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in dict.fromkeys((*left, *right)):
            yield from _compare(left.get(key), right.get(key), f"{place}.{key}" if place else key)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for number, (left_item, right_item) in enumerate(zip(left, right, strict=True)):
            yield from _compare(left_item, right_item, f"{place}[{number}]")
    elif left != right:
        yield f"{place}: {_short(left)} against {_short(right)}"


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 120 else f"{text[:117]}…"
