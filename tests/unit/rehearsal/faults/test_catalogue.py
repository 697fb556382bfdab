"""The catalogue of faults: enough of them, the known false greens among them, names with proposals."""

import pytest

from workflows.rehearsal.faults import registry
from workflows.stages import OPERATIONS, ORDER


@pytest.mark.parametrize("stage", [*ORDER, *OPERATIONS])
def test_each_stage_has_faults(stage: str) -> None:
    assert len([fault for fault in registry.faults() if fault.stage == stage]) >= 2


def test_the_false_greens_are_among_them() -> None:
    assert {"0.1", "0.2", "0.6", "0.8", "0.9", "0.10"} <= {fault.false_green for fault in registry.faults()}


def test_a_wrong_name_proposes_the_nearest() -> None:
    with pytest.raises(registry.UnknownFault, match="did you mean"):
        registry.find("dns_brokn")
