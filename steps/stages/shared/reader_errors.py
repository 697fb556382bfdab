"""Finds known error texts of tools in their output, by tables of patterns, and ranks them by cause.

The first cause counts, not the last line: when one rank of a job fails, all others report that a peer is gone, and the tool's last
words name only that. So an error's rank (`CauseRank`) decides first, then the order of the table, then the time in the line. The
order in which lines of several processes were merged decides only between lines of the same process.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from steps.contract import plain_text
from steps.contract.verdict import CauseRank, FailureClass, ToolError

MOST = 8
"""Largest number of different errors that are returned for one text."""
MOST_KEPT = 4096
"""Most different errors that a search remembers before it drops those that come last."""
MOST_HITS = 200
"""Most places looked at for one pattern: thousands of ranks repeat the same error."""
LINE = 300
"""Most characters of a line, a cause or a name that are kept."""
WINDOW = 700
"""Number of characters that a pattern can see: its line or, if it spans lines, the few lines after it."""

Make = Callable[[re.Match[str], str], ToolError | None]

_TIME = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)[ T](?P<clock>\d\d:\d\d:\d\d(?:[.,]\d+)?)|^\[ *\d+\.\d+\]|\[\d{10}\.\d+\]"
    r"|^\[?\d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"|^(?:[A-Z][a-z]{2} )?(?P<month>[A-Z][a-z]{2}) +(?P<date>\d{1,2}) (?P<hour>\d\d:\d\d:\d\d)(?: (?P<year>\d{4}))?"
)
"""Times by which lines of several processes are ordered: of a date and clock, a kernel, UCX, a clock alone, syslog and mpirun."""
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_PROCESS = re.compile(r"[\w.-]+:\d+:\d+ \[\d+\]|\[[\w.-]+:\d+\]")
_LAST = "~"
"""Sorts after every time: a line without a time says nothing about the order."""


class Pattern(Struct, frozen=True):
    """A kind of error in tool output.

    `needle` is a plain part of its text; `regex` is searched in the needle's line, and in the lines after it if `spans`. `make`
    returns None for a harmless text, which no later pattern reads then.
    """

    needle: str
    regex: re.Pattern[str]
    make: Make
    spans: bool = False


def pattern(
    needle: str,
    regex: str,
    failure_class: FailureClass,
    cause: str,
    rank: CauseRank = CauseRank.OPERATION,
    *,
    next_step: str = "",
    spans: bool = False,
) -> Pattern:
    """Return a pattern whose cause may use the named groups of the regex.

    Groups `host` and `device` name where the error happened, group `peer` the other end.
    """

    def make(match: re.Match[str], line: str) -> ToolError:
        groups = {key: value or "" for key, value in match.groupdict().items()}
        return ToolError(
            cause=short(cause.format(**groups)),
            failure_class=failure_class,
            line=line,
            host=short(groups.get("host", "")),
            device=short(groups.get("device", "")),
            peer=short(groups.get("peer", "")),
            next_step=next_step,
            rank=rank,
        )

    return Pattern(needle, re.compile(regex), make, spans)


def harmless(needle: str) -> Pattern:
    """Return a pattern for lines that look like an error and are none."""
    return Pattern(needle, re.compile(re.escape(needle)), lambda _match, _line: None)


def short(text: str) -> str:
    """Return a text as one plain line of at most LINE characters, cut between words so that a secret is never cut."""
    return plain_text.truncate(plain_text.line(text.strip()), LINE)


class _Hit(NamedTuple):
    """An error with what orders it among those of its rank."""

    place: int
    pattern: int
    time: str
    process: str
    start: int
    error: ToolError


def find(text: str, patterns: Iterable[Pattern]) -> tuple[ToolError, ...]:
    """Return the errors of a text, the first cause first. The same cause counts once for each host, device and peer.

    A line is read by the first pattern of the table that matches it.
    """
    search = ErrorSearch(patterns)
    search.feed(text)
    return search.errors()


class ErrorSearch:
    """Search for errors in a text that comes in parts, each of whole lines; memory does not grow with the text."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        self._patterns = tuple(patterns)
        self._hits: dict[tuple[str, ...], _Hit] = {}
        self._read = 0

    def feed(self, text: str) -> None:
        """Read one part of the text."""
        read_lines: set[int] = set()
        for number, known in enumerate(self._patterns):
            for start, line, window in _windows(text, known):
                match = None if start in read_lines else known.regex.search(window)
                if match is None:
                    continue
                read_lines.add(start)
                if (error := known.make(match, short(line))) is not None:
                    self._add(number, self._read + start, line, error)
        self._read += len(text)

    def errors(self) -> tuple[ToolError, ...]:
        """Return the errors of all parts, the first cause first."""
        return tuple(hit.error for hit in sorted(self._hits.values()))[:MOST]

    def _add(self, number: int, start: int, line: str, error: ToolError) -> None:
        time, process = _time(line), _PROCESS.search(line)
        order = (time, process[0] if process else error.host, start)
        hit = _Hit(error.place, number, *order, error)
        key = (error.cause, error.host, error.device, error.peer)
        if key not in self._hits or hit < self._hits[key]:
            self._hits[key] = hit
        if len(self._hits) > MOST_KEPT:
            self._hits = {key: self._hits[key] for key in sorted(self._hits, key=self._hits.__getitem__)[:MOST]}


def _time(line: str) -> str:
    """Return the time in a line as a text that sorts by time among times of one form; one after all times if it has none."""
    match = _TIME.search(line)
    if match is None:
        return _LAST
    if match["month"] in _MONTHS:
        return f"{match['year'] or ''} {_MONTHS.index(match['month']):02} {match['date']:0>2} {match['hour']}"
    return f"{match['day']} {match['clock']}".replace(",", ".") if match["day"] else match[0].lstrip("[")


def _windows(text: str, known: Pattern) -> Iterator[tuple[int, str, str]]:
    """Yield the start of each line that has the pattern's needle, the line, and what the pattern sees of the text."""
    at = text.find(known.needle)
    for _ in range(MOST_HITS):
        if at < 0:
            return
        start = text.rfind("\n", 0, at) + 1
        # a log can have lines of megabytes, so the window bounds both ends; half a word could be half a secret
        if start < at - WINDOW:
            start = text.find(" ", at - WINDOW, at) + 1 or at
        end = text.find("\n", at)
        line = text[start : min(end, at + WINDOW) if end >= 0 else at + WINDOW]
        yield start, line, text[start : at + WINDOW] if known.spans else line
        at = text.find(known.needle, end) if end >= 0 else -1
