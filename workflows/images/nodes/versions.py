"""Order of Debian versions, as dpkg has it (deb-version(7)): `~` before the end, letters before other signs, numbers as numbers."""

import re
from collections.abc import Iterator
from functools import total_ordering
from itertools import zip_longest

_Part = tuple[tuple[int, ...], int]
_PARTS = re.compile(r"(\D*)(\d*)")
_END: _Part = ((0,), 0)
"""What the end of a text weighs: no sign, and a number that is left out."""


@total_ordering
class Version:
    """A version that can be compared."""

    def __init__(self, text: str) -> None:
        epoch, colon, rest = text.partition(":")
        if not colon:
            epoch, rest = "0", text
        upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "0")
        self.epoch = int(epoch) if epoch.isdigit() else 0
        self._parts: tuple[list[_Part], ...] = ([((0,), self.epoch)], _parts(upstream), _parts(revision))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and all(one == two for one, two in self._beside(other))

    def __lt__(self, other: "Version") -> bool:
        return next((one < two for one, two in self._beside(other) if one != two), False)

    def __hash__(self) -> int:
        return hash(tuple(tuple(part for part in parts if part != _END) for parts in self._parts))

    def _beside(self, other: "Version") -> Iterator[tuple[_Part, _Part]]:
        for mine, theirs in zip(self._parts, other._parts, strict=True):
            yield from zip_longest(mine, theirs, fillvalue=_END)


def _parts(text: str) -> list[_Part]:
    """Signs and the number behind them, in turn; each run of signs ends with the end's own weight, which only `~` goes below."""
    return [((*(_weight(sign) for sign in signs), 0), int(number or 0)) for signs, number in _PARTS.findall(text)]


def _weight(sign: str) -> int:
    if sign == "~":
        return -1
    return ord(sign) if sign.isalpha() else ord(sign) + 256
