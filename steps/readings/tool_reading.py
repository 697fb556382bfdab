"""The reading of one captured output: verdict, failure class, cause and figures."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract import plain_text
from steps.contract.verdict import FailureClass, Status, ToolError
from steps.stages.shared.finding import Finding

LONGEST_TEXT = 500
"""Most characters of a cause or a next step."""


class ReadingVerdict(StrEnum):
    """Verdicts on a captured output; `unknown-input` means that no rule recognises the tool."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    UNKNOWN_INPUT = "unknown-input"


class ToolReading(Struct, frozen=True, kw_only=True):
    """The reading of a captured output.

    `tool` names what printed it. `cause` says in a few words why the verdict is no pass, `detail` what was seen. `figures` holds
    the values in the text by the names that `bringup read` documents.
    """

    tool: str
    verdict: ReadingVerdict
    failure_class: FailureClass | None = None
    cause: str = ""
    detail: str = ""
    expected: str = ""
    next_step: str = ""
    figures: dict[str, Any] = {}

    def __post_init__(self) -> None:
        for field in ("cause", "detail", "expected", "next_step"):
            text = plain_text.truncate(plain_text.line(getattr(self, field)), LONGEST_TEXT)
            msgspec.structs.force_setattr(self, field, text)

    @property
    def is_pass(self) -> bool:
        """Return True if the output shows that what it reports about is all right."""
        return self.verdict is ReadingVerdict.PASS


def passed(tool: str, figures: Mapping[str, Any], detail: str) -> ToolReading:
    """Return a pass; `detail` says what was seen."""
    return ToolReading(tool=tool, verdict=ReadingVerdict.PASS, figures=dict(figures), detail=detail)


def failed(
    tool: str, failure_class: FailureClass, cause: str, figures: Mapping[str, Any], *, expected: str = "", next_step: str = ""
) -> ToolReading:
    """Return a fail with its class and cause."""
    return ToolReading(
        tool=tool,
        verdict=ReadingVerdict.FAIL,
        failure_class=failure_class,
        cause=cause,
        expected=expected,
        next_step=next_step,
        figures=dict(figures),
    )


def undecided(tool: str, cause: str, figures: Mapping[str, Any], *, expected: str = "", next_step: str = "") -> ToolReading:
    """Return an inconclusive reading; `cause` says what is missing for a decision."""
    return ToolReading(
        tool=tool,
        verdict=ReadingVerdict.INCONCLUSIVE,
        cause=cause,
        expected=expected,
        next_step=next_step,
        figures=dict(figures),
    )


_ORDER = (ReadingVerdict.FAIL, ReadingVerdict.INCONCLUSIVE, ReadingVerdict.UNKNOWN_INPUT, ReadingVerdict.PASS)


def in_one_file(first: ToolReading, others: Iterable[ToolReading]) -> ToolReading:
    """Return the reading of a file in which outputs of further tools stand beside the first one: the worst of them."""
    if first.verdict is ReadingVerdict.FAIL:
        return first
    bad = min(others, key=lambda reading: _ORDER.index(reading.verdict), default=first)
    if _ORDER.index(bad.verdict) >= _ORDER.index(first.verdict):
        return first
    before = f"{first.tool}: {first.verdict.value}{f', {first.cause}' if first.cause else ''}"
    words = f"the file also holds output of {bad.tool}: {bad.cause}" if bad.verdict is ReadingVerdict.INCONCLUSIVE else bad.cause
    return msgspec.structs.replace(bad, cause=words, detail=f"{bad.detail or bad.cause}; before it {before}")


_HARDWARE = FailureClass.HARDWARE


def worst(readings: Mapping[str, ToolReading]) -> ToolReading:
    """Return the worst of the readings of several hosts, with the host's name before its cause."""
    # a fault of one machine's hardware can end programs on the others
    host = min(readings, key=lambda name: (_ORDER.index(readings[name].verdict), readings[name].failure_class is not _HARDWARE))
    reading = readings[host]
    figures = {**reading.figures, "read_hosts": len(readings)}
    cause = f"{host}: {reading.cause}" if reading.cause else ""
    return msgspec.structs.replace(reading, cause=cause, figures=figures)


def of_finding(tool: str, finding: Finding, figures: Mapping[str, Any], cause: str = "") -> ToolReading:
    """Return the reading that a gate's finding stands for; `cause` is a shorter text than what the gate saw."""
    make = failed if finding.status is Status.FAIL else None
    text, expected, step = cause or finding.seen, finding.expected, finding.next_step
    reading = (
        make(tool, finding.failure_class, text, figures, expected=expected, next_step=step)
        if make
        else undecided(tool, text, figures, expected=expected, next_step=step)
    )
    return msgspec.structs.replace(reading, detail=finding.seen)


def of_error(tool: str, error: ToolError, figures: Mapping[str, Any], cause: str = "") -> ToolReading:
    """Return the fail that an error in a tool's output stands for."""
    reading = failed(tool, error.failure_class, cause or error.cause, figures, next_step=error.next_step)
    shown = f"{reading.cause} {error.line}"
    places = (("on", error.host), ("adapter", error.device), ("peer", error.peer))
    where = " ".join(f"{what} {name}" for what, name in places if name and name not in shown)
    return msgspec.structs.replace(reading, detail=f"{error.line} ({where})" if where else error.line)
