"""Read captured outputs of tools: files of an admin, or standard input."""

import io
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from msgspec import Struct

from steps.readings import recognition, site_values
from steps.readings.site_values import EvaluatedValues
from steps.readings.tool_reading import ToolReading
from workflows.app.run_options import UsageError

STANDARD_INPUT = "-"
_PART = 1 << 20
"""Bytes that are read at a time."""


class ReadFile(Struct, frozen=True):
    """A file, or `-` for standard input, with its reading."""

    name: str
    reading: ToolReading

    @property
    def data(self) -> dict[str, object]:
        """Return the reading as data for scripts."""
        return {"file": self.name, **recognition.fields(self.reading)}


def read(names: Iterable[str], expectations: Iterable[str]) -> Iterator[ReadFile]:
    """Yield the reading of each file, in their order. Raises UsageError, and OSError for a file that cannot be read."""
    files = tuple(names)
    if files.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read once: name `-` once")
    missing = next((name for name in files if name != STANDARD_INPUT and not Path(name).exists()), "")
    if missing:
        raise UsageError(f"{missing}: there is no such file: name a file with captured output, or - for standard input")
    try:
        site = site_values.parse(tuple(expectations))
    except site_values.WrongSiteValue as problem:
        raise UsageError(str(problem)) from None
    # a value that is stated for several files need not concern each of them
    values = [EvaluatedValues(site) for _ in files]
    readings = [recognition.reading_of_one(_parts(name), seen) for name, seen in zip(files, values, strict=True)]
    unused = set(site_values.KEYS).intersection(*(seen.unused for seen in values))
    for name, reading in zip(files, readings, strict=True):
        yield ReadFile(name, recognition.with_unused(reading, sorted(unused)))


def tools() -> tuple[str, ...]:
    """Return the names of the tools whose output is recognised."""
    return recognition.tools()


def _parts(name: str) -> Iterator[str]:
    if name == STANDARD_INPUT:
        yield from _decoded(sys.stdin.buffer)
        return
    with open(name, "rb") as file:
        yield from _decoded(file)


def _decoded(file: IO[bytes]) -> Iterator[str]:
    # newline="": carriage returns are removed by the readings, which see where a line ends
    text = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
    while part := text.read(_PART):
        yield part
    text.detach()


def sentences(entry: ReadFile) -> Iterator[str]:
    """Yield the lines that tell a person about a reading: verdict, class and cause, then the figures."""
    reading = entry.reading
    kind = f" ({reading.failure_class})" if reading.failure_class and reading.verdict == "fail" else ""
    yield f"{entry.name}: {reading.verdict}{kind}, {reading.tool}: {reading.cause or reading.detail}"
    if reading.cause and reading.detail and reading.detail != reading.cause:
        yield f"  seen      {reading.detail}"
    if reading.expected:
        yield f"  expected  {reading.expected}"
    if reading.next_step:
        yield f"  next      {reading.next_step}"
    if reading.figures:
        yield f"  figures   {', '.join(f'{name} {_figure(value)}' for name, value in reading.figures.items() if value is not None)}"


_MOST_ITEMS = 8
"""Items of a list that are shown to a person."""


def _figure(value: object) -> str:
    if isinstance(value, dict):
        return _figure([f"{name}: {_figure(item)}" for name, item in value.items()])
    if isinstance(value, list | tuple):
        more = f" and {len(value) - _MOST_ITEMS} more" if len(value) > _MOST_ITEMS else ""
        return f"[{', '.join(map(_figure, value[:_MOST_ITEMS]))}{more}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
