"""Finds errors that tools state in their own words: tables of patterns, searched only where a plain text of theirs occurs.

The order of a table is the order of causes: an early entry explains the later ones (a lost daemon after a killed worker is no
network fault).
"""

import re
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from steps.contract.tool import ToolError
from steps.contract.verdict import FailureClass

MOST = 8
"""Different errors kept of one text."""
MOST_HITS = 200
"""Places looked at for one pattern: thousands of ranks repeat the same error."""
LINE = 300
WINDOW = 700
"""What a pattern may see: its line and the few lines after it."""

Make = Callable[[re.Match[str], str], ToolError]


class Pattern(Struct, frozen=True):
    """One kind of error: `needle` is a plain part of its text, `regex` is searched from the start of that line on."""

    needle: str
    regex: re.Pattern[str]
    make: Make


def pattern(needle: str, regex: str, failure_class: FailureClass, cause: str) -> Pattern:
    """An error whose cause may use the named groups of its pattern; a group `host` is where it happened."""

    def make(match: re.Match[str], line: str) -> ToolError:
        groups = {key: value or "" for key, value in match.groupdict().items()}
        return ToolError(cause=cause.format(**groups), failure_class=failure_class, line=line, host=groups.get("host", ""))

    return Pattern(needle, re.compile(regex), make)


def find(text: str, patterns: Iterable[Pattern]) -> tuple[ToolError, ...]:
    """The errors of a text, those of early patterns first; the same cause at the same host counts once."""
    found: dict[tuple[str, str], ToolError] = {}
    for one in patterns:
        for window in _windows(text, one.needle):
            match = one.regex.search(window)
            if match is None:
                continue
            error = one.make(match, window.split("\n", 1)[0][:LINE].strip())
            found.setdefault((error.cause, error.host), error)
            if len(found) >= MOST:
                return tuple(found.values())
    return tuple(found.values())


def _windows(text: str, needle: str) -> Iterator[str]:
    at = text.find(needle)
    for _ in range(MOST_HITS):
        if at < 0:
            return
        start = max(text.rfind("\n", 0, at) + 1, at - WINDOW)
        yield text[start : at + WINDOW]
        end = text.find("\n", at)
        at = text.find(needle, end) if end >= 0 else -1
