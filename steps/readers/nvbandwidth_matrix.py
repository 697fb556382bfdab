"""Parses the text output of nvbandwidth 0.4 to 0.8: one matrix of GB/s for each test case.

Format: https://github.com/NVIDIA/nvbandwidth, README and inline_common.h. What is not measured prints `N/A`, or 0.00 before 0.5.
"""

import re
import statistics

from msgspec import Struct

MOST_ROWS = 1024
_CASE = re.compile(r"^Running (?P<name>[a-z_0-9]{1,80})\.[ \t]*$")
_NUMBER = re.compile(r"\d{1,7}(?:\.\d{1,6})?")
_PROBLEM = re.compile(r"^\[?[^\n]*?(?:CUDA_ERROR_\w+|Invalid value|[Ee]rror:)[^\n]*$", re.MULTILINE)


class CopyMatrix(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Bandwidths in GB/s of one test case. Each row is a copying side, each column a GPU; None where nothing was measured."""

    name: str
    rows: tuple[tuple[float | None, ...], ...] = ()

    @property
    def by_column(self) -> tuple[float | None, ...]:
        """Return the median of each column: of each GPU as the end that the columns are.

        One bad GPU spoils a single value in the columns of all others, which the least value of a column would show for each.
        """
        width = max(map(len, self.rows), default=0)
        columns = ([row[at] for row in self.rows if at < len(row)] for at in range(width))
        measured = ([value for value in column if value is not None] for column in columns)
        return tuple(round(statistics.median(values), 2) if values else None for values in measured)

    @property
    def slowest(self) -> tuple[float, int, int] | None:
        """Return the least value with its row and column; None if nothing was measured."""
        cells = ((value, row, at) for row, values in enumerate(self.rows) for at, value in enumerate(values) if value is not None)
        return min(cells, default=None)

    @property
    def is_square(self) -> bool:
        """Return True for n rows of n cells without a value of a GPU with itself: nothing of a matrix between GPUs is cut off."""
        whole = all(len(row) == len(self.rows) for row in self.rows)
        return whole and all(row[at] is None for at, row in enumerate(self.rows))

    @property
    def dead_pairs(self) -> tuple[tuple[int, int], ...]:
        """Return the pairs of different GPUs without a value, by row and column."""
        cells = ((row, at, value) for row, values in enumerate(self.rows) for at, value in enumerate(values))
        return tuple((row, at) for row, at, value in cells if value is None and row != at)


class CopyBandwidth(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Output of nvbandwidth: its matrices by test case, and the first error that it printed (empty: none)."""

    cases: dict[str, CopyMatrix] = {}
    error: str = ""


def read(text: str) -> CopyBandwidth:
    """Return the matrices in the output of nvbandwidth. A case that was waived has no matrix."""
    rows: dict[str, list[tuple[float | None, ...]]] = {}
    name = ""
    for line in text.splitlines():
        if match := _CASE.match(line):
            name = match["name"]
        elif name and (cells := line.split()) and cells[0].isdecimal() and _is_row(cells[1:]):
            rows.setdefault(name, []).append(tuple(map(_value, cells[1:])))
    problem = _PROBLEM.search(text)
    return CopyBandwidth(
        cases={case: CopyMatrix(name=case, rows=tuple(values[:MOST_ROWS])) for case, values in rows.items()},
        error=problem[0].strip()[:200] if problem else "",
    )


def _is_row(cells: list[str]) -> bool:
    """Return True for the cells of a row; the line above a matrix numbers its columns and has no decimal point."""
    return bool(cells) and all(cell == "N/A" or (_NUMBER.fullmatch(cell) and "." in cell) for cell in cells)


def _value(cell: str) -> float | None:
    value = None if cell == "N/A" else float(cell)
    # releases before 0.5 print 0.00 for a GPU with itself
    return value or None
