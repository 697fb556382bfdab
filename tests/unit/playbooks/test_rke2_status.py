"""What a service shows on its own host: since when it runs, by both clocks."""

import time
from typing import Any

import pytest

from steps.contract.stages.rke2 import HostFacts
from tests.unit.playbooks.library import loaded


@pytest.fixture(scope="module")
def status() -> Any:
    return loaded("rke2_status")


def test_how_long_a_unit_has_run_is_told_beside_when_it_came_up(status: Any) -> None:
    told = status.started(int((time.monotonic() - 1000) * 1e6))
    assert told["up_seconds"] == pytest.approx(1000, abs=5)
    assert told["started"] == pytest.approx(time.time() - 1000, abs=5)
    assert HostFacts(service="rke2-server", restarts=0, **told).up_seconds == told["up_seconds"]


def test_a_unit_that_never_came_up_has_run_for_no_time(status: Any) -> None:
    assert status.started(0) == {"started": 0.0, "up_seconds": 0.0}
