"""Schedules and events in a spec: cron as Argo reads it, time zones by name, every error at once."""

import random
from datetime import timedelta
from typing import Any

import pytest
import yaml

from workflows import spec
from workflows.examples import path
from workflows.spec.sections.schedule import Schedule

BASE: dict[str, Any] = yaml.safe_load(path("three-hosts").read_text(encoding="utf-8"))
PIECES = ("*", "*", "?", "1", "5", "31", "59", "-", "/", ",", "jan", "sun")


def load(**sections: Any) -> spec.ClusterSpec:
    return spec.load(yaml.safe_dump(BASE | sections))


def test_they_load_with_their_defaults() -> None:
    loaded = load(schedule={"cron": "0  2 * * SAT"}, events=[{"name": "merged", "selector": 'payload.ref == "refs/heads/main"'}])
    wanted = Schedule(cron=("0 2 * * SAT",), timezone="UTC", starting_deadline=timedelta(minutes=10), suspend=False)
    assert loaded.schedule == wanted
    assert [event.name for event in loaded.events] == ["merged"]
    assert (load().schedule, load().events) == (None, ())


@pytest.mark.parametrize(
    "line",
    [
        "* * * * *",
        "*/15 0-6/2 1,15 jan-mar MON-FRI",
        "59 23 31 12 6",
        "0 0 29 2 *",
        "0 0 31 2 1",  # any Monday of February will do
        "5/10 ? ? * ?",
        "0 0 31 2,3 *",
    ],
)
def test_what_argo_reads_is_taken(line: str) -> None:
    loaded = load(schedule={"cron": [line, "0 1 * * *"], "timezone": "America/Argentina/Buenos_Aires"})
    assert loaded.schedule is not None
    assert loaded.schedule.cron == (line, "0 1 * * *")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "this has 0"),
        ("@daily", "this has 1"),
        ("0 0 2 * * 6", "this has 6"),
        ("TZ=Europe/Berlin 0 2 * * 6", "the time zone is a key of its own"),
        ("60 * * * *", "60 is no minute"),
        ("* 24 * * *", "write \\* or 0 to 23"),
        ("* * 0 * *", "0 is no day of month"),
        ("* * * 13 *", "jan to dec"),
        ("* * * * 7", "7 is no day of week"),  # 0 is Sunday, and nothing else is
        ("* * * * FRI-MON", "write two ranges"),
        ("*/0 * * * *", "no step that counts"),
        ("1,,2 * * * *", "nothing is no minute"),
        ("1- * * * *", "nothing is no minute"),
        ("*-5 * * * *", "\\* is no minute"),
        ("1/2/3 * * * *", "no step that counts"),
        ("١ * * * *", "is no minute"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
    ],
)
def test_what_argo_refuses_is_refused(line: str, sentence: str) -> None:
    with pytest.raises(spec.SpecErrors, match=sentence):
        load(schedule={"cron": line})


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"schedule": {"cron": "* * * * *", "timezone": "Europe/Belin"}}, "write Europe/Berlin"),
        ({"schedule": {"cron": "* * * * *", "timezone": "../../etc/passwd"}}, "not an IANA time zone"),
        ({"schedule": {"cron": "* * * * *", "timezone": "localtime"}}, "not an IANA time zone"),
        ({"schedule": {"cron": "* * * * *", "timezone": "Europe"}}, "not an IANA time zone"),
        ({"schedule": {"cron": "* * * * *", "starting_deadline": "30s"}}, "too short"),
        ({"schedule": {"cron": []}}, "at least 1"),
        ({"schedule": {"timezone": "UTC"}}, "required"),
        ({"schedule": {"cron": "* * * * *", "suspended": True}}, "did you mean suspend"),
        ({"events": [{"name": "a", "selector": "true"}]}, "every event of the namespace"),
        ({"events": [{"name": "a", "selector": "payload.x"}, {"name": "a", "selector": "payload.y"}]}, "the name a"),
        ({"events": [{"name": "Not A Name", "selector": "payload.x"}]}, "events\\[0\\].name"),
    ],
)
def test_errors_say_what_to_write(sections: dict[str, Any], sentence: str) -> None:
    with pytest.raises(spec.SpecErrors, match=sentence):
        load(**sections)


def test_all_errors_come_at_once() -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        load(schedule={"cron": ["60 * * * *", "* 24 * * *"], "timezone": "Mars/Olympus"}, events=[{"name": "a", "selector": "1"}])
    assert {one.path for one in caught.value.errors} == {
        "schedule.cron[0]",
        "schedule.cron[1]",
        "schedule.timezone",
        "events[0].selector",
    }


def test_any_text_gives_a_schedule_or_errors() -> None:
    seed = 20261121
    print("seed", seed)
    chance = random.Random(seed)
    texts: list[str] = []
    for _ in range(2000):
        line = " ".join("".join(chance.choices(PIECES, k=chance.choice((1, 1, 1, 3)))) for _ in range(5))
        try:
            spec.load_as(spec.FactorySpec, yaml.safe_dump({"schedule": {"cron": line}}))
        except spec.SpecErrors as errors:
            texts.append(str(errors))
    assert len(texts) == 2000  # the rest of the spec is missing
    assert 100 < sum("schedule.cron" in text for text in texts) < len(texts)
