"""Expands Slurm's host lists (`gpu[001-016,020],login1`): bounded, and never an exception on odd text."""

import re
from collections.abc import Iterator

MOST = 100_000
"""More hosts than any cluster here; a list that names more is cut."""
_PART = re.compile(r"(?P<before>[^\[\],\s]*)\[(?P<ranges>[\d,-]+)\](?P<after>[^\[\],\s]*)|(?P<plain>[^\[\],\s]+)")


def expand(text: str) -> tuple[str, ...]:
    """The hosts of a list, in its order; numbers keep their leading zeros."""
    found: list[str] = []
    for match in _PART.finditer(text):
        if match["plain"]:
            found.append(match["plain"])
            continue
        numbers = _numbers(match["ranges"], MOST - len(found))
        found.extend(f"{match['before']}{number}{match['after'] or ''}" for number in numbers)
        if len(found) >= MOST:
            break
    return tuple(found[:MOST])


def _numbers(ranges: str, most: int) -> Iterator[str]:
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or len(low) > 9 or len(high) > 9:
            continue
        first, last = int(low), int(high) if dash else int(low)
        for value in range(first, min(last, first + most) + 1):
            yield str(value).zfill(len(low))
