"""Starts of runs without a person: cron lines as robfig/cron's ParseStandard reads them, and events from webhooks.

Argo's controller acts on both; RKE2 reads cron lines alike. Argo reports a cron line that it cannot read only in the log of its
controller, and one that never fires nowhere. So lines are checked here.
"""

import difflib
import functools
import zoneinfo
from datetime import timedelta
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field, StringConstraints

from workflows.spec.fields import Argument, DnsLabel, Duration, Listed, OneOrMore, Section, problem

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIX = "write five fields, as in 0 2 * * 6"


class _Part(NamedTuple):
    """A field of a cron line: its name, smallest and largest number, and the words that stand for numbers."""

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
    """Return a cron line with single spaces between its five fields. Raises a spec error if it never fires or cannot be read.

    `zone` is a sentence about time zones for the error text.
    """
    fields = text.split()
    if len(fields) != len(_PARTS):
        raise problem(f"cron has five fields, this has {len(fields)}", f"{_FIX}; {zone}")
    # a field is a list of `*`, numbers and ranges, each with an optional step
    taken = [
        {number for item in field.split(",") for number in _item(part, item)} for part, field in zip(_PARTS, fields, strict=True)
    ]
    every_weekday = fields[4][0] in "*?"  # otherwise either of the two kinds of days will do
    if every_weekday and min(taken[2]) > max(_DAYS[month - 1] for month in taken[3]):
        raise problem("no month that it names has such a day, so it never comes", "give a day that one of the months has")
    return " ".join(fields)


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


Cron = Annotated[
    str, StringConstraints(max_length=100), AfterValidator(lambda text: check(text, "the time zone is a key of its own"))
]
"""Five cron fields: minute, hour, day of month, month, day of week (0 is Sunday)."""


@functools.cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones() - {"localtime"})  # which would be that of the controller's pod


def _zone(text: str) -> str:
    if text not in _zones():
        near = difflib.get_close_matches(text, sorted(_zones()), n=1)
        raise problem("this is not an IANA time zone", f"write {near[0] if near else 'a name such as Europe/Berlin, or UTC'}")
    return text


def _at_least_a_minute(span: timedelta) -> timedelta:
    if span < timedelta(minutes=1):
        raise problem("the controller checks schedules once a minute, so this is too short", "write 1m or more")
    return span


class Schedule(Section):
    """Section `schedule` of a spec: when Argo starts runs by itself, by a CronWorkflow in the home cluster, one run at a time."""

    cron: Annotated[tuple[Cron, ...], Field(min_length=1, max_length=20), OneOrMore] = Field(
        description="Five cron fields, or a list of such lines.", examples=["0 2 * * 6"]
    )
    timezone: Annotated[str, StringConstraints(max_length=64), AfterValidator(_zone)] = Field(
        default="UTC", description="IANA time zone of the cron lines.", examples=["Europe/Berlin"]
    )
    starting_deadline: Annotated[Duration, AfterValidator(_at_least_a_minute)] = Field(
        default="10m",
        validate_default=True,
        description="How late a missed start may still happen, as after an outage of the controller.",
        examples=["10m"],
    )
    suspend: bool = Field(default=False, description="Whether the schedule is suspended and starts no runs.", examples=[True])


def _discriminates(selector: str) -> str:
    if not any(word in selector for word in ("payload", "metadata", "discriminator")):
        raise problem(
            "the selector matches every event of the namespace, or none",
            'look at payload, metadata or discriminator, as in discriminator == "my-cluster"',
        )
    return selector


class EventTrigger(Section):
    """An event that starts a run of the plan that was installed last: a webhook call to Argo's server. No data of the event enters
    the run.
    """

    name: DnsLabel = Field(description="Name of the trigger, unique in this file.", examples=["machine-replaced"])
    selector: Annotated[Argument, AfterValidator(_discriminates)] = Field(
        description="Expression over payload, metadata (x-* headers, lower case, each a list) and discriminator.",
        examples=['discriminator == "my-cluster" && payload.event == "machine-replaced"'],
    )


def _named_once(events: tuple[EventTrigger, ...]) -> tuple[EventTrigger, ...]:
    names = [event.name for event in events]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise problem(f"two events have the name {twice}", "give each its own name")
    return events


Events = Annotated[tuple[EventTrigger, ...], Listed, Field(max_length=20), AfterValidator(_named_once)]
"""The event triggers of one spec."""
