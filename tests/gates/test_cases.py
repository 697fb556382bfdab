"""Every gate case is one JSON file: what a probe saw, what was wanted, and the verdict that must come of it."""

import importlib.util
import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from steps.contract.canonical import canonical
from steps.contract.verdict import FailureClass, Status, Verdict
from steps.runtime import gating
from tests.gates.case_files import FILES, read_case
from workflows.stages import FACTORY_STAGES, IMAGE_ORDER, OPERATIONS, RUNNING_ORDER, STACK_ORDER

STAGES = (*RUNNING_ORDER, *OPERATIONS, *IMAGE_ORDER, *STACK_ORDER, *FACTORY_STAGES)
LEAST = 8
"""Cases that a stage with gates must have."""


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`sentence` and `next_step` are searched in the verdict's reason and next step; `nodes` gives the status of some nodes."""

    gate: str
    why: str
    seen: dict[str, Any]
    want: dict[str, Any]
    verdict: Status
    sentence: str
    failure_class: FailureClass | None
    final: bool | None = None
    note: str = ""
    next_step: str = ""
    nodes: dict[str, Status] = {}


def nothing(kind: type) -> Any:
    """The smallest value of an observation type: required fields are empty or zero."""
    smallest = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            smallest[field.name] = next(value for value in ({}, (), 0, "", None) if convertible(value, field.type))
    return msgspec.convert(smallest, kind)


def convertible(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def decide(case: Case) -> Verdict:
    gate = gating.find(case.gate)
    return gate.decide(msgspec.convert(case.seen, gate.observation), msgspec.convert(case.want, gate.expectation))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case(path: Path) -> None:
    case = msgspec.convert(read_case(path), Case)
    verdict = decide(case)
    said = f"{verdict.status.value} {verdict.failure_class}: {verdict.reason}"
    assert verdict.status is case.verdict, said
    assert re.search(case.sentence, verdict.reason), said
    assert verdict.failure_class is case.failure_class, said
    assert case.final in (None, verdict.final), said
    assert not case.note or any(case.note in note for note in verdict.notes), verdict.notes
    assert re.search(case.next_step, verdict.next_step), verdict.next_step
    shown = {row.node: row.status for row in verdict.nodes}
    assert {name: shown.get(name) for name in case.nodes} == case.nodes, said


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_verdict_is_complete_and_pure(path: Path) -> None:
    case = msgspec.convert(read_case(path), Case)
    verdict = decide(case)
    assert verdict.gate == case.gate
    assert canonical(verdict) == canonical(decide(case))
    assert (verdict.failure_class is None) == (verdict.status in (Status.PASS, Status.SKIPPED))
    assert not (verdict.is_pass and verdict.final)
    for row in verdict.nodes:
        if row.status in (Status.FAIL, Status.INCONCLUSIVE):
            assert row.seen, row
            assert row.expected, row
            assert row.next_step, row
            assert row.failure_class, row
    if verdict.status in (Status.FAIL, Status.INCONCLUSIVE):
        assert verdict.seen, verdict.reason
        assert verdict.expected, verdict.reason
        assert verdict.next_step, verdict.reason


def test_folder_and_gate_agree() -> None:
    odd = [path.name for path in FILES if not msgspec.convert(read_case(path), Case).gate.startswith(f"{path.parent.name}/")]
    assert odd == []


@pytest.mark.parametrize("stage", [stage for stage in STAGES if importlib.util.find_spec(f"steps.stages.{stage}.gate")])
def test_stage_has_cases_for_every_gate(stage: str) -> None:
    cases = [msgspec.convert(read_case(path), Case) for path in FILES if path.parent.name == stage]
    assert len(cases) >= LEAST
    verdicts = Counter((case.gate, case.verdict) for case in cases)
    for gate in {case.gate for case in cases}:
        assert verdicts[gate, Status.PASS], f"{gate} has no case that passes"
        assert verdicts[gate, Status.FAIL] + verdicts[gate, Status.INCONCLUSIVE], f"{gate} has no case that does not pass"


@pytest.mark.parametrize("stage", [stage for stage in STAGES if importlib.util.find_spec(f"steps.stages.{stage}.gate")])
def test_nothing_seen_is_never_a_pass(stage: str) -> None:
    """The smallest observation that a gate can be given must not pass: missing data proves nothing."""
    wants: dict[str, dict[str, Any]] = {}
    for path in (path for path in FILES if path.parent.name == stage):
        case = msgspec.convert(read_case(path), Case)
        if case.verdict is Status.PASS:
            wants.setdefault(case.gate, case.want)
    for gate_id, want in wants.items():
        gate = gating.find(gate_id)
        assert not gate.decide(nothing(gate.observation), msgspec.convert(want, gate.expectation)).is_pass, gate_id
