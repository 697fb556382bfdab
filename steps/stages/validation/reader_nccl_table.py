"""Parses one row of an nccl-tests table: finds the columns of both sides, whatever release printed them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from steps.contract.node_tests.nccl import NcclRow

_WIDTH = {
    "double": 8,
    "float": 4,
    "half": 2,
    "bfloat16": 2,
    "int8": 1,
    "uint8": 1,
    "int32": 4,
    "uint32": 4,
    "int64": 8,
    "uint64": 8,
}
"""Bytes of one element by the name that the tests print."""
_TIMES = ("time", "cputime")
_SIDE = ("time", "algbw", "busbw", "#wrong")
_NEW = ("size", "count", "type", "redop", "root")
_OLD = ("size", "count", "type", "redop")
MOST_DIGITS = 18
"""Most digits of a message size; a longer number is none."""


class Cells(Struct, frozen=True, kw_only=True):
    """Parsed row of a table. `reduces` is True if every rank holds and reduces all of the data, which only all_reduce does."""

    row: NcclRow
    reduces: bool


def columns(header: str) -> tuple[str, ...]:
    """Return the column names of a header line that begins with `size`."""
    return tuple(header.split())


def row(cells: Sequence[str], header: tuple[str, ...]) -> Cells | None:
    """Return one data row; None if the cells are no data row. Without a header, the number of columns tells the release."""
    names = header if _fits(header, cells) else _guess(cells)
    if not names or len(cells[0]) > MOST_DIGITS or len(cells[1]) > MOST_DIGITS:
        return None
    starts = [at for at, name in enumerate(names) if name in _TIMES]
    sides = [dict(zip(names[at:end], cells[at:end], strict=False)) for at, end in pairwise([*starts, len(names)])]
    first, second = (sides[0] if sides else {}), (sides[1] if len(sides) > 1 else {})
    if number(first.get("busbw", "")) is None:
        return None
    made = NcclRow(
        size=int(cells[0]),
        out_of_place=number(first.get("busbw", "")),
        in_place=number(second.get("busbw", "")),
        wrong_out_of_place=_wrong(first),
        wrong_in_place=_wrong(second),
        unchecked=sum(_unchecked(side) for side in (first, second)),
        checked=sum(_checked(side) for side in (first, second)),
    )
    root = cells[names.index("root")] if "root" in names else "-1"
    whole = int(cells[1]) * _WIDTH.get(cells[2], 0) == made.size
    return Cells(row=made, reduces=whole and root == "-1" and cells[3] != "none")


MOST_SIZES = 100_000
"""Most sizes of a run; a header with more is not believed."""


def sizes(header: Mapping[str, str]) -> int:
    """Return the number of sizes in a run from `low` to `high` bytes with `step` as factor or increment (`unit`); 0 if unknown."""
    at, high, step = int(header["low"]), int(header["high"]), int(header["step"])
    if header["unit"] == "bytes":
        count = (high - at) // step + 1 if step and high >= at else 0
        return count if count <= MOST_SIZES else 0
    count = 0
    while at and at <= high and step > 1:
        count, at = count + 1, at * step
    return count


def collective(rows: Iterable[Cells]) -> str:
    """Return `all_reduce` if the rows cannot be another collective, otherwise empty."""
    sized = [cells for cells in rows if cells.row.size]
    return "all_reduce" if sized and all(cells.reduces for cells in sized) else ""


def number(text: str) -> float | None:
    """Return the text as a finite number; None if it is no number or not finite."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _fits(header: tuple[str, ...], cells: Sequence[str]) -> bool:
    return bool(header) and len(cells) >= len([name for name in header if name != "timestamp"])


def _guess(cells: Sequence[str]) -> tuple[str, ...]:
    left, rest = (_NEW, len(cells) - 5) if _is_root(cells) else (_OLD, len(cells) - 4)
    if rest in (3, 4):
        return (*left, *_SIDE[:rest])
    return (*left, *_SIDE, *_SIDE) if rest in (8, 9, 10) else ()


def _is_root(cells: Sequence[str]) -> bool:
    """Return True if the fifth cell is a root. Rows have 13 columns with a root and 12 without; a time stamp may follow."""
    return len(cells) not in (7, 12) and len(cells) > 5 and cells[4].lstrip("-").isdigit()


def _wrong(side: dict[str, str]) -> int:
    """Return the number of wrong elements. The old column `error` holds rounding errors instead, which are no count."""
    count = number(side.get("#wrong", ""))
    return int(count) if count is not None and 0 <= count < 1e18 else 0


def _checked(side: dict[str, str]) -> bool:
    return number(side.get("#wrong", side.get("error", ""))) is not None


def _unchecked(side: dict[str, str]) -> bool:
    return "busbw" in side and side.get("#wrong", side.get("error", "")) == "N/A"
