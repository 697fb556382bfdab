"""Parses tables of the OSU micro-benchmarks, releases 5 to 7 (https://mvapich.cse.ohio-state.edu/benchmarks/).

The header is `# OSU MPI-CUDA Bandwidth Test v7.5`; the first value column is what the test is about. Bandwidth tests print MB/s,
with 10^6 bytes, latency tests microseconds. A test goes up to 4 MiB between two ranks and to 1 MiB over many, unless `-m` says
otherwise.
"""

import math
import re

from msgspec import Struct

MOST_ROWS = 10_000
_HEAD = re.compile(r"^[^\n#]{0,40}# (?:OSU )(?P<test>MPI[\w /-]{0,80}Test)[ \t]*v?(?P<version>\d[\w.]*)?", re.MULTILINE)
_COLUMNS = re.compile(r"^[^\n#]{0,40}# Size[ \t]+(?P<columns>\S[^\n]*)", re.MULTILINE)
_ROW = re.compile(
    r"^(?:\[[\w.@-]{0,100}\d,\d+\]<stdout>:? ?| {0,6}\d{1,7}: )?[ \t]*(?P<size>\d{1,15})[ \t]+"
    r"(?P<values>[\d.]+(?:[ \t]+[\w.]+)*)[ \t]*$",
    re.MULTILINE,
)
_LARGEST = re.compile(r"\bosu_\w+[^\n]*?(?: -m| --message-size)[ =]?(?:\d+:)?(\d{1,15})")
_UNIT = re.compile(r"\((us|MB/s|Messages/s)\)")
_PAIR_TEST = re.compile(r"\b(?:Bandwidth|Bi-Directional|Latency) Test$")
PAIR_LARGEST, GROUP_LARGEST = 4 << 20, 1 << 20


class OsuRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Results for one message size; `validation` is `Pass`, `Fail`, or empty if the test did not check the data."""

    size: int
    value: float
    validation: str = ""


class OsuTable(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One test: its name, release and rows. `unit` is `us` or `MB/s`; `full_size` is the largest size that the test goes up to."""

    test: str
    version: str = ""
    unit: str = ""
    rows: tuple[OsuRow, ...] = ()
    full_size: int = 0

    @property
    def largest(self) -> OsuRow | None:
        """Return the row of the largest size; the worst one if a size repeats."""
        worse = max if self.unit == "us" else min
        top = max((row.size for row in self.rows), default=0)
        rows = [row for row in self.rows if row.size == top]
        return worse(rows, key=lambda row: row.value) if rows else None

    @property
    def is_whole(self) -> bool:
        """Return True if the table goes up to the largest size."""
        return self.largest is not None and self.largest.size >= self.full_size


def read(text: str) -> tuple[OsuTable, ...]:
    """Return the tables in a text, in order; empty if it has no header of a test."""
    heads = list(_HEAD.finditer(text))
    ends = [*(head.start() for head in heads), len(text)][1:]
    return tuple(_table(text, head, end) for head, end in zip(heads, ends, strict=True))


def _table(text: str, head: re.Match[str], end: int) -> OsuTable:
    columns = _COLUMNS.search(text, head.end(), end)
    unit = _UNIT.search(columns["columns"]) if columns else None
    checks = "Validation" in columns["columns"] if columns else False
    rows: list[OsuRow] = []
    for match in _ROW.finditer(text, columns.end() if columns else head.end(), end):
        if len(rows) == MOST_ROWS:
            break
        if (row := _row(match, checks)) is not None:
            rows.append(row)
    # `-m` stands in the command line, which is printed before the table
    limit = next(iter(_LARGEST.findall(text, max(0, head.start() - 2000), head.start())), "")
    is_pair = _PAIR_TEST.search(head["test"]) is not None and not _is_collective(head["test"])
    return OsuTable(
        test=head["test"],
        version=head["version"] or "",
        unit=unit[1] if unit else "",
        rows=tuple(rows),
        full_size=int(limit) if limit else PAIR_LARGEST if is_pair else GROUP_LARGEST,
    )


def _is_collective(test: str) -> bool:
    words = ("All", "Reduce", "Broadcast", "Gather", "Scatter", "Barrier", "Neighbor", "Exchange")
    return any(word in test for word in words)


def _row(match: re.Match[str], checks: bool) -> OsuRow | None:
    cells = match["values"].split()
    try:
        value = float(cells[0])
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return OsuRow(size=int(match["size"]), value=value, validation=cells[-1] if checks and len(cells) > 1 else "")
