"""Helm values in layers: later layers win, maps merge, lists and scalars replace, null removes (Helm's own rule)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    """Return the two layers as one; neither is changed."""
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
    """Return the value at a dotted path, or None."""
    here: Any = values
    for part in path.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    return here
