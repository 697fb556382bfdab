"""A local run that is resumed announces by command what waits, also to those whom the ended command had not told; once."""

import dataclasses
import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.contract.runs import approval
from steps.contract.task import Task, Verb
from tests.unit.cli.conftest import until
from workflows import bringup, examples
from workflows.app.runs import local_start
from workflows.engines import launch, run_inputs
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.result import News, NodeNews
from workflows.plan.compiler import compile_plan
from workflows.render.bundle import render
from workflows.spec import load
from workflows.stages.stage import Approval, Change, Stage, Step

HEARD = "heard"


@pytest.fixture
def folder(machine: Any) -> RunFolder:
    """The inputs of a run called `held`, which waits for an approval first."""
    path = machine.folder / "cluster.yaml"
    how = f"announce: {{command: [tee, -a, {machine.folder / HEARD}]}}"
    path.write_text(
        f"{examples.path('single-node').read_text()}approvals:\n  - before: validation\n    approvers: [ada]\n    {how}\n"
    )
    spec = load(path)
    checks = {"checks": [{"task": "control", "gate": "validation/control"}], "needed": 1, "members": "all"}
    stage = Stage(
        id="validation",
        title="Validation",
        steps=(Step(task=Task(stage="validation", name="judge", verb=Verb.JUDGE, arguments=checks)),),
        gates=(),
        changes=(Change(what="nothing", where="nowhere"),),
        rollback="nothing to do",
        approval=Approval(approvers={"ada": ()}, timeout_seconds=600),
    )
    confirm = {"approved": "run", "approvers": {"ada": ()}}
    plan = compile_plan(spec)
    told = {name: value for name, value in plan.open_task.arguments.items() if name != "ssh"}  # there are no hosts to ask
    plan = dataclasses.replace(
        plan,
        stages=(stage,),
        secrets=(),
        releases=(),
        open_task=msgspec.structs.replace(plan.open_task, arguments=told),
        confirm_tasks={"validation": Task(stage="validation", name="confirm", verb=Verb.CONFIRM, arguments=confirm)},
        announce_tasks={},
    )
    made = StateFolder(machine.home).run("held")
    run_inputs.write(made, plan, render(plan, bringup.build), machine.folder, {})
    local_start.keep_announce_commands(made, spec)
    return made


def killed(folder: RunFolder) -> None:
    """Run until the approval waits, then die before anybody hears of it."""

    def observe(news: News) -> None:
        if isinstance(news, NodeNews) and news.node.name.startswith(approval.NODE_PREFIX):
            os.kill(os.getpid(), signal.SIGKILL)

    launch.start(folder, {}, observe)


def test_a_resumed_run_announces_what_waits_once(machine: Any, folder: RunFolder) -> None:
    child = multiprocessing.get_context("fork").Process(target=killed, args=(folder,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    heard = Path(machine.folder / HEARD)
    first = machine.start("resume")
    until(lambda: heard.exists() and heard.read_text().endswith("}"), "the announcement")
    first.send(signal.SIGKILL)
    first.end()
    again = machine.start("resume")
    again.say("waits for an approval")
    until(lambda: machine.call("approve", "--as", "ada", "--reject").code == 0, "the answer")
    assert again.end().code == 65
    told = json.loads(heard.read_text())  # one message, though two resumed
    assert (told["run"], told["stage"], told["approvers"]) == ("held", "validation", ["ada"])
    assert told["how"] == f"bringup approve held --as NAME --evidence {told['evidence']}"
