"""The tests of faults as rows of a parametrised function, and the families of which each run takes a sample.

A family holds the faults of one gate that judges one report: of a play, or of the pods of a check. Its faults take
one path: the simulator writes another value into one row of the report, one probe reads it, and one gate names the row. Cases of
these gates as data (`tests/gates`) are never sampled. Faults of all other gates always run.
"""

from collections.abc import Collection
from typing import Any

import pytest

from workflows.rehearsal.faults import fault_registry

SAMPLED = {
    "os_prep/nodes": 8,
    "rke2/functional": 3,
    "gpu_operator/functional": 2,
    "network_operator/functional": 4,
    "gang/oversize": 3,
    "gang/functional": 3,
    "validation/intra": 2,
    "validation/dcgm": 2,
    "validation/functional": 6,
}
"""Number of faults of a gate that run; `tests/run --long` and pytest called by hand run all."""


def fault_rows(stages: Collection[str]) -> list[Any]:
    """Return the names of the faults of some stages; those of a family are marked as such."""
    return [_row(fault) for fault in fault_registry.faults() if fault.stage in stages]


def _row(fault: fault_registry.Fault) -> Any:
    count = SAMPLED.get(fault.gate, 0)
    return pytest.param(fault.name, marks=[pytest.mark.sampled_rows(count, f"faults of {fault.gate}")] if count else [])
