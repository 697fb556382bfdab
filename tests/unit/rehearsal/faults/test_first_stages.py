"""Every fault of the first stages is caught by the gate it names, from a snapshot before its stage; healthy stages pass."""

from collections.abc import Callable

import pytest

from tests.unit.rehearsal.fault_sweep import FaultResult
from tests.unit.rehearsal.faults.samples import fault_rows
from workflows.stages import ORDER

STAGES = ORDER[:5]


@pytest.mark.parametrize("name", fault_rows(STAGES))
def test_the_named_gate_catches_it(name: str, catch_of: Callable[[str, tuple[str, ...]], FaultResult]) -> None:
    catch = catch_of(name, STAGES)
    assert not catch.problem, catch.problem
    assert catch.outcome.exit_code == 65


@pytest.mark.parametrize("stage", STAGES)
def test_no_false_alarm_between_the_faults(stage: str, catch_of: Callable[[str, tuple[str, ...]], FaultResult]) -> None:
    catch = catch_of(f"healthy {stage}", STAGES)
    assert not catch.problem, catch.problem


def test_failing_gates_and_diagnosis_ask_for_nothing_that_their_roles_deny(
    refused_in: Callable[[tuple[str, ...]], dict[str, list[str]]],
) -> None:
    """Covers requests that healthy runs never make; `tests/cluster` checks the same Roles with a real authorizer."""
    refused = refused_in(STAGES)
    assert refused
    assert not any(refused.values()), refused
