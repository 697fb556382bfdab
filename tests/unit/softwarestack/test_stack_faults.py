"""Every fault of software stacks has a gate case with its cause, and a test that brings it about."""

import ast
import re
from pathlib import Path

import msgspec
import pytest

from steps.contract.verdict import Status
from tests.gates.case_files import FOLDER
from tests.gates.test_cases import Case, decide
from workflows.app import reference
from workflows.rehearsal.faults import fault_registry
from workflows.softwarestack import stack_faults
from workflows.softwarestack.stack_faults import StackFault

TESTS = Path(__file__).parents[2]
BY_THE_ENGINE = ("build_pod_evicted",)
"""Faults that no observation of a gate shows: the build left no record, and the judge of the stage says so."""
OF_FACTORIES = {"registry_down": "factory_registry/control", "volume_not_shared": "factory_storage/functional"}
"""Faults of what builds stacks, which a rehearsal of a factory plays."""


@pytest.mark.parametrize("fault", stack_faults.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_a_gate_case_with_its_cause_and_a_test(fault: StackFault) -> None:
    assert fault.gate in reference.gates()
    file, _, function = fault.test.partition("::")
    functions = [node.name for node in ast.walk(ast.parse((TESTS / file).read_text())) if isinstance(node, ast.FunctionDef)]
    assert function in functions, f"{file} has no such test"
    if fault.name in BY_THE_ENGINE:
        assert not fault.case
        return
    case = msgspec.json.decode((FOLDER / fault.stage / f"{fault.case}.json").read_bytes(), type=Case)
    verdict = decide(case)
    assert (case.gate, verdict.status) == (fault.gate, Status.FAIL)
    assert re.search(fault.cause, verdict.reason), verdict.reason


def test_no_fault_has_two_meanings_and_those_of_factories_are_simulated() -> None:
    simulated = {fault.name: fault.gate for fault in fault_registry.faults()}
    names = [fault.name for fault in stack_faults.FAULTS]
    assert len(set(names)) == len(names)
    assert not set(names) & simulated.keys()
    assert OF_FACTORIES.items() <= simulated.items()


def test_a_fault_of_a_stack_is_listed_and_explained() -> None:
    lines = reference.explain("rpath_wrong")
    assert lines[1].startswith("caught by gate stack_tree/tree: ")
    assert "tests/stack/test_tree_faults.py" in lines[2]
    assert "rpath_wrong" in "\n".join(reference.explain("stack_tree"))
    assert "rpath_wrong" in reference.words()
