"""Starts of runs without a person: cron lines in a time zone, and events from webhooks. Argo's controller acts on both.

Argo would report a cron line that it cannot read only in the log of its controller, and one that never fires nowhere. So lines are
checked here.
"""

import difflib
import functools
import zoneinfo
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from workflows.spec import cron
from workflows.spec.fields import Argument, DnsLabel, Duration, Listed, OneOrMore, Section, problem


def _cron(text: str) -> str:
    return cron.check(text, "the time zone is a key of its own")


Cron = Annotated[str, StringConstraints(max_length=100), AfterValidator(_cron)]
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
    """When a pipeline runs by itself: a CronWorkflow in the home cluster, one run at a time."""

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
