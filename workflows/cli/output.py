"""Output of commands: tables for people, JSON or YAML for scripts, errors as one sentence and a hint on stderr.

The module implements the `Screen` of the use cases. Code that needs rich or yaml imports them when called, since both take long.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from steps.contract import plain_text
from workflows.cli import streams

if TYPE_CHECKING:
    from workflows.app.runs.run_progress import Progress
    from workflows.cli.run_view import StageTable, View
    from workflows.cli.terminal import QuietConsole

_GAP = 2
_PIPE_WIDTH = 200


class Format(StrEnum):
    """Forms of a command's output, as values of `--output`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def console(*, stderr: bool = False) -> "QuietConsole":
    """Return a console for stdout or stderr: no colour with NO_COLOR or without a terminal, no folded lines in a pipe.

    Texts are printed as they are: square brackets are no markup, and `:word:` is no emoji.
    """
    from workflows.cli.terminal import QuietConsole

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _columns() or _PIPE_WIDTH
    return QuietConsole(
        stderr=stderr,
        no_color="NO_COLOR" in os.environ or None,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not stream.isatty(),
    )


def _columns() -> int:
    """Return the width that COLUMNS sets; 0 if it is unset or no positive number."""
    text = os.environ.get("COLUMNS", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def data(value: Any, form: Format) -> None:
    """Print data for a script, as JSON or YAML."""
    if form is Format.JSON:
        lines([plain_text.escape_json(json.dumps(value, indent=2, ensure_ascii=False))])
    else:
        import yaml

        lines([yaml.safe_dump(value, sort_keys=False, allow_unicode=True).rstrip("\n")])


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table for a person. If the terminal is too narrow for the words, each row becomes a block: nothing is cut.

    In a pipe each row is one line, without blanks at its end, unless COLUMNS asks for a width.
    """
    cells = [[plain_text.line(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty() and not _columns():
        wide = [max(map(len, column)) + _GAP for column in zip(columns, *cells, strict=True)]
        texts = ("".join(map(str.ljust, row, wide)).rstrip() for row in (columns, *cells))
        lines([*([title] if title else []), *texts])
        return
    from rich.table import Column, Table
    from rich.text import Text

    from workflows.cli.terminal import STATE_STYLES

    out = console()
    widths = _widths([columns, *cells], out.width - _GAP * (len(columns) - 1))
    if not widths:
        lines([title] if title else [])
        prose(line for row in cells for line in _block(columns, row, out.width))
        return
    sized = (Column(name, width=width) for name, width in zip(columns, widths, strict=True))
    grid = Table(*sized, title=title or None, title_justify="left", show_lines=False, box=None, pad_edge=False, header_style="bold")
    for row in cells:
        grid.add_row(*(Text(cell, style=STATE_STYLES.get(cell, "")) for cell in row))
    out.print(grid, soft_wrap=False)


def listing(columns: Sequence[str], rows: Iterable[Sequence[str]], values: Any, form: Format) -> None:
    """Print `rows` as a table for a person, or `values` as JSON or YAML for a script."""
    if form is Format.TABLE:
        table(columns, rows)
    else:
        data(values, form)


def _widths(rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return column widths that fit `room`: the widest shrink first, none below its longest word. Empty if that is impossible."""
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
            print(plain_text.block(row))
    except BrokenPipeError:
        streams.drop(sys.stdout)


def prose(rows: Iterable[str]) -> None:
    """Print lines for a person: on a terminal folded between words, with states in colour; in a pipe as they are."""
    if not sys.stdout.isatty():
        lines(rows)
        return
    from workflows.cli.terminal import with_colours

    out = console()
    for row in rows:
        for text in plain_text.block(row).split("\n"):
            out.print(with_colours("\n".join(_folded(text, out.width))), soft_wrap=True)


def _folded(text: str, width: int) -> list[str]:
    """Return a line in parts of at most `width` characters, further parts indented; a longer word, such as a URL, stays whole."""
    import textwrap

    if len(text) <= width:
        return [text]
    indent = text[: len(text) - len(text.lstrip())] + "  "
    # textwrap would drop the indent of the first part if it were not a part of the text
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


def note(message: str) -> None:
    """Print one sentence on stderr, so that no script takes it for a part of the result; print nothing for an empty one."""
    if message:
        console(stderr=True).print(f"note: {plain_text.line(message)}")


def error(message: str, hint: str = "") -> None:
    """Print one sentence, or several lines, and a hint on stderr."""
    out = console(stderr=True)
    out.print(f"error: {plain_text.block(message)}", style="red" if out.is_terminal else None)
    if hint:
        out.print(f"hint: {plain_text.line(hint)}")


def can_ask() -> bool:
    """Return True if a person is at the terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str) -> bool:
    """Ask a yes-or-no question at the terminal and return True for yes; the default is no."""
    import typer

    return typer.confirm(question)


def view(progress: "Progress", stopped: Callable[[], object] | None = None) -> "View":
    """Return the live view of a run. `stopped` is called when the run begins to shut down."""
    from workflows.cli.run_view import View

    return View(progress, console(), stopped)


def stage_table() -> "StageTable":
    """Return an empty table of stages that `show` redraws while its context is open; in a pipe it draws nothing."""
    from workflows.cli.run_view import StageTable

    return StageTable(console())
