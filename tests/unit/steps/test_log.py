"""Planted secrets never come out of a step: not on stderr, in a traceback, from a child, in its stored log or in `bringup logs`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.clients.output_log import HEAD, TAIL, Log
from steps.clients.redact import Redactor
from steps.contract.runs import log_keys, run_seal
from steps.contract.task import Task, Verb
from steps.report import verify

CANARY = "canary-7f3a9c1e-secret"
ROOT = Path(__file__).parents[3]
OPEN = Task(
    stage="run",
    name="open",
    verb=Verb.OPEN,
    arguments={"plan": "sha256:p", "cluster": "c", "owner": "o", "revision": "1", "target_uid": ""},
)
SEAL = Task(stage="run", name="seal", verb=Verb.SEAL)


@pytest.fixture
def planted(desk: Any) -> Any:
    """A desk with a secret file that says the canary twice: as a whole file, and as a field of YAML."""
    (desk.root / "secrets" / "token").write_text(f"{CANARY}\n")
    (desk.root / "secrets" / "login.yaml").write_text(f"user: robot\npassword: {CANARY}-pw\n")
    return desk


def stored(desk: Any) -> dict[str, str]:
    return {key: desk.store.read(key).decode() for key in desk.store.keys(log_keys.folder("r1"))}


def test_an_error_and_its_hint_are_printed_without_secrets(planted: Any) -> None:
    done = planted.run(msgspec.structs.replace(OPEN, arguments={**OPEN.arguments, "plan": f"{CANARY}-pw"}))
    assert done.returncode == 64
    assert "fleet belongs to plan sha256:p, the task to [redacted]" in done.stderr
    assert "hint: " in done.stderr
    assert "canary" not in done.stderr + done.stdout + "".join(stored(planted).values())


def test_a_usage_error_is_printed_without_secrets(planted: Any) -> None:
    done = planted.run(OPEN, "--input", CANARY)
    assert done.returncode == 64
    assert "[redacted]" in done.stderr
    again = planted.run(OPEN, f"--{CANARY}")
    assert again.returncode == 64
    assert "canary" not in done.stderr + again.stderr


def test_a_traceback_is_printed_without_secrets_and_stored(planted: Any) -> None:
    record = {"run": "r1", "stage": "gang", "task": "control", "verdict": {"gate": "gang/control", "status": CANARY}}
    planted.store.write("runs/r1/evidence/gang/control/0000/01.json", msgspec.json.encode(record))
    arguments = {"checks": [{"task": "control", "gate": "gang/control"}], "needed": 3}
    done = planted.run(Task(stage="gang", name="judge", verb=Verb.JUDGE, arguments=arguments))
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert "[redacted]" in done.stderr
    assert "judge: bug: " in done.stderr
    kept = stored(planted)["runs/r1/logs/gang/judge/0000/01.log"]
    assert kept in done.stderr
    assert "canary" not in done.stderr + kept


def test_a_step_without_its_folders_prints_no_secret_either(planted: Any) -> None:
    del planted.environment["BRINGUP_OUT"]
    done = planted.run(OPEN, "--input", f"x={CANARY}")
    assert done.returncode == 64
    assert "environment lacks BRINGUP_OUT" in done.stderr
    missing = planted.run(OPEN, "--task", f"{CANARY}.json")
    assert "canary" not in missing.stderr


PRINTS = """
import os, subprocess, sys, warnings
from steps.clients import output_log
with output_log.RedirectedOutput(os.environ) as held:
    secret = open(os.environ["BRINGUP_SECRETS"] + "/token").read().strip()
    print("stdout", secret)
    print("stderr", secret, file=sys.stderr, end="")
    warnings.warn("warned " + secret)
    subprocess.run(["sh", "-c", 'echo child "$0"; echo child "$0" >&2', secret], check=True)
    subprocess.run(["echo", "handed", secret], stdout=sys.stdout, check=True)
    os.write(2, f"past Python {secret} ".encode())
    print("x" * 100_000, secret)
    sys.stderr.write("y" * 70_000 + secret)
    held.say("ends with " + secret)
print("after")
"""


def test_whatever_prints_while_the_log_holds_the_process_prints_no_secret(planted: Any) -> None:
    environment = {**os.environ, **planted.environment}
    done = subprocess.run(
        [sys.executable, "-c", PRINTS], env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for said in ("stdout [redacted]", "after"):
        assert said in done.stdout
    for said in ("stderr [redacted]", "warned [redacted]", "child [redacted]", "handed [redacted]", "past Python [redacted]"):
        assert said in done.stderr, said
    assert done.stderr.count("child [redacted]") == 2
    assert "characters without a line end left out" in done.stderr
    assert "canary" not in done.stdout + done.stderr


def test_a_step_says_what_it_did_and_the_store_has_the_same_text(desk: Any) -> None:
    done = desk.run(OPEN)
    assert done.returncode == 0, done.stderr
    ((key, text),) = stored(desk).items()
    assert key == "runs/r1/logs/run/open/0000/01.log"
    said = [line.split(" ", 1)[1] for line in text.splitlines()]
    assert said[0].startswith("open run.open shard 0 of run r1: input sha256:")
    assert said[1:] == ["created run r1", "recorded as attempt 1"]
    assert done.stderr == text + log_keys.kept_line(key)
    assert desk.run(OPEN).returncode == 0
    assert [key.rsplit("/", 1)[1] for key in stored(desk)] == ["01.log", "02.log"]


def test_the_seal_covers_every_log_also_its_own(desk: Any) -> None:
    assert desk.run(OPEN).returncode == 0
    done = desk.run(SEAL, "--input", "status=Succeeded")
    assert done.returncode == 0, done.stderr
    folder = desk.root / "store/runs/r1"
    logs = sorted(folder.glob("logs/**/*.log"))
    assert [path.relative_to(folder).as_posix() for path in logs] == ["logs/run/open/0000/01.log", "logs/run/seal/0000/01.log"]
    assert verify.problems(folder) == ()
    for path in logs:
        data = path.read_bytes()
        path.write_bytes(data[:-2] + b"?\n")
        assert verify.problems(folder) == (f"{path.relative_to(folder).as_posix()}: changed since it was sealed",)
        path.unlink()
        assert verify.problems(folder) == (f"{path.relative_to(folder).as_posix()}: missing",)
        path.write_bytes(data)
    assert {one.key for one in run_seal.decode((folder / run_seal.FILE).read_bytes()).files} >= {
        path.relative_to(folder).as_posix() for path in logs
    }


def test_a_log_that_cannot_be_stored_does_not_change_how_the_step_ends(desk: Any) -> None:
    assert desk.run(OPEN).returncode == 0
    shutil.rmtree(desk.root / "store/runs/r1/logs")
    (desk.root / "store/runs/r1/logs").write_text("in the way")
    done = desk.run(OPEN)
    assert done.returncode == 0
    assert "this log was not kept: " in done.stderr


def test_a_log_has_a_bound_and_keeps_its_beginning_and_its_end(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        said = Log(Redactor([]), out)
        for number in range(40_000):
            said.write(f"line {number}\n")
    text = said.text()
    assert HEAD < len(text) < HEAD + TAIL + 100
    assert text.startswith("line 0\n")
    assert text.endswith("line 39999\n")
    assert "characters left out ...]" in text
