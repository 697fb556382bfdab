"""How commands print: tables for people, JSON or YAML for scripts, errors as one sentence and a hint on stderr."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


class Format(StrEnum):
    """Values of `--output`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def console(*, stderr: bool = False) -> "Console":
    """The console; without colour where NO_COLOR is set or the output is no terminal, and never folded when piped."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS", "0") or 0) or 200
    return Console(
        stderr=stderr, no_color="NO_COLOR" in os.environ or None, width=width, highlight=False, soft_wrap=not stream.isatty()
    )


def data(value: Any, form: Format) -> None:
    """Print data for a script."""
    if form is Format.JSON:
        print(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        import yaml

        print(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), end="")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table for a person."""
    from rich.table import Table

    grid = Table(
        *columns, title=title or None, title_justify="left", show_lines=False, box=None, pad_edge=False, header_style="bold"
    )
    for row in rows:
        grid.add_row(*(str(cell) for cell in row))
    console().print(grid)


def lines(rows: Iterable[str]) -> None:
    """Print plain lines, markup left as it is."""
    for row in rows:
        print(row)


def error(message: str, hint: str = "") -> None:
    """One sentence and what to do, on stderr."""
    out = console(stderr=True)
    out.print(f"error: {message}", markup=False, style="red" if out.is_terminal else None)
    if hint:
        out.print(f"hint: {hint}", markup=False)
