"""The plays of RKE2 have all that they ask for: run by Ansible, with what the plan tells them, on a helper that is no server."""

import json
import sys
from pathlib import Path

import pytest

from steps.contract.runs.operation import BRINGUP, Operation, OperationKind
from tests.unit.playbooks import ansible_plays
from tests.unit.playbooks.library import PLAYBOOKS
from workflows import examples, spec
from workflows.plan.compiler import compile_plan


@pytest.mark.parametrize(
    ("stage", "task", "operation"),
    [
        ("rke2", "servers", BRINGUP),
        ("rke2", "agents", BRINGUP),
        ("reset", "agents", Operation(kind=OperationKind.RESET, hosts=frozenset({"gpu001"}))),
    ],
)
def test_a_helper_is_asked_with_what_the_plan_tells(stage: str, task: str, operation: Operation, tmp_path: Path) -> None:
    plan = compile_plan(
        spec.load(examples.path("h200-16").read_text()), until="rke2" if stage == "rke2" else "", operation=operation
    )
    told = next(one.arguments for one in plan.tasks if (one.stage, one.name) == (stage, task))
    assert told["helpers"] == "server"
    groups = {"helpers": {"hosts": {"sv1": None}}, "played": {"hosts": {"gpu001": None}}}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "bringup_address": "127.0.0.1"}
    (tmp_path / "hosts.json").write_text(json.dumps({"all": {"vars": local, "children": groups}}))
    (tmp_path / "variables.json").write_text(json.dumps(told["variables"]))

    done = ansible_plays.play(PLAYBOOKS / f"{told['playbook']}.yml", tmp_path / "hosts.json", told["variables"], "--limit", "sv1")

    assert "undefined" not in done.stdout + done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
