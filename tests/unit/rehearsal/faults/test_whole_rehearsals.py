"""Whole bring-ups with one fault in force from the start: the gate that it names catches it, and none before it does."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from workflows.rehearsal.faults import registry
from workflows.rehearsal.sweep import Catch

Whole = Callable[[registry.Fault, Path], Catch]


@pytest.mark.long
@pytest.mark.parametrize("fault", registry.faults(), ids=lambda fault: fault.name)
def test_the_first_gate_that_does_not_pass_is_the_named_one(fault: registry.Fault, tmp_path: Path, whole_catch: Whole) -> None:
    catch = whole_catch(fault, tmp_path)
    assert not catch.problem, catch.problem
    assert catch.outcome.exit_code == 65


@pytest.mark.parametrize("name", ["disk_full", "join_refused"])
def test_a_whole_rehearsal_ends_at_its_fault(name: str, tmp_path: Path, whole_catch: Whole) -> None:
    fault = registry.find(name)
    catch = whole_catch(fault, tmp_path)
    assert not catch.problem, catch.problem
    assert catch.stage == fault.stage


def test_nodes_whose_play_has_failed_are_judged_but_not_waited_for(tmp_path: Path, whole_catch: Whole) -> None:
    whole_catch(registry.find("join_refused"), tmp_path)
    records = [json.loads(path.read_text()) for path in tmp_path.glob("store/runs/*/evidence/rke2/nodes/**/*.json")]
    assert [(record["verdict"]["status"], record["verdict"]["final"]) for record in records] == [("fail", True)]
