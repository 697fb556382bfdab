"""Problems of a spec as data: the path, the value, the reason, and what to write instead.

A `SpecError` is found while one file is read (shape, types, names, ranges) and always refuses the file. An `Issue` is found by a
compatibility rule over a well-formed spec, and is an error or a warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

USAGE_EXIT_CODE = 64
"""Exit code of a command whose spec or usage is wrong."""

Severity = Literal["error", "warning"]

_LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True)
class SpecError:
    """One error in a spec file, with what to write instead (`fix`).

    `path` is dotted with list indices (`hosts.gpu.ranges[0]`), `value` is shortened and free of secrets, and `line` counts from 1,
    0 if it is unknown.
    """

    path: str
    problem: str
    fix: str
    value: str = ""
    line: int = 0

    def block(self, source: str) -> str:
        """Return the error as lines for a terminal: place, value, problem and fix."""
        where = f"{source}:{self.line}" if self.line else source
        rows = [f"{where}: {self.path}" if self.path else where]
        if self.value:
            rows.append(f"  value  {self.value}")
        rows.append(f"  error  {self.problem}")
        if self.fix:
            rows.append(f"  fix    {self.fix}")
        return "\n".join(rows)


class SpecErrors(Exception):
    """Exception with all errors of one spec file; its text has a block for each error. `exit_code` is 64.

    `sound` is the spec with its valid sections, None if it could not be read that far. Its other sections, `broken`, raise
    AttributeError when they are used.
    """

    exit_code = USAGE_EXIT_CODE

    def __init__(
        self, source: str, errors: Iterable[SpecError], *, sound: object | None = None, broken: Iterable[str] = ()
    ) -> None:
        self.source, self.sound, self.broken = source, sound, frozenset(broken)
        self.errors = tuple(sorted(errors, key=lambda error: (error.line, error.path)))
        super().__init__(source, self.errors)

    def __str__(self) -> str:
        count = len(self.errors)
        head = f"{self.source} has {count} error{'' if count == 1 else 's'}"
        return "\n\n".join([head, *(error.block(self.source) for error in self.errors)])


@dataclass(frozen=True, slots=True)
class Issue:
    """A finding about a spec that could be read. `checked_later` names the gates that check what a spec cannot show."""

    rule: str
    severity: Severity
    path: str
    problem: str
    fix: str
    source: str
    checked_later: tuple[str, ...] = ()

    def as_error(self, line: int = 0) -> SpecError:
        """Return the issue as a spec error whose sentence names rule and source."""
        return SpecError(path=self.path, problem=f"{self.rule}: {self.problem} (see {self.source})", fix=self.fix, line=line)

    def block(self) -> str:
        """Return the issue as lines for a terminal: severity, rule, path, problem, fix, source, and gates that check again."""
        rows = [f"{self.severity} {self.rule} {self.path}", f"  {self.problem}", f"  fix    {self.fix}", f"  source {self.source}"]
        if self.checked_later:
            rows.append(f"  gates  checked again by {', '.join(self.checked_later)}")
        return "\n".join(rows)


def format_value(value: object) -> str:
    """Return a value as an error prints it: one line of at most 80 characters."""
    text = " ".join((f'"{value}"' if isinstance(value, str) else _plain(value)).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def _plain(value: object) -> str:
    match value:
        case None:
            return "(empty)"
        case bool():
            return "true" if value else "false"
        case dict():
            return "{" + ", ".join(f"{key}: …" for key in list(value)[:6]) + "}"
        case list() | tuple():
            return f"a list of {len(value)}"
        case _:
            return str(value)
