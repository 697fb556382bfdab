"""Parses tables that `kubectl get` and `kubectl describe` print (https://kubernetes.io/docs/reference/kubectl/).

Columns are set apart by three blanks or more. A text may hold several tables, with command lines between them, or rows without a
header where somebody searched a list for a name.
"""

import re
from collections.abc import Iterator

from msgspec import Struct

MOST_ROWS = 100_000
_GAP = re.compile(r"[ \t]{2,}|\t")
_HEADER = re.compile(r"^(?:NAMESPACE|NAME|LAST SEEN|LASTSEEN)(?:[ \t]{2,}[A-Z][A-Z0-9%() -]*)+[ \t]*$|^NAME[ \t]*$")
_POD = re.compile(
    r"^(?:(?P<namespace>[a-z0-9-]+)[ \t]+)?(?P<name>(?:pod/)?[a-z0-9.-]+)[ \t]+(?P<ready>\d+/\d+)[ \t]+(?P<status>[A-Z][\w:/]*)"
    r"[ \t]+(?P<restarts>\d+)(?: \([^)]*\))?[ \t]+(?P<age>(?:\d+[smhdy])+)(?:[ \t]|$)"
)
_NAME = re.compile(r"[a-z0-9][a-z0-9./-]*$")
_AGE = re.compile(r"(\d{1,9})([smhdy])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}


class KubectlTable(Struct, frozen=True, kw_only=True):
    """A table: its columns, and its rows by column. `is_cut` is True if the last row lacks columns."""

    columns: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
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
    """Return the tables with a header."""
    tables: list[KubectlTable] = []
    columns: tuple[str, ...] = ()
    rows: list[dict[str, str]] = []
    is_cut = False
    for line in text.splitlines():
        if _HEADER.match(line):
            if columns:
                tables.append(KubectlTable(columns=columns, rows=tuple(rows), is_cut=is_cut))
            columns, rows, is_cut = tuple(_GAP.split(line.strip())), [], False
        elif columns and line.strip() and not line.startswith("$") and len(rows) < MOST_ROWS:
            cells = _GAP.split(line.strip(), maxsplit=len(columns) - 1)
            if len(cells) == len(columns):
                is_cut = False
                rows.append(dict(zip(columns, cells, strict=True)))
            else:
                # another line may stand between the rows, and is no name
                is_cut = _NAME.match(cells[0]) is not None
        elif columns:
            tables.append(KubectlTable(columns=columns, rows=tuple(rows), is_cut=is_cut))
            columns = ()
    if columns:
        tables.append(KubectlTable(columns=columns, rows=tuple(rows), is_cut=is_cut))
    return tuple(tables)


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
    """Return an age such as `2d21h` in seconds."""
    return sum(int(number) * _SECONDS[unit] for number, unit in _AGE.findall(age))
