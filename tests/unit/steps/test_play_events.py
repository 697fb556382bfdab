"""Events of each host in a play are stored beside the log: by task, within a bound, without secrets, and not as evidence."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from steps.clients.ansible.play_journal import FOR_FAILURES, MOST_BYTES, PlayEvents
from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.contract.host_play import PlayEvent
from steps.contract.task import Task, Verb
from steps.report import verify
from tests.unit.answered_plays import answered

CANARY = "canary-7f3a9c1e-secret"
KEY = "runs/r1/events/os_prep/play/0001/01.jsonl"
PLAY = Task(
    stage="os_prep",
    name="play",
    verb=Verb.PLAY,
    arguments={"playbook": "os_prep", "ssh": {}, "gate": "os_prep/nodes", "fanned": True},
    expectations={"systems": ["ubuntu 24.04"], "items": []},
)


def did(hosts: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The first host changes, the second fails and says a secret, the third is never heard of again."""
    first, second, third = hosts
    yield "playbook_on_task_start", {"task": "Prepare"}
    for host in hosts:
        yield "runner_on_start", {"host": host, "task": "Prepare"}
    yield "runner_on_ok", {"host": first, "task": "Prepare", "duration": 2.5, "res": {"changed": True, "observation": {"os": "x"}}}
    yield "runner_on_failed", {"host": second, "task": "Prepare", "duration": 1.0, "res": {"msg": f"no login with {CANARY}"}}
    yield "runner_on_skipped", {"host": first, "task": "Reboot"}
    yield "runner_on_start", {"host": third, "task": "Reboot"}


@pytest.fixture
def played(desk: Any) -> Iterator[Any]:
    (desk.root / "secrets" / "token").write_text(f"{CANARY}\n")
    with answered(did) as (url, _):
        desk.environment |= {SIMULATOR: url, SIMULATOR_TOKEN: "t"}
        yield desk


def test_events_of_hosts_are_stored_beside_the_log(played: Any) -> None:
    done = played.run(PLAY, "--shard", "1")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in played.store.read(KEY).splitlines()]
    assert [(row["event"], row["host"], row["task"]) for row in rows] == [
        ("runner_on_ok", "gpu1", "Prepare"),
        ("runner_on_failed", "gpu2", "Prepare"),
        ("runner_on_start", "gpu3", "Reboot"),
    ]
    assert (rows[0]["changed"], rows[0]["seconds"]) == (True, 2.5)
    assert rows[1]["message"] == "no login with [redacted]"
    assert "what each host did, task by task: runs/r1/events/os_prep/play/0001\n" in done.stderr
    assert b"runner_on" not in played.store.read("runs/r1/evidence/os_prep/play/0001/01.json")


def test_a_second_attempt_has_its_own_and_the_evidence_digest_is_about_neither(played: Any) -> None:
    assert played.run(PLAY, "--shard", "1").returncode == 0
    before = played.store.evidence_digest("r1", "os_prep")
    played.store.path(KEY).unlink()
    assert played.store.evidence_digest("r1", "os_prep") == before
    assert played.run(PLAY, "--shard", "1").returncode == 0
    assert played.store.keys("runs/r1/events") == (KEY.replace("01.jsonl", "02.jsonl"),)


def test_the_seal_covers_them(played: Any) -> None:
    assert played.run(PLAY, "--shard", "1").returncode == 0
    assert played.run(Task(stage="run", name="seal", verb=Verb.SEAL), "--input", "status=Failed").returncode == 0
    path = played.store.path(KEY)
    path.write_bytes(path.read_bytes() + b"\n")
    assert verify.problems(path.parents[4]) == (f"{KEY.removeprefix('runs/r1/')}: changed since it was sealed",)


def test_a_task_without_a_play_leaves_none(desk: Any) -> None:
    judge = Task(stage="gang", name="judge", verb=Verb.JUDGE, arguments={"checks": [], "needed": 0})
    desk.run(judge)
    assert desk.store.keys("runs/r1/logs")
    assert desk.store.keys("runs/r1/events") == ()


def test_beyond_the_bound_failures_are_still_kept_and_what_is_left_out_is_counted() -> None:
    events = PlayEvents()
    for number in range(60_000):
        events.take(PlayEvent(event="runner_on_ok", time=float(number), host=f"gpu{number:05}", task="Prepare the machine"))
    full = len(events.text())
    assert MOST_BYTES - FOR_FAILURES - 1000 < full < MOST_BYTES - FOR_FAILURES + 1000
    events.take(PlayEvent(event="runner_on_unreachable", time=60_000.0, host="gpu60000", message="gone"))
    rows = [json.loads(line) for line in events.text().splitlines()]
    assert rows[-2]["message"] == "gone"
    assert rows[-1] == {"event": "left_out", "time": 0.0, "message": f"{60_000 - len(rows) + 2} events left out beyond 4 MiB"}
    for number in range(20_000):
        events.take(PlayEvent(event="runner_on_failed", time=float(number), host=f"gpu{number:05}", message="gone" * 20))
    assert len(events.text()) < MOST_BYTES + 1000
