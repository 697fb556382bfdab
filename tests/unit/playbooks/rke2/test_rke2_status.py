"""Status of a service on its own host: how long it has run, by both clocks, and which parts are not ready."""

import time
from typing import Any

import pytest

from steps.stages.rke2.contract import Rke2HostFacts
from tests.unit.playbooks.library import loaded


@pytest.fixture(scope="module")
def status() -> Any:
    return loaded("rke2_status")


def test_how_long_a_unit_has_run_is_told_beside_when_it_came_up(status: Any) -> None:
    told = status.start_times(int((time.monotonic() - 1000) * 1e6))
    assert told["up_seconds"] == pytest.approx(1000, abs=5)
    assert told["started"] == pytest.approx(time.time() - 1000, abs=5)
    assert Rke2HostFacts(service="rke2-server", restarts=0, **told).up_seconds == told["up_seconds"]


def test_a_unit_that_never_came_up_has_run_for_no_time(status: Any) -> None:
    assert status.start_times(0) == {"started": 0.0, "up_seconds": 0.0}


@pytest.mark.parametrize(
    ("shown", "answering", "lacks"),
    [
        ({}, True, []),
        ({"supervisor": False}, True, ["supervisor"]),
        ({"etcd_healthy": False}, True, ["etcd_healthy"]),
        ({"etcd_healthy": None}, True, []),
        ({"supervisor": False, "etcd_healthy": False}, False, ["supervisor", "etcd_healthy", "API server"]),
        ({"state": "activating"}, True, ["unit activating"]),
        ({"state": ""}, True, ["unit unknown"]),
    ],
)
def test_a_server_that_runs_is_ready_with_its_supervisor_and_its_etcd(
    status: Any, shown: dict[str, Any], answering: bool, lacks: list[str]
) -> None:
    facts = {"service": "rke2-server", "state": "active", "supervisor": True, "etcd_healthy": True} | shown
    assert status.missing_state(facts, lambda: answering) == lacks


def test_an_agent_lacks_its_kubelet(status: Any) -> None:
    assert status.missing_state({"service": "rke2-agent", "state": "active"}, lambda: False) == ["kubelet"]
