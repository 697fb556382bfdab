"""Host names → short ranges for people: `gpu001 gpu002 gpu004` → `gpu[001-002,004]`; and lines that differ by host only → one."""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator

_NUMBERED = re.compile(r"(.*?)(\d{1,9})(\D*)", re.DOTALL)
_PIECE = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_BRACKET = re.compile(r"\[([^\]]*)\]")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


def fold(names: Iterable[str]) -> str:
    """The names, each one's last number folded; names without a number follow as they are. Padding is kept."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    plain = []
    for name in sorted(set(names)):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            head, digits, tail = match.groups()
            padded = (digits.startswith("0") and len(digits) > 1) or (head, len(digits), tail) in groups
            groups.setdefault((head, len(digits) if padded else 0, tail), []).append(int(digits))
    return ",".join([*(_fold(*key, sorted(numbers)) for key, numbers in groups.items()), *plain])


def _fold(head: str, width: int, tail: str, numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    parts = [f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}" for low, high in runs]
    return f"{head}{parts[0]}{tail}" if len(numbers) == 1 else f"{head}[{','.join(parts)}]{tail}"


def unfold(text: str) -> Iterator[str]:
    """The names of a range text, as `fold` and specs write them: `rack[1-2]-node[01,04],login` → rack1-node01 … login."""
    for piece in _PIECE.findall(text):
        literals = _BRACKET.split(piece.strip())
        choices = [[part] if place % 2 == 0 else list(_numbers(part)) for place, part in enumerate(literals)]
        yield from map("".join, itertools.product(*choices))


def _numbers(body: str) -> Iterator[str]:
    for part in body.split(","):
        first, _, last = part.strip().partition("-")
        width = len(first) if first.startswith("0") else 0
        yield from (f"{number:0{width}d}" for number in range(int(first), int(last or first) + 1))


def by_hosts(lines: Iterable[str], hosts: Collection[str]) -> tuple[str, ...]:
    """Lines that are equal but for the first host they name, as one line with the range of these hosts; others as they are."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        found = next((match for match in _WORD.finditer(line) if match[0] in hosts), None)
        if found is None:
            grouped.setdefault((line, ""), [])
        else:
            grouped.setdefault((line[: found.start()], line[found.end() :]), []).append(found[0])
    return tuple(f"{before}{fold(names)}{after}" for (before, after), names in grouped.items())
