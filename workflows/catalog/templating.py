"""Helm values from catalog data: references to the spec are filled in, and layers are merged.

- `${path}`: the value at a dotted path of the scope. A text that is a single reference keeps the type of the value
  (`${accelerator.per_node}` → 8); inside a longer text it is printed. A path without a value is an error.
- `{$each: path, $key: K, $value: V}`: a map with one entry for each item of a list; `${item.…}` is the item.
  Without `$key` it is a list.
- `{$when: CRITERIA, …}`: a map that is left out, with its key, unless the criteria match the spec. With `$value` inside, that
  value replaces the map.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflows.catalog.criteria import Facts, matches

_REFERENCE = re.compile(r"\$\{([a-z0-9_.]+)\}")


class BadReference(ValueError):
    """A reference in catalog data to something that the spec does not have."""


class _Absent:
    """Marker of a part that `$when` leaves out."""


_ABSENT = _Absent()


def fill(value: Any, scope: Mapping[str, Any], facts: Facts) -> Any:
    """Return the value with every reference replaced; None for a whole value that `$when` leaves out.

    Raises:
        BadReference: the message names the path.
    """
    filled = _fill(value, scope, facts)
    return None if filled is _ABSENT else filled


def _fill(value: Any, scope: Mapping[str, Any], facts: Facts) -> Any:
    if isinstance(value, Mapping):
        return _fill_map(value, scope, facts)
    if isinstance(value, list | tuple):
        return [part for part in (_fill(inner, scope, facts) for inner in value) if part is not _ABSENT]
    if not isinstance(value, str):
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole:
        return look_up(whole[1], scope)
    return _REFERENCE.sub(lambda match: _printed(look_up(match[1], scope)), value)


def _fill_map(value: Mapping[str, Any], scope: Mapping[str, Any], facts: Facts) -> Any:
    if "$when" in value and not matches(_criteria(value["$when"]), facts):
        return _ABSENT
    if "$each" in value:
        return _each(value, scope, facts)
    if "$value" in value:
        return _fill(value["$value"], scope, facts)
    pairs = ((_fill(key, scope, facts), _fill(inner, scope, facts)) for key, inner in value.items() if key != "$when")
    return {key: inner for key, inner in pairs if inner is not _ABSENT}


def _criteria(written: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    return {dimension: tuple(accepted) if isinstance(accepted, list) else (accepted,) for dimension, accepted in written.items()}


def _each(value: Mapping[str, Any], scope: Mapping[str, Any], facts: Facts) -> Any:
    inner = [{**scope, "item": item} for item in look_up(value["$each"], scope)]
    if "$key" not in value:
        return [_fill(value["$value"], one, facts) for one in inner]
    return {_fill(value["$key"], one, facts): _fill(value["$value"], one, facts) for one in inner}


def look_up(path: str, scope: Mapping[str, Any]) -> Any:
    """Return the value at a dotted path. Raises BadReference if there is none."""
    here: Any = scope
    for part in path.split("."):
        if not isinstance(here, Mapping) or part not in here:
            raise BadReference(f"${{{path}}} names nothing that a spec has")
        here = here[part]
    if here is None:
        raise BadReference(f"${{{path}}} is not set in this spec")
    return here


def _printed(value: Any) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return two layers of Helm values as one; neither is changed.

    The upper layer wins, maps merge, lists and scalars replace, and null removes: Helm's own rule.
    """
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of every value that a layer sets."""
    for key, value in values.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(value, Mapping) and value:
            yield from leaves(value, path)
        else:
            yield path


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, None if there is none."""
    here: Any = values
    for part in path.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    return here
