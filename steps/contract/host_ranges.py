"""Host ranges as administrators write them: `gpu[001-016,020]` ↔ names, on ClusterShell's ranges of numbers."""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator

from ClusterShell.RangeSet import RangeSet

# NodeSet of ClusterShell does not fit. It sorts hosts, while the order in a spec decides which address each host gets.
# It takes ten times as long to fold 10,000 hosts of racks, and imports a configuration reader that pods do not need.

_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,9})([^0-9]*)", re.DOTALL)
_PIECE = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")
_BRACKET = re.compile(r"\[([^\]]*)\]")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


def fold(names: Iterable[str]) -> str:
    """Return the shortest range text for host names: `gpu001 gpu002 gpu004` → `gpu[001-002,004]`.

    Only the last number of each name is folded, and its padding is kept. Names without a number follow as they are.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    plain = []
    for name in sorted(set(names)):
        match = _LAST_NUMBER.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            groups.setdefault((match[1], match[3]), []).append(match[2])
    return ",".join([*(_fold(head, tail, numbers) for (head, tail), numbers in groups.items()), *plain])


def _fold(head: str, tail: str, numbers: list[str]) -> str:
    return f"{head}{numbers[0]}{tail}" if len(numbers) == 1 else f"{head}[{RangeSet.fromlist(numbers)}]{tail}"


def expand(text: str) -> Iterator[str]:
    """Yield the host names of a range text that is known to be sound: `rack[1-2]-node[01,04],login` → `rack1-node01` … `login`.

    Hosts come in the order of the text, the rightmost bracket running fastest.
    """
    for piece in _PIECE.findall(text):
        parts = _BRACKET.split(piece.strip())
        # span by span: a RangeSet of the whole bracket would sort them
        choices = [
            [number for span in part.split(",") for number in RangeSet(span.strip())] if position % 2 else [part]
            for position, part in enumerate(parts)
        ]
        yield from map("".join, itertools.product(*choices))


def fold_lines(lines: Iterable[str], hosts: Collection[str]) -> tuple[str, ...]:
    """Merge lines that differ only in the first host name in them into one line with a range of hosts; return all lines."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        host = next((match for match in _WORD.finditer(line) if match[0] in hosts), None)
        if host is None:
            grouped.setdefault((line, ""), [])
        else:
            grouped.setdefault((line[: host.start()], line[host.end() :]), []).append(host[0])
    return tuple(f"{before}{fold(names)}{after}" for (before, after), names in grouped.items())
