"""Host ranges: `gpu[001-016,020]` ↔ names, zero padding kept, brackets multiply (`rack[01-04]-node[01-16]`).

Several ranges stand in one text, separated by commas outside brackets. The rightmost bracket runs fastest, as in ClusterShell
and Slurm, so order is rack by rack.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence

MOST_HOSTS = 20_000
"""More hosts than this in one range is refused before it is expanded (twice the largest planned fleet)."""
LONGEST = 4000
"""Letters that one range text of a spec may have."""

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?\Z")
_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?\Z")
_PIECE = re.compile(r"\[([^\[\]]*)\]")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,9})([^0-9]*)\Z", re.DOTALL)


class BadRange(ValueError):
    """A range cannot be read; `fix` says what to write."""

    def __init__(self, problem: str, fix: str) -> None:
        self.problem = problem
        self.fix = fix
        super().__init__(f"{problem}; {fix}")


def expand(text: str) -> tuple[str, ...]:
    """Return the host names of a range text in order.

    Raises:
        BadRange: brackets do not match, a range runs backwards, pads unequally, repeats a host or is too large.
    """
    names: list[str] = []
    for piece in split(text):
        names.extend(_expand_one(piece, MOST_HOSTS - len(names)))
    if len(set(names)) != len(names):
        raise BadRange(f"{_first_repeat(names)} stands twice", "name each host once")
    return tuple(names)


def size(text: str) -> int:
    """Return how many hosts a range text names, without naming them; 0 where it cannot be read."""
    try:
        return sum(math.prod(len(_numbers(body)) for body in _PIECE.findall(piece)) for piece in split(text))
    except BadRange:
        return 0


def split(text: str) -> list[str]:
    """Split at commas outside brackets; refuse unmatched brackets and empty pieces."""
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


def _expand_one(piece: str, room: int) -> Iterator[str]:
    literals = _PIECE.split(piece)
    fixed, brackets = literals[0::2], [_numbers(body) for body in literals[1::2]]
    if math.prod(map(len, brackets)) > room:
        raise BadRange(f"more than {MOST_HOSTS} hosts", "split the fleet into several clusters")
    sample = fixed[0] + "".join(numbers[0] + tail for numbers, tail in zip(brackets, fixed[1:], strict=True))
    if not _NAME.match(sample):
        raise BadRange(f"{sample!r} is not a host name", "use letters, digits, dots and dashes, as in gpu[001-016]")
    if not brackets:
        return iter((piece,))
    template = "%s".join(part.replace("%", "%%") for part in fixed)
    return (template % numbers for numbers in itertools.product(*brackets))


def _numbers(body: str) -> list[str]:
    """Return the printed numbers of one bracket: `001-003,7` → 001 002 003 7."""
    found: list[str] = []
    for part in body.split(","):
        match = _PART.match(part.strip())
        if match is None:
            raise BadRange(f"[{body}] is not a range", "write numbers as in [001-016] or [1,3,5-8]")
        found.extend(_count(match[1], match[2] or match[1]))
        if len(found) > MOST_HOSTS:
            raise BadRange(f"more than {MOST_HOSTS} hosts", "split the fleet into several clusters")
    return found


def _count(first: str, last: str) -> Sequence[str]:
    low, high = int(first), int(last)
    if low > high:
        raise BadRange(f"[{first}-{last}] runs backwards", f"write [{last}-{first}]")
    if high - low >= MOST_HOSTS:
        raise BadRange(f"[{first}-{last}] holds more than {MOST_HOSTS} hosts", "split the fleet into several clusters")
    padded = first.startswith("0") and len(first) > 1
    if padded and len(first) != len(last):
        width = max(len(first), len(last))
        raise BadRange(f"[{first}-{last}] pads its ends differently", f"write [{first.zfill(width)}-{last.zfill(width)}]")
    numbers = range(low, high + 1)
    return [f"{number:0{len(first)}d}" for number in numbers] if padded else list(map(str, numbers))


def _first_repeat(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return ""


def compress(names: Iterable[str]) -> str:
    """Return a short range text for names, folding each one's last number; `expand` gives the same set back.

    `gpu001 gpu002 gpu004` → `gpu[001-002,004]`.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    plain: list[str] = []
    for name in sorted(set(names)):
        match = _LAST_NUMBER.match(name)
        if match is None:
            plain.append(name)
        else:
            groups.setdefault((match[1], match[3]), []).append(match[2])
    folded = [text for (head, tail), digits in groups.items() for text in _fold_group(head, tail, digits)]
    return ",".join([*folded, *plain])


def texts(names: Iterable[str]) -> list[str]:
    """Return range texts for names as `compress`, one for each kind of name, none longer than a spec allows."""
    return [text for piece in split(compress(names)) for text in _short(piece)]


def _short(piece: str) -> list[str]:
    """Halve a piece until each part is short enough: numbers with many holes are a long text."""
    if len(piece) <= LONGEST:
        return [piece]
    names = expand(piece)
    half = len(names) // 2
    return [*texts(names[:half]), *texts(names[half:])]


def _fold_group(head: str, tail: str, digits: list[str]) -> Iterator[str]:
    padded = {len(text) for text in digits if text.startswith("0") and len(text) > 1}
    by_width: dict[int, list[int]] = {}
    for text in digits:
        by_width.setdefault(len(text) if len(text) in padded else 0, []).append(int(text))
    for width, numbers in sorted(by_width.items()):
        yield _fold(head, tail, width, sorted(numbers))


def _fold(head: str, tail: str, width: int, numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [_printed(low, width) if low == high else f"{_printed(low, width)}-{_printed(high, width)}" for low, high in runs]
    if len(numbers) == 1:
        return f"{head}{parts[0]}{tail}"
    return f"{head}[{','.join(parts)}]{tail}"


def _printed(number: int, width: int) -> str:
    return str(number).zfill(width)
