"""Comparison of two values of JSON data, leaf by leaf: each path at which they differ, with both values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ABSENT = "(none)"
"""Text shown for a path that only one of the two values has."""

LONGEST = 60
_NAMES = ("name", "task", "id", "key")

Leaf = tuple[str, Any, Any]
"""Path, old value and new value; a value is None where the path is missing."""


def differing(before: Any, after: Any, path: str = "") -> Iterator[Leaf]:
    """Yield every leaf that differs, in order. Items of lists are matched by name if they have names, else by position."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _each(before, after, f"{path}." if path else "")
    elif _is_list(before) and _is_list(after) and (_is_nested(before) or _is_nested(after)):
        yield from _each(_by_name(before), _by_name(after), path)
    elif isinstance(before, str) and isinstance(after, str) and "\n" in before + after:
        yield _first_line(before, after, path)
    else:
        yield path, before, after


def shown(value: Any) -> str:
    """Return a value on one line, cut if it is long."""
    if value is None:
        return ABSENT
    text = _flow(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _each(before: Mapping[str, Any], after: Mapping[str, Any], prefix: str) -> Iterator[Leaf]:
    for key in (*before, *(key for key in after if key not in before)):
        yield from differing(before.get(key), after.get(key), f"{prefix}{key}")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_nested(values: Sequence[Any]) -> bool:
    return any(isinstance(value, Mapping) for value in values)


def _by_name(values: Sequence[Any]) -> dict[str, Any]:
    """Return items of a list by their label in a path: `[Job nccl]`, `[worker]`, or `[2]` if names are missing or not unique."""
    names = [_name(value) for value in values]
    unique = all(names) and len(set(names)) == len(names)
    return {f"[{name if unique else number}]": value for number, (name, value) in enumerate(zip(names, values, strict=True))}


def _name(value: Any) -> str:
    if not isinstance(value, Mapping):
        return ""
    if isinstance(value.get("metadata"), Mapping):
        return f"{value.get('kind', '')} {value['metadata'].get('name', '')}".strip()
    return next((str(value[key]) for key in _NAMES if isinstance(value.get(key), str)), "")


def _first_line(before: str, after: str, path: str) -> Leaf:
    """Return the first line at which two long texts differ, with a path such as `valuesContent line 3`."""
    old, new = before.splitlines(), after.splitlines()
    number = next((at for at, (one, two) in enumerate(zip(old, new, strict=False)) if one != two), min(len(old), len(new)))
    first, second = (lines[number].strip() if number < len(lines) else None for lines in (old, new))
    return f"{path} line {number + 1}", first, second


def _flow(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if _is_list(value):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return " ".join(str(value).split()) if str(value) else '""'
