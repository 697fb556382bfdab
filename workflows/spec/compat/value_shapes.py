"""Compare Helm values and objects with the shapes of `workflows/catalog/schemas`: misspelt keys, wrong types, unknown keys."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Flaw = Literal["misspelt", "type", "missing", "unknown"]
MOST_SEARCHED = 50
"""Largest number of unknown keys for which a similar known key is searched."""
_SIMILAR = 0.8
_TYPES: Mapping[str, tuple[type, ...]] = {
    "bool": (bool,),
    "number": (int, float, str),  # quantities, and numbers that templates print
    "text": (str, int, float),
    "list": (list, tuple),
    "map": (Mapping,),
}
_STRICT: Mapping[str, tuple[type, ...]] = {**_TYPES, "number": (int, float), "text": (str,)}
"""Types for a reader that converts nothing, as a kubelet."""


@dataclass(frozen=True, slots=True)
class ValueFlaw:
    """A key that does not fit its schema: what is wrong, and the similar key, wanted type or missing key."""

    path: str
    flaw: Flaw
    expected: str = ""


def knows(shape: Any, key: str) -> bool:
    """Return True if a shape has a dotted key, or holds any keys at its place."""
    for part in key.split("."):
        if not isinstance(shape, Mapping):
            return True
        named = {name.removesuffix("!"): inner for name, inner in shape.items()}
        if part not in named and "*" not in named:
            return False
        shape = named.get(part, named.get("*"))
    return True


class ShapeComparison:
    """A comparison of one set of values with a shape; it limits the costly searches for similar keys.

    `strict`: numbers are no text and text is no number, because no template prints them.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._searched = 0
        self._types = _STRICT if strict else _TYPES

    def flaws(self, value: Any, shape: Any, path: str) -> Iterator[ValueFlaw]:
        """Yield the flaws of a value and everything below it. A null value fits, since Helm then removes the default."""
        if shape == "any" or value is None:
            return
        if isinstance(shape, str):
            kinds = self._types[shape]
            if not isinstance(value, kinds) or (isinstance(value, bool) and shape != "bool"):
                yield ValueFlaw(path, "type", shape)
        elif isinstance(shape, list):
            if not isinstance(value, list | tuple):
                yield ValueFlaw(path, "type", "list")
                return
            for index, item in enumerate(value):
                yield from self.flaws(item, shape[0], f"{path}[{index}]")
        elif isinstance(value, Mapping):
            yield from self._keys(value, shape, path)
        else:
            yield ValueFlaw(path, "type", "map")

    def _keys(self, value: Mapping[str, Any], shape: Mapping[str, Any], path: str) -> Iterator[ValueFlaw]:
        known = {name.removesuffix("!"): inner for name, inner in shape.items()}
        for key, inner in value.items():
            below = known.get(key, known.get("*"))
            if below is not None:
                yield from self.flaws(inner, below, f"{path}.{key}")
            else:
                near = self.similar(key, known)
                yield ValueFlaw(f"{path}.{key}", "misspelt" if near else "unknown", near)
        for name in shape:
            if name.endswith("!") and name[:-1] not in value:
                yield ValueFlaw(path, "missing", name[:-1])

    def similar(self, key: str, known: Collection[str]) -> str:
        """Return the known key that a key resembles; empty if there is none, or if too many were searched."""
        self._searched += 1
        if self._searched > MOST_SEARCHED:
            return ""
        plain = {name.lower().replace("_", "").replace("-", ""): name for name in known}
        near = difflib.get_close_matches(key.lower().replace("_", "").replace("-", ""), plain, n=1, cutoff=_SIMILAR)
        return plain[near[0]] if near else ""
