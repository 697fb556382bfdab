"""Logs of runs on the local engine: no planted secret, live while a step runs, the stored text afterwards; and `resume`'s view."""

import dataclasses
import multiprocessing
import os
import re
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.contract.runs.log_keys import KEPT
from steps.contract.task import Task, Verb
from tests.unit.chained_pipeline import build
from tests.unit.cli.conftest import until
from workflows import examples
from workflows.engines import launch, run_inputs
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.result import News, NodeNews
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import render
from workflows.spec import load
from workflows.stages.stage import Change, Stage, Step

CANARY = "canary-7f3a9c1e-secret"
LIVE = "echo begun {canary} >&2; until [ -e {go} ]; do sleep 0.02; done; echo gone on >&2"


def drill() -> Plan:
    """A plan with one stage whose judge finds no record, and says the canary in its reason."""
    arguments = {"checks": [{"task": "control", "gate": CANARY}], "needed": 1, "members": "all"}
    judge = Task(stage="drill", name="judge", verb=Verb.JUDGE, arguments=arguments)
    stage = Stage(
        id="drill",
        title="Drill",
        steps=(Step(task=judge),),
        gates=(),
        changes=(Change(what="nothing", where="nowhere"),),
        rollback="nothing to do",
    )
    plan = compile_plan(load(examples.path("three-hosts")))
    told = {name: value for name, value in plan.open_task.arguments.items() if name != "ssh"}  # a drill has no hosts to ask
    opening = msgspec.structs.replace(plan.open_task, arguments=told)
    return dataclasses.replace(plan, stages=(stage,), secrets=(), releases=(), open_task=opening, confirm_tasks={})


@pytest.fixture
def folder(machine: Any) -> RunFolder:
    """The inputs of a run called `drill`, with the canary among its secrets."""
    plan, made = drill(), StateFolder(machine.home).run("drill")
    run_inputs.write(made, plan, render(plan, build), machine.folder, {})
    (made.inputs / "secrets" / "token").write_text(f"{CANARY}\n")
    return made


def everything(root: Path) -> str:
    """All text below a folder that is no input: what the engine and the store have."""
    files = (path for name in ("engine", "store") for path in (root / name).rglob("*") if path.is_file())
    return "".join(path.read_bytes().decode(errors="replace") for path in files)


def test_logs_hold_no_planted_secret_and_each_text_once(machine: Any, folder: RunFolder) -> None:
    assert launch.start(folder, {}, None).exit_code == 65
    whole = machine.call("logs").out
    assert "expected a verdict of gate [redacted]" in whole
    assert "canary" not in whole
    assert CANARY not in everything(machine.home)
    assert not KEPT.search(whole)
    for stored in (folder.stored / "logs").rglob("*.log"):
        assert whole.count(stored.read_text()) == 1, stored
    assert [line.split(".")[1].split("(")[0] for line in whole.splitlines() if line.startswith("==> ")] == [
        "open",
        "drill",
        "onExit",
        "onExit",
    ]
    assert machine.call("verify", folder.stored).code == 0


def test_the_stored_log_is_shown_and_what_a_killed_attempt_said_before_it(machine: Any, folder: RunFolder) -> None:
    launch.start(folder, {}, None)
    (live,) = (folder.engine / "logs").glob("*drill.judge*.log")
    (stored,) = (folder.stored / "logs/drill/judge").rglob("*.log")
    said, text = live.read_text(), stored.read_text()
    live.write_text("a killed attempt said this\n" + said + "and this came after the log was kept\n")
    (_, *shown) = machine.call("logs", "drill.judge").out.splitlines()
    assert shown == ["a killed attempt said this", *text.splitlines(), "and this came after the log was kept"]
    live.write_text(said.replace("left no record", "was fine"))  # what the engine has is nobody's evidence
    assert machine.call("logs", "drill.judge").out.splitlines()[1:] == text.splitlines()
    live.unlink()
    name, *shown = machine.call("logs", "drill-judge").out.splitlines()
    assert name == "==> runs/drill/logs/drill/judge/0000/01.log <=="
    assert shown == text.splitlines()


