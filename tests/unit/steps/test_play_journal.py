"""A step that is killed in its play leaves what its hosts had done; the next attempt, or the seal, keeps it without secrets."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.contract import host_play as contract
from steps.contract.task import Task, Verb, encode, file_name
from tests.unit.answered_plays import answered
from tests.unit.steps.conftest import ROOT, Desk
from tests.unit.steps.test_play_events import CANARY, PLAY, did

FOLDER = "runs/r1/events/os_prep/play/0001"
KILLED = """
import os, signal, sys
from pathlib import Path
from steps.clients import environment
from steps.contract import task
from steps.contract.host_play import PlayEvent
from steps.runtime.context import Context

context = Context(task.decode(Path(sys.argv[1]).read_bytes()), environment.read(), 1)
for name, host, words in (
    ("runner_on_start", "gpu1", {}), ("runner_on_ok", "gpu1", {"changed": True}),
    ("runner_on_failed", "gpu2", {"message": "no login with SECRET"}), ("runner_on_start", "gpu3", {}),
):
    context.hear(PlayEvent(event=name, time=1.0, host=host, task="Prepare", **words))
os.kill(os.getpid(), signal.SIGKILL)
"""
"""A step of which nothing is left: it hears of its hosts and is killed."""


def killed(desk: Desk) -> None:
    (desk.root / "secrets" / "token").write_text(f"{CANARY}\n")
    path = desk.root / "tasks" / file_name(PLAY.stage, PLAY.name)
    path.write_bytes(encode(PLAY))
    command = [sys.executable, "-c", KILLED.replace("SECRET", CANARY), str(path)]
    done = subprocess.run(command, env={**os.environ, **desk.environment, "PYTHONPATH": str(ROOT)}, check=False, timeout=60)
    assert done.returncode == -9


def rows(desk: Desk, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (desk.store.read(f"{FOLDER}/{name}") or b"").splitlines()]


def left(desk: Desk) -> list[str]:
    return sorted(path.name for path in desk.store.path(FOLDER).iterdir())


def test_the_next_attempt_keeps_what_hosts_had_done_and_says_that_it_was_cut_off(desk: Desk) -> None:
    killed(desk)
    with answered(did) as (url, _):
        desk.environment |= {SIMULATOR: url, SIMULATOR_TOKEN: "t"}
        done = desk.run(PLAY, "--shard", "1")
    assert done.returncode == 0, done.stderr
    assert f"a step was cut off in its play; what its hosts had done by then: {FOLDER}/cut-off-01.jsonl\n" in done.stderr
    assert [(row["event"], row.get("host", "")) for row in rows(desk, "cut-off-01.jsonl")] == [
        ("runner_on_ok", "gpu1"),
        ("runner_on_failed", "gpu2"),
        ("runner_on_start", "gpu3"),
        ("cut_off", ""),
    ]
    assert rows(desk, "cut-off-01.jsonl")[1]["message"] == "no login with [redacted]"
    assert left(desk) == ["01.jsonl", "cut-off-01.jsonl"], "an attempt that came to its end leaves no journal"


def test_what_lies_there_meanwhile_has_no_secret_and_is_for_nobody_else(desk: Desk) -> None:
    killed(desk)
    (journal,) = desk.store.path(FOLDER).iterdir()
    assert CANARY not in journal.read_text()
    assert journal.stat().st_mode & 0o777 == 0o600
    assert desk.store.keys("runs/r1") == ()


def test_each_killed_attempt_is_kept(desk: Desk) -> None:
    killed(desk)
    killed(desk)
    with answered(did) as (url, _):
        desk.environment |= {SIMULATOR: url, SIMULATOR_TOKEN: "t"}
        assert desk.run(PLAY, "--shard", "1").returncode == 0
    assert left(desk) == ["01.jsonl", "cut-off-01.jsonl", "cut-off-02.jsonl"]


def test_the_seal_keeps_what_nobody_tried_again(desk: Desk) -> None:
    killed(desk)
    done = desk.run(Task(stage="run", name="seal", verb=Verb.SEAL), "--input", "status=Failed")
    assert done.returncode == 0, done.stderr
    assert left(desk) == ["cut-off-01.jsonl"]
    assert f"{FOLDER.removeprefix('runs/r1/')}/cut-off-01.jsonl" in (desk.store.read("runs/r1/seal.json") or b"").decode()


def test_the_journal_of_a_step_that_lives_is_left_to_it(desk: Desk) -> None:
    first, second = desk.context(PLAY), desk.context(PLAY)
    first.hear(contract.PlayEvent(event="runner_on_ok", time=1.0, host="gpu1"))
    second.hear(contract.PlayEvent(event="runner_on_ok", time=2.0, host="gpu2"))
    assert desk.store.keys("runs/r1/events") == ()
    first.keep_log()
    second.keep_log()
    assert len(desk.store.keys("runs/r1/events")) == 2
    assert all(not path.name.startswith(".") for path in desk.store.path("runs/r1/events").rglob("*"))


@pytest.mark.usefixtures("simulator")
def test_plays_that_ask_servers_whose_they_are_keep_events_too(desk: Desk) -> None:
    arguments = {"plan": "sha256:p", "cluster": "c", "owner": "o", "revision": "1", "ssh": {"user": "root"}}
    assert desk.run(Task(stage="run", name="open", verb=Verb.OPEN, arguments=arguments)).returncode == 0
    (key,) = desk.store.keys("runs/r1/events")
    assert key == "runs/r1/events/run/open/0000/01.jsonl"
    assert b'"host":"sv1"' in (desk.store.read(key) or b"")
