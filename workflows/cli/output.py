"""Output of commands: tables for people, JSON or YAML for scripts, errors as one sentence and a hint on stderr."""

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import IO, TYPE_CHECKING, Any

from steps.contract import plain

if TYPE_CHECKING:
    from rich.console import Console


_GAP = 2
"""Blanks between two columns of a table."""


class Format(StrEnum):
    """Values of `--output`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def console(*, stderr: bool = False) -> "Console":
    """Return the console: no colour with NO_COLOR or without a terminal, no folded lines in a pipe.

    Texts are printed as they are: square brackets are no markup, and `:word:` is no emoji.
    """
    from workflows.cli.terminal import Quiet

    stream = sys.stderr if stderr else sys.stdout
    # lines of a pipe are wide, so that scripts see one record a line
    width = None if stream.isatty() else int(os.environ.get("COLUMNS", "0") or 0) or 200
    return Quiet(
        stderr=stderr,
        no_color="NO_COLOR" in os.environ or None,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not stream.isatty(),
    )


def data(value: Any, form: Format) -> None:
    """Print data for a script."""
    if form is Format.JSON:
        lines([plain.escaped(json.dumps(value, indent=2, ensure_ascii=False))])
    else:
        import yaml

        lines([yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip("\n")])


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table for a person. If the terminal is too narrow for the words, each row becomes a block: nothing is cut."""
    from rich.table import Column, Table

    cells = [[plain.line(str(cell)) for cell in row] for row in rows]
    out = console()
    widths = _widths([columns, *cells], out.width - _GAP * (len(columns) - 1))
    if not widths:
        lines([title] if title else [])
        lines(line for row in cells for line in _block(columns, row, out.width))
        return
    sized = (Column(name, width=width) for name, width in zip(columns, widths, strict=True))
    grid = Table(*sized, title=title or None, title_justify="left", show_lines=False, box=None, pad_edge=False, header_style="bold")
    for row in cells:
        grid.add_row(*row)
    out.print(grid, soft_wrap=False)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column, at least its longest word; the widest columns shrink first. Empty if they do not fit."""
    from rich.cells import cell_len

    wide = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    least = [max((cell_len(word) for cell in column for word in cell.split()), default=0) for column in zip(*rows, strict=True)]
    if sum(least) > room:
        return []
    while sum(wide) > room:
        widest = max((number for number, width in enumerate(wide) if width > least[number]), key=wide.__getitem__)
        wide[widest] -= 1
    return wide


def _block(columns: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    import textwrap

    column = max(map(len, columns)) + 4
    yield row[0]
    for name, cell in zip(columns[1:], row[1:], strict=True):
        if not cell:
            yield from [f"  {name}"] if name else []
            continue
        yield textwrap.fill(
            cell,
            max(width, column + 20),
            initial_indent=f"  {name}".ljust(column),
            subsequent_indent=" " * column,
            break_long_words=False,
            break_on_hyphens=False,
        )


def lines(rows: Iterable[str]) -> None:
    """Print lines, with control characters escaped; stop silently once the reader of a pipe is gone."""
    try:
        for row in rows:
            print(plain.block(row))
    except BrokenPipeError:
        drop(sys.stdout)


def begin() -> None:
    r"""Replace streams that were closed before the command began by /dev/null, so that no opened file takes their number.

    Characters that the output's encoding lacks are written as `\\u2026`, as Python does on stderr.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115  # open as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="backslashreplace")


def finish() -> None:
    """Flush stdout; stop silently once the reader of a pipe is gone."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)


def drop(stream: IO[str]) -> None:
    """Send further output to /dev/null: the reader is gone, but the command goes on to its own exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def count(number: int, thing: str) -> str:
    """Return a number of things in words: `1 error`, `2 errors`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def note(message: str) -> None:
    """Print one sentence on stderr, so that no script takes it for a part of the answer."""
    console(stderr=True).print(f"note: {plain.line(message)}")


def error(message: str, hint: str = "") -> None:
    """Print one sentence and a hint on stderr; the errors of a spec follow as lines."""
    out = console(stderr=True)
    out.print(f"error: {plain.block(message)}", style="red" if out.is_terminal else None)
    if hint:
        out.print(f"hint: {plain.line(hint)}")
