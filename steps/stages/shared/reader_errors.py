"""Finds known error texts of tools in their output, by tables of patterns.

The order of a table is the order of causes: an early entry explains later ones. For example, a daemon that is lost after a worker
was killed is no network fault.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from steps.contract.verdict import FailureClass, ToolError

MOST = 8
"""Largest number of different errors that are returned for one text."""
MOST_HITS = 200
"""Most places looked at for one pattern: thousands of ranks repeat the same error."""
LINE = 300
WINDOW = 700
"""Number of characters that a pattern can see: its line and the few lines after it."""

Make = Callable[[re.Match[str], str], ToolError]


class Pattern(Struct, frozen=True):
    """A kind of error in tool output. `needle` is a plain part of its text; `regex` is tried at the start of its line."""

    needle: str
    regex: re.Pattern[str]
    make: Make


def pattern(needle: str, regex: str, failure_class: FailureClass, cause: str) -> Pattern:
    """Return a pattern whose cause may use the named groups of the regex. The group `host` names where the error happened."""

    def make(match: re.Match[str], line: str) -> ToolError:
        groups = {key: value or "" for key, value in match.groupdict().items()}
        return ToolError(cause=cause.format(**groups), failure_class=failure_class, line=line, host=groups.get("host", ""))

    return Pattern(needle, re.compile(regex), make)


def find(text: str, patterns: Iterable[Pattern]) -> tuple[ToolError, ...]:
    """Return the errors of a text, in the order of the patterns. The same cause at the same host counts once."""
    errors: dict[tuple[str, str], ToolError] = {}
    for known in patterns:
        for window in _windows(text, known.needle):
            match = known.regex.search(window)
            if match is None:
                continue
            error = known.make(match, window.split("\n", 1)[0][:LINE].strip())
            errors.setdefault((error.cause, error.host), error)
            if len(errors) >= MOST:
                return tuple(errors.values())
    return tuple(errors.values())


def _windows(text: str, needle: str) -> Iterator[str]:
    at = text.find(needle)
    for _ in range(MOST_HITS):
        if at < 0:
            return
        # a log can have lines of megabytes, so the window bounds the start too
        start = max(text.rfind("\n", 0, at) + 1, at - WINDOW)
        yield text[start : at + WINDOW]
        end = text.find("\n", at)
        at = text.find(needle, end) if end >= 0 else -1
