"""Parses tables that `kubectl get` and `kubectl describe` print (https://kubernetes.io/docs/reference/kubectl/).

Cells stand below the names of their columns, so an empty one is known by its place. A text may hold several tables, with command
lines between them, or rows without a header where somebody searched a list for a name. A row that fits no column is kept as unread.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

MOST_ROWS = 100_000
_GAP = re.compile(r"[ \t]{2,}|\t")
_HEADER = re.compile(r"^(?:NAMESPACE|NAME|LAST SEEN|LASTSEEN)(?:(?:[ \t]{2,}|\t)[A-Z%][^\n]*)?[ \t]*$")
_POD = re.compile(
    r"^(?:(?P<namespace>[a-z0-9-]+)[ \t]+)?(?P<name>(?:pod/)?[a-z0-9.-]+)[ \t]+(?P<ready>\d+/\d+)[ \t]+(?P<status>[A-Z][\w:/.-]*)"
    r"[ \t]+(?P<restarts>\d+)(?: \([^)]*\))?[ \t]+(?P<age>(?:\d+[smhdy])+|<invalid>|<unknown>)(?:[ \t]|$)"
)
_FIRST_CELL = re.compile(r"^[ \t]*(?:[a-z0-9][a-z0-9./:-]*|\d+[smhdy][^ \t]*(?: \([^)]*\))?|<[a-z]+>)(?:[ \t]{2,}|\t|[ \t]*$)")
"""First cell of a row, a name or an age: lines of other programs may stand between the rows, and are none."""
_AGE = re.compile(r"(\d{1,9})([smhdy])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}


class KubectlTable(Struct, frozen=True, kw_only=True):
    """A table: its columns, its rows by column, and the lines of rows whose cells fit no columns.

    `is_cut` is True if the last row is one of those.
    """

    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    unread: tuple[str, ...] = ()
    is_cut: bool = False

    def has(self, *columns: str) -> bool:
        """Return True if the table has all of these columns."""
        return all(column in self.columns for column in columns)


class PodRow(Struct, frozen=True, kw_only=True):
    """A row of `kubectl get pods`: containers ready and in all, status, restarts, age in seconds."""

    name: str
    ready: int
    containers: int
    status: str
    restarts: int
    age: int


def read(text: str) -> tuple[KubectlTable, ...]:
    """Return the tables with a header; a table ends at an empty line, a command, or the next header."""
    tables: list[_OpenTable] = []
    is_open = False
    for line in text.splitlines():
        if _HEADER.match(line):
            tables.append(_OpenTable(line))
            is_open = True
        elif not line.strip() or line.startswith("$"):
            is_open = False
        elif is_open:
            tables[-1].add(line)
    return tuple(table.closed() for table in tables)


class _OpenTable:
    """A table whose rows are being read."""

    def __init__(self, header: str) -> None:
        self._columns = tuple(_GAP.split(header.strip()))
        self._starts = [match.end() for match in re.finditer(r"^|[ \t]{2,}(?=\S)", header)]
        self._rows: list[dict[str, str]] = []
        self._unread: list[str] = []
        self._is_cut = False

    def add(self, line: str) -> None:
        """Read a line, which is a row or another program's."""
        cells = self._cells(line)
        if cells and len(self._rows) < MOST_ROWS:
            self._rows.append(dict(zip(self._columns, cells, strict=True)))
            self._is_cut = False
        elif (cells or _FIRST_CELL.match(line)) and len(self._unread) < MOST_ROWS:
            self._unread.append(line[:200])
            self._is_cut = True

    def _cells(self, line: str) -> list[str] | None:
        """Return the cells of a row; None if they do not fit the columns, or the last one is missing.

        Somebody may have replaced names, so that cells are no longer below their columns: then none of them may be empty.
        """
        if len(self._starts) == len(self._columns):
            ends = [*self._starts[1:], len(line)]
            cells = [line[start:end].strip() for start, end in zip(self._starts, ends, strict=True)]
            is_below = all(not line[start - 2 : start].strip() for start in self._starts[1:])
            if is_below and cells[-1] and not any(_GAP.search(cell) for cell in cells[:-1]):
                return cells
        split = _GAP.split(line.strip(), maxsplit=len(self._columns) - 1)
        return split if len(split) == len(self._columns) else None

    def closed(self) -> KubectlTable:
        """Return the table."""
        return KubectlTable(columns=self._columns, rows=tuple(self._rows), unread=tuple(self._unread), is_cut=self._is_cut)


def pods(text: str) -> tuple[PodRow, ...]:
    """Return the rows of pods in a text, with or without a header."""
    return tuple(_pods(text))


def _pods(text: str) -> Iterator[PodRow]:
    for number, line in enumerate(text.splitlines()):
        if number > MOST_ROWS:
            return
        if match := _POD.match(line):
            ready, containers = (int(part[:6]) for part in match["ready"].split("/"))
            yield PodRow(
                name=match["name"].removeprefix("pod/"),
                ready=ready,
                containers=containers,
                status=match["status"],
                restarts=int(match["restarts"][:9]),
                age=seconds(match["age"]),
            )


def seconds(age: str) -> int:
    """Return an age such as `2d21h` in seconds; 0 for `<invalid>`, which a clock that is behind gives."""
    return sum(int(number) * _SECONDS[unit] for number, unit in _AGE.findall(age))