def test_logs_are_live_while_a_step_runs(machine: Any, folder: RunFolder) -> None:
    go = machine.folder / "go"
    manifest = msgspec.json.decode((folder.inputs / run_inputs.MANIFEST).read_bytes())
    for template in manifest["template"]["spec"]["templates"]:
        if template["name"] == "drill-judge":
            template["container"] |= {"command": ["sh", "-c"], "args": [LIVE.format(canary="here", go=go)]}
    (folder.inputs / run_inputs.MANIFEST).write_bytes(msgspec.json.encode(manifest))
    run = threading.Thread(target=launch.start, args=(folder, {}, None))
    run.start()
    until(lambda: (folder.engine / "journal.db").exists(), "the journal")
    followed = machine.start("logs", "drill", "--follow")
    try:
        until(lambda: (folder.engine / "journal.db").exists() and "begun here" in machine.call("logs", "drill").text, "a live line")
        assert "gone on" not in machine.call("logs", "drill").out
        followed.say("begun here")
    finally:
        go.touch()
        run.join()
    assert machine.call("logs", "drill").out.splitlines()[1:] == ["begun here", "gone on"]
    ended = followed.end()
    assert (ended.code, ended.out.splitlines()[1:]) == (0, ["begun here", "gone on"]), ended.text


def killed(folder: RunFolder) -> None:
    """Run until the stage's judge has started, then die on the spot."""

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.node.template == "drill-judge":
            os.kill(os.getpid(), signal.SIGKILL)

    launch.start(folder, {}, observe)


def test_a_resumed_run_shows_its_progress(machine: Any, folder: RunFolder) -> None:
    child = multiprocessing.get_context("fork").Process(target=killed, args=(folder,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    done = machine.call("resume")
    assert done.code == 65
    assert done.out.splitlines()[0] == "run drill goes on: 0 of 1 stages have passed"
    assert re.search(r"^drill: inconclusive: task control left no record; .*\[redacted\].* \(\d+\.\d s\)$", done.out, re.MULTILINE)
    assert f"evidence {folder.stored}" in done.out


def test_resuming_a_run_that_has_ended_starts_a_new_one_that_reuses_it(machine: Any, folder: RunFolder) -> None:
    """The new run copies the old run's inputs, and its secrets with closed permissions; the old run's folders stay unchanged."""
    (folder.inputs / "secrets/token").chmod(0o600)
    assert launch.start(folder, {}, None).exit_code == 65
    before = everything(folder.engine), everything(folder.stored)
    done = machine.call("resume", "drill")
    assert done.code == 65
    first, note = done.out.splitlines()[:2]
    said = "goes on where drill ended; what that proved and still holds is not done again"
    name = re.fullmatch(rf"run (three-hosts-\S+): {said}", first)
    assert name, done.text
    assert note == "run drill never reached its cluster: nothing of it is reused"
    assert re.search(r"^drill: inconclusive: task control left no record; ", done.out, re.MULTILINE)
    made = folder.home.run(name[1])
    assert (everything(folder.engine), everything(folder.stored)) == before
    assert (made.stored / "seal.json").exists()
    closed = [path.stat().st_mode & 0o777 for path in (made.inputs / "secrets", made.inputs / "secrets/token")]
    assert closed == [0o700, 0o600]
    assert machine.call("verify", made.stored).code == 0


def test_a_run_that_ended_before_it_began_is_resumed_without_reuse(machine: Any, folder: RunFolder) -> None:
    index = next((folder.inputs / "fleet").glob("index*"))
    kept = index.read_bytes()
    index.unlink()
    assert launch.start(folder, {}, None).exit_code != 0
    assert not (folder.stored / "run.json").exists()
    index.write_bytes(kept)
    done = machine.call("resume", "drill")
    assert "goes on where drill ended, which was before it began: nothing of it is reused" in done.out
    assert "drill: inconclusive: task control left no record; " in done.out


def test_an_ended_run_whose_inputs_are_gone_is_refused(machine: Any, folder: RunFolder) -> None:
    launch.start(folder, {}, None)
    shutil.rmtree(folder.inputs / "fleet")
    done = machine.call("resume", "drill")
    assert done.code == 64
    assert done.err == "error: run drill has ended and its fleet is gone: start it again with `bringup run SPEC --reuse drill`\n"
    assert [path.name for path in folder.home.root.joinpath("engine").iterdir()] == ["drill"]
