"""Logs of nvidia-mig-manager are read to the cause for which a configuration does not come, and never to a good run's chatter."""

import pytest

from steps.contract.verdict import CauseRank, FailureClass
from steps.stages.sharing import reader_mig

BUS = "00000000:07:00.0"
DEBUG = 'time="2026-11-28T10:00:01Z" level=debug msg="Error handling is on"\n'
RESET = 'time="2026-11-28T10:00:09Z" level=error msg="Error: error setting MIGMode: error resetting all GPUs: exit status 255"\n'


@pytest.mark.parametrize(
    ("line", "failure_class", "cause", "device"),
    [
        (f"Warning: MIG mode is in pending enable state for GPU {BUS}:In use by another client", "runtime", "holds the GPU", BUS),
        (f"{BUS} is currently being used by one or more other processes (e.g. CUDA)", "runtime", "holds the GPU", BUS),
        ('level=fatal msg="Error: selected mig-config not present: all-9g"', "input", "not present: all-9g", ""),
        (f"Warning: MIG mode is in pending enable state for GPU {BUS}:", "runtime", "waits for a reset", BUS),
        ("NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus.", "hardware", "Xid 79", "PCI:0000:07:00"),
    ],
)
def test_cause_stands_above_the_error_that_follows(line: str, failure_class: str, cause: str, device: str) -> None:
    first = reader_mig.errors(f"{DEBUG}{RESET}{line}\n")[0]
    assert cause in first.cause
    assert (first.failure_class, first.device) == (FailureClass(failure_class), device)


def test_unknown_error_is_quoted() -> None:
    (error,) = reader_mig.errors(DEBUG + RESET)
    assert error.rank is CauseRank.UNKNOWN
    assert "error resetting all GPUs" in error.cause


def test_good_log_has_no_errors() -> None:
    assert reader_mig.errors(f'{DEBUG}time="x" level=info msg="MIG configuration applied successfully, 0 errors"\n') == ()
