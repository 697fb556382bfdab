"""Expands Slurm's host lists (`gpu[001-016,020],login1`): bounded, and never raises on odd text."""

import re
from collections.abc import Iterator

MOST = 100_000
"""Most hosts of a list, more than any cluster has; a longer list is cut."""
_PART = re.compile(r"(?P<before>[^\[\],\s]*)\[(?P<ranges>[\d,-]+)\](?P<after>[^\[\],\s]*)|(?P<plain>[^\[\],\s]+)")


def expand(text: str) -> tuple[str, ...]:
    """Return the hosts of a list, in its order; numbers keep their leading zeros."""
    hosts: list[str] = []
    for match in _PART.finditer(text):
        if match["plain"]:
            hosts.append(match["plain"])
            continue
        numbers = _numbers(match["ranges"], MOST - len(hosts))
        hosts.extend(f"{match['before']}{number}{match['after'] or ''}" for number in numbers)
        if len(hosts) >= MOST:
            break
    return tuple(hosts[:MOST])


def _numbers(ranges: str, most: int) -> Iterator[str]:
    for part in ranges.split(","):
        low, dash, high = part.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or len(low) > 9 or len(high) > 9:
            continue
        first, last = int(low), int(high) if dash else int(low)
        for value in range(first, min(last, first + most) + 1):
            yield str(value).zfill(len(low))
