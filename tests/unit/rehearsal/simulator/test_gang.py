"""The gang stage on the simulated cluster: its own tasks, probes and gates, healthy and under each fault."""

from __future__ import annotations

from typing import Any

import pytest

from steps.contract.verdict import Status
from tests.unit.rehearsal.simulator.harness import Make, User
from tests.unit.rehearsal.simulator.stage_runner import NODES, run, stage
from workflows.rehearsal.faults import gang as faults
from workflows.rehearsal.faults.fault_registry import Fault
from workflows.rehearsal.simulator import api_kinds

VOLCANO: dict[str, Any] = {"gang": "volcano"}
KAI: dict[str, Any] = {"gang": "kai"}
KUEUE: dict[str, Any] = {"quota": "kueue", "queues": [{"name": "research", "namespace": "team-a", "gpus": 24}]}


def cluster(make: Make, *active: str) -> User:
    """RKE2 with three nodes of eight GPUs, which are advertised as a device plugin would do it."""
    user = make(agents=3, servers=1, faults=[(name, ()) for name in active])
    user.bring_up()
    for name in NODES:
        at, resources = api_kinds.Ref("", name), {"nvidia.com/gpu": "8"}
        user.api.merge(api_kinds.NODES, at, {"status": {"capacity": resources, "allocatable": resources}}, "status")
        user.api.merge(api_kinds.NODES, at, {"metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-H200"}}})
    user.simulator.settle()
    return user


@pytest.mark.parametrize("scheduler", [VOLCANO, KAI, KUEUE, VOLCANO | KUEUE], ids=["volcano", "kai", "kueue", "volcano_and_kueue"])
def test_a_healthy_cluster_passes_every_gate(make: Make, scheduler: dict[str, Any]) -> None:
    user = cluster(make)
    verdicts = run(user, stage("gang", scheduler=scheduler))
    assert {"control", "nodes", "oversize", "functional"} <= set(verdicts)
    assert [verdict.reason for verdict in verdicts.values() if not verdict.is_pass] == []
    assert user.pods("bringup-check") == []


UNDECIDED = {
    "gang_scheduler_hangs": "has not said why the gang waits",
    "gang_scheduler_crashes": "",
    "gang_queue_closed": "state Closed",
}
"""Faults that leave a gate inconclusive; with any other it fails."""


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_its_gate_and_by_none_before(make: Make, fault: Fault) -> None:
    verdicts = list(run(cluster(make, fault.name), stage("gang", scheduler=VOLCANO)).values())
    assert all(verdict.is_pass for verdict in verdicts[:-1])
    last = verdicts[-1]
    assert last.gate == fault.gate, last
    if fault.name in UNDECIDED:
        assert not last.is_pass
        assert UNDECIDED[fault.name] in last.reason
    else:
        assert last.status is Status.FAIL, last


def test_a_moment_of_binding_is_found_when_nobody_is_bound_any_more(make: Make) -> None:
    user = cluster(make, "gang_binds_for_a_moment")
    verdict = run(user, stage("gang", scheduler=VOLCANO))["oversize"]
    assert verdict.final
    assert all(not pod["spec"].get("nodeName") for pod in user.pods("bringup-check"))


def test_a_gang_larger_than_the_cluster_can_queue_waits_without_pods(make: Make) -> None:
    user = cluster(make)
    for name in NODES[1:]:
        user.api.merge(api_kinds.NODES, api_kinds.Ref("", name), {"spec": {"unschedulable": True}})
    made = stage("gang", scheduler=VOLCANO)
    kept = [step for step in made.steps if step.name != "nodes"]
    verdicts = run(user, type(made)(**{**vars(made), "steps": tuple(kept)}))
    assert verdicts["oversize"].is_pass, verdicts["oversize"]
    assert "(Pending)" in verdicts["oversize"].reason
