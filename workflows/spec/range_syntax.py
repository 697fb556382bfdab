"""Host ranges of a spec, such as `gpu[001-016,020]`: check and count them before ClusterShell expands them.

Brackets multiply (`rack[01-04]-node[01-16]`), the rightmost running fastest, so that hosts come rack by rack. One text may hold
several ranges with commas between them.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Sequence

from steps.contract import host_ranges

MOST_HOSTS = 20_000
"""Largest number of hosts of one range, twice the largest planned fleet: `n[1-1000000000]` is refused before it is expanded."""
LONGEST = 4000
"""Limit of one range text of a spec in characters."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")
_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_TOO_MANY = "split the fleet into several clusters"


class BadRange(ValueError):
    """Exception for a host range that cannot be read; `fix` says what to write instead."""

    def __init__(self, problem: str, fix: str) -> None:
        self.problem = problem
        self.fix = fix
        super().__init__(f"{problem}; {fix}")


@functools.lru_cache(maxsize=256)  # rules, models and the fleet of one spec expand the same ranges
def expand(text: str) -> tuple[str, ...]:
    """Return the host names of a range text, in its order.

    Raises:
        BadRange: brackets do not match, a range runs backwards, pads unequally, repeats a host or is too large.
    """
    names: list[str] = []
    for piece in split(text):
        if _count(piece) > MOST_HOSTS - len(names):
            raise BadRange(f"more than {MOST_HOSTS} hosts", _TOO_MANY)
        names.extend(host_ranges.expand(piece))
    if len(set(names)) != len(names):
        raise BadRange(f"{_first_repeat(names)} is named twice", "name each host once")
    return tuple(names)


def size(text: str) -> int:
    """Return how many hosts a range text has, without expanding it; 0 for a text that cannot be read."""
    try:
        return sum(map(_count, split(text)))
    except BadRange:
        return 0


def split(text: str) -> list[str]:
    """Return the single ranges of a text, split at the commas outside brackets.

    Raises:
        BadRange: brackets do not match, or a range is empty.
    """
    pieces, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
        elif letter == "," and depth == 0:
            pieces.append(text[start:position].strip())
            start = position + 1
        if depth not in (0, 1):
            raise BadRange("the brackets do not match", "write one [from-to] after another, not inside each other")
    if depth:
        raise BadRange("a bracket is not closed", "write gpu[001-016]")
    pieces.append(text[start:].strip())
    if not all(pieces):
        raise BadRange("a range is empty", "remove the extra comma")
    return pieces


def texts(names: Iterable[str]) -> list[str]:
    """Return range texts for host names, one for each pattern of names, none longer than LONGEST."""
    return [text for piece in split(host_ranges.fold(names)) for text in _short(piece)]


def _short(piece: str) -> list[str]:
    """Return a range as texts of at most LONGEST characters, halving it as often as needed: numbers with gaps make long texts."""
    if len(piece) <= LONGEST:
        return [piece]
    names = expand(piece)
    half = len(names) // 2
    return [*texts(names[:half]), *texts(names[half:])]


def _count(piece: str) -> int:
    """Return how many hosts one range has. Raises BadRange if it or a host name in it is malformed."""
    literals = _BRACKET.split(piece)
    fixed, brackets = literals[0::2], [_numbers(body) for body in literals[1::2]]
    sample = fixed[0] + "".join(first + tail for (_, first), tail in zip(brackets, fixed[1:], strict=True))
    if not _NAME.match(sample):
        raise BadRange(f"{sample!r} is not a host name", "use letters, digits, dots and dashes, as in gpu[001-016]")
    return math.prod(count for count, _ in brackets)


def _numbers(body: str) -> tuple[int, str]:
    """Return how many numbers the text between two brackets has, and the first of them as printed."""
    count, printed = 0, ""
    for part in body.split(","):
        match = _PART.match(part.strip())
        if match is None:
            raise BadRange(f"[{body}] is not a range", "write numbers as in [001-016] or [1,3,5-8]")
        count += _length(match[1], match[2] or match[1])
        printed = printed or match[1]
        if count > MOST_HOSTS:
            raise BadRange(f"more than {MOST_HOSTS} hosts", _TOO_MANY)
    return count, printed


def _length(first: str, last: str) -> int:
    low, high = int(first), int(last)
    if low > high:
        raise BadRange(f"[{first}-{last}] runs backwards", f"write [{last}-{first}]")
    if high - low >= MOST_HOSTS:
        raise BadRange(f"[{first}-{last}] holds more than {MOST_HOSTS} hosts", _TOO_MANY)
    if len(first) != len(last) and any(end.startswith("0") and len(end) > 1 for end in (first, last)):
        width = max(len(first), len(last))
        raise BadRange(f"[{first}-{last}] pads its ends differently", f"write [{first.zfill(width)}-{last.zfill(width)}]")
    return high - low + 1


def _first_repeat(names: Sequence[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""
