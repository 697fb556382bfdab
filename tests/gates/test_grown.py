"""Passing cases pass at the size of a fleet too, and no gate is forgotten by the benchmark of gates (`tests/bench/gates.py`)."""

from pathlib import Path

import pytest

from tests.gates import grown

GATES = grown.gates_of_nodes()


@pytest.mark.parametrize("path", GATES.values(), ids=GATES)
def test_a_grown_case_passes_on_every_node(path: Path) -> None:
    verdict = grown.grow(path, 40).decide()
    assert verdict.is_pass, verdict.reason
    assert len({row.node for row in verdict.nodes}) == len(verdict.nodes) >= 40


def test_gates_that_are_left_out_exist_and_judge_few() -> None:
    assert not grown.FEW.keys() & GATES.keys()
    assert {"gpu_operator/nodes", "gpu_operator/functional", "network_operator/functional", "os_prep/fleet"} <= GATES.keys()
