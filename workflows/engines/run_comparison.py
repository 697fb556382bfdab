"""Compare the evidence of two runs except for times and ids, and list the differences as sentences.

Lists are compared without regard to order, because an API server lists objects by names that contain ids. Only the plan's lists
keep their order. Names of pods count without the letters that Kubernetes or Argo appended.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.canonical import UNREADABLE_JSON
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

_RANDOM = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of the random parts of names: Kubernetes leaves out vowels and what looks like them, so that no words arise
(https://github.com/kubernetes/apimachinery/blob/master/pkg/util/rand/rand.go).
"""
_APPENDED = rf"(?=[0-9]*[a-z])[{_RANDOM}]"
"""Beginning of a random part. A part of digits alone is a number, such as a node's."""

_TEXTS = (
    # the name of a Workflow, its template and a number: Argo's pods
    (re.compile(r"\bRUN-[a-z0-9-]*?-?\d{6,10}\b"), "RUN-POD"),
    # the hash of a ReplicaSet, then five random letters
    (re.compile(rf"(?<=[a-z0-9])-{_APPENDED}{{8,10}}(?:-[{_RANDOM}]{{5}})?(?![a-z0-9-])"), "-POD"),
    (re.compile(rf"(?<=[a-z0-9])-{_APPENDED}{{5}}(?![a-z0-9-])"), "-POD"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"), "TIME"),
    (re.compile(r"\b(?:\d+ h )?(?:\d+ min )?\d+(?:\.\d+)? (?:s|ms|min|h)\b"), "SPAN"),
    (re.compile(r"https?://(127\.0\.0\.1|localhost):\d+"), "http://LOCAL"),
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
MOST_DIFFERENCES = 200
_FIRST_TIME = 1.5e9
"""UTC seconds of the year 2017: a larger number in a field with the name of a time is one."""
_TIME_FIELD = re.compile(r"(?:^|_|[a-z](?=A))(?:at|At|until|asked|created|updated|renewed|ended|expires|deadline|timestamp|time)$")


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
    return {key: _Cleaner(run, key == "plan.json").cleaned(_decoded(store, prefix + key)) for key in compared}


def _decoded(store: Store, key: str) -> Any:
    try:
        return msgspec.json.decode(store.read(key) or b"null")
    except UNREADABLE_JSON as error:
        raise BadTask(f"{key} cannot be read: {error}", hint=f"bringup verify {key.split('/')[1]}") from error


@dataclass(frozen=True)
class _Cleaner:
    """Replaces times, ids and names of pods in JSON data of a run; `is_ordered`: the order of lists of texts has a meaning."""

    run: str
    is_ordered: bool

    def cleaned(self, value: Any, field: str = "") -> Any:
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, list):
            items = [self.cleaned(item, field) for item in value]
            is_sorted = not self.is_ordered or any(isinstance(item, dict) for item in items)
            return sorted(items, key=msgspec.json.encode) if is_sorted else items
        if isinstance(value, str):
            return _text(value, self.run, field)
        is_time = isinstance(value, int | float) and value > _FIRST_TIME and _TIME_FIELD.search(field)
        return "TIME" if is_time else value

    def _mapping(self, value: dict[str, Any]) -> dict[str, Any]:
        """Return a mapping with cleaned keys; what several pods of one name have is a list."""
        groups: dict[str, list[Any]] = {}
        for key, item in value.items():
            if key not in _PASSING:
                groups.setdefault(_text(key, self.run, ""), []).append(self.cleaned(item, key))
        return {
            key: items[0] if len(items) == 1 else sorted(items, key=msgspec.json.encode) for key, items in sorted(groups.items())
        }


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
