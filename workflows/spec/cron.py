"""Cron lines, read as robfig/cron's ParseStandard does, which both Argo and RKE2 use."""

from typing import NamedTuple

from workflows.spec.fields import problem

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIX = "write five fields, as in 0 2 * * 6"


class _Part(NamedTuple):
    """A field of a cron line: name, bounds, and the words that stand for numbers."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_PARTS = (
    _Part("minute", 0, 59),
    _Part("hour", 0, 23),
    _Part("day of month", 1, 31),
    _Part("month", 1, 12, _MONTHS),
    _Part("day of week", 0, 6, _WEEKDAYS),
)


def check(text: str, zone: str) -> str:
    """Return the five fields of a cron line with single spaces. Raises a spec error for a line that never fires or cannot be read.

    `zone` is a sentence about time zones for the error text.
    """
    fields = text.split()
    if len(fields) != len(_PARTS):
        raise problem(f"cron has five fields, this has {len(fields)}", f"{_FIX}; {zone}")
    taken = [_field(part, field) for part, field in zip(_PARTS, fields, strict=True)]
    every_weekday = fields[4][0] in "*?"  # otherwise either of the two kinds of days will do
    if every_weekday and min(taken[2]) > max(_DAYS[month - 1] for month in taken[3]):
        raise problem("no month that it names has such a day, so it never comes", "give a day that one of the months has")
    return " ".join(fields)


def _field(part: _Part, text: str) -> frozenset[int]:
    """Return the numbers that a field stands for: a list of `*`, numbers and ranges, each with an optional step."""
    return frozenset(number for item in text.split(",") for number in _item(part, item))


def _item(part: _Part, item: str) -> range:
    span, slash, step = item.partition("/")
    first, dash, last = span.partition("-")
    if first in ("*", "?") and not dash:
        low, high = part.low, part.high
    else:
        low = _number(part, first)
        high = _number(part, last) if dash else part.high if slash else low
    if low > high:
        raise problem(f"{part.name} {item} counts backwards", f"write two ranges, as in {high}-{high},{low}-{part.high}")
    if slash and not (step.isdecimal() and step.isascii() and int(step) > 0):
        raise problem(f"{part.name} {item} has no step that counts", "write a number above 0 behind the slash, as in */15")
    return range(low, high + 1, int(step) if slash else 1)


def _number(part: _Part, text: str) -> int:
    if text.lower() in part.names:
        return part.low + part.names.index(text.lower())
    if text.isdecimal() and text.isascii() and part.low <= int(text) <= part.high:
        return int(text)
    named = f" or {part.names[0]} to {part.names[-1]}" if part.names else ""
    raise problem(f"{text or 'nothing'} is no {part.name}", f"write * or {part.low} to {part.high}{named}")
