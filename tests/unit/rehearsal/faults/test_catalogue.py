"""The catalogue of faults: enough of them, the known false greens among them, names with proposals."""

import pytest

from workflows.rehearsal.faults import fault_registry
from workflows.stages import OPERATIONS, ORDER


@pytest.mark.parametrize("stage", [*ORDER, *OPERATIONS])
def test_each_stage_has_faults(stage: str) -> None:
    assert len([fault for fault in fault_registry.faults() if fault.stage == stage]) >= 2


def test_the_false_greens_are_among_them() -> None:
    known = {
        "no_gpu_nodes",
        "clusterpolicy_stale_ready",
        "operands_broken",
        "foreign_nfd",
        "nccl_socket_fallback",
        "nccl_slow_large_messages",
    }
    assert known <= {fault.name for fault in fault_registry.faults() if fault.false_green}


def test_sources_are_public() -> None:
    assert all(fault.source.startswith("https://") for fault in fault_registry.faults() if fault.source)


def test_a_wrong_name_proposes_the_nearest() -> None:
    with pytest.raises(fault_registry.UnknownFault, match="did you mean"):
        fault_registry.find_fault("dns_brokn")
