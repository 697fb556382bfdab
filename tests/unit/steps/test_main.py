"""Every verb is a program of its own: exit codes of the table, one sentence on stderr, records in the store."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.contract.runs.judging import JudgedTask
from steps.contract.task import Task, Verb
from steps.contract.verdict import passed
from steps.runtime.context import Context

OPEN = Task(
    stage="run",
    name="open",
    verb=Verb.OPEN,
    arguments={"plan": "sha256:p", "cluster": "c", "owner": "o", "revision": "1", "target_uid": ""},
)


def test_open_creates_the_run_and_hands_out_shards(desk: Any) -> None:
    done = desk.run(OPEN)
    assert done.returncode == 0, done.stderr
    assert (desk.output("shards"), desk.output("agents")) == ("[0,1]", "[1]")
    assert msgspec.json.decode(desk.store.read("runs/r1/run.json"))["cluster"] == "c"
    assert desk.run(OPEN).returncode == 0, "a second attempt of the same task changes nothing"


def test_open_refuses_a_fleet_of_another_plan(desk: Any) -> None:
    done = desk.run(msgspec.structs.replace(OPEN, arguments={**OPEN.arguments, "plan": "sha256:other"}))
    assert done.returncode == 64
    assert "fleet belongs to plan sha256:p" in done.stderr


def test_judge_without_records_ends_with_65_and_says_so(desk: Any) -> None:
    task = Task(
        stage="gang",
        name="judge",
        verb=Verb.JUDGE,
        arguments={"checks": [{"task": "control", "gate": "gang/control"}], "needed": 3},
    )
    assert desk.run(task).returncode == 65
    verdict = desk.record("gang", "judge").verdict
    assert verdict is not None
    assert (desk.output("verdict"), verdict.reason.split(";")[0]) == ("inconclusive", "task control left no record")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["fly", "--task", "x"], 64, "invalid choice"),
        (["open"], 64, "--task"),
        (["open", "--task", "missing.json"], 64, "missing.json"),
        (["open", "--task", "x.json", "--shard", "first"], 64, "invalid int"),
    ],
)
def test_wrong_command_lines_end_with_64(desk: Any, arguments: list[str], code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "steps", *arguments],
        env=desk.environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_step_without_its_environment_names_what_is_missing(desk: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "steps", "open", "--task", "x"],
        env={},
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 64
    assert "BRINGUP_TASKS" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "truncated"),
        (b'{"stage":"run","name":"open","verb":"fly"}', "fly"),
        (b'{"stage":"run","name":"open","verb":"open","more":1}', "more"),
        (b'{"stage":"run","name":"open","verb":"open","schema":99}', "schema 99"),
        (b'{"stage":"run","name":"open","verb":"judge"}', "task for verb judge"),
        (b" " * 9000, "limit 8192"),
    ],
)
def test_bad_task_files_end_with_64_and_one_sentence(desk: Any, content: bytes, said: str) -> None:
    path = desk.root / "tasks" / "bad.json"
    path.write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-m", "steps", "open", "--task", str(path)],
        env=desk.environment,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 64
    assert said in done.stderr


def test_secrets_never_reach_the_store(desk: Any) -> None:
    canary = "canary-7f3a9c1e-secret"
    (desk.root / "secrets" / "token").write_text(canary + "\n")
    from steps.clients.environment import read

    context = Context(Task(stage="gang", name="control", verb=Verb.WAIT), read(desk.environment))
    context.record(passed("gang/control", f"seen {canary}"), observation={"log": [f"x {canary} y"]}, error=canary)
    context.keep_secret("made", "another-canary-value")
    context.record(passed("gang/control", "made another-canary-value"))
    stored = b"".join(desk.store.path(key).read_bytes() for key in desk.store.keys("runs/r1/evidence"))
    assert canary.encode() not in stored
    assert b"another-canary-value" not in stored
    assert b"[redacted]" in stored
    assert desk.store.path("runs/r1/secrets/made").stat().st_mode & 0o777 == 0o600


def test_checks_decode_as_the_stage_data_writes_them() -> None:
    assert msgspec.convert({"task": "a", "gate": "b"}, JudgedTask).select == ""
