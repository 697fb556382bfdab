"""Whole bring-ups with one fault in force from the start: the gate that it names catches it, and none before it does."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.rehearsal.fault_sweep import FaultResult
from workflows.rehearsal.faults import fault_registry
from workflows.stages import FACTORY_STAGES

Whole = Callable[[fault_registry.Fault, Path], FaultResult]


BRINGUP_FAULTS = [fault for fault in fault_registry.faults() if fault.stage not in FACTORY_STAGES]


@pytest.mark.long
@pytest.mark.parametrize("fault", BRINGUP_FAULTS, ids=lambda fault: fault.name)
def test_the_first_gate_that_does_not_pass_is_the_named_one(
    fault: fault_registry.Fault, tmp_path: Path, whole_catch: Whole
) -> None:
    catch = whole_catch(fault, tmp_path)
    assert not catch.problem, catch.problem
    assert catch.outcome.exit_code == 65


@pytest.mark.parametrize("name", ["disk_full", "join_refused"])
def test_a_whole_rehearsal_ends_at_its_fault(name: str, tmp_path: Path, whole_catch: Whole) -> None:
    fault = fault_registry.find_fault(name)
    catch = whole_catch(fault, tmp_path)
    assert not catch.problem, catch.problem
    assert catch.stage == fault.stage
    if name == "join_refused":
        _judged_but_not_waited_for(tmp_path)


def _judged_but_not_waited_for(home: Path) -> None:
    """Nodes whose play has failed."""
    records = [json.loads(path.read_text()) for path in home.glob("store/runs/*/evidence/rke2/nodes/**/*.json")]
    assert [(record["verdict"]["status"], record["verdict"]["final"]) for record in records] == [("fail", True)]
