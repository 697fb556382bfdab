"""The sharing stage after the GPU Operator's on the simulated cluster: every mode healthy, every fault caught by its gate."""

from __future__ import annotations

from typing import Any

import pytest

from steps.contract.verdict import Status
from tests.unit.rehearsal.simulator.harness import Make, User
from tests.unit.rehearsal.simulator.stage_runner import run, stage
from workflows.rehearsal.faults import sharing as faults
from workflows.rehearsal.faults.fault_registry import Fault
from workflows.rehearsal.simulator.api import api_kinds

NONE: dict[str, Any] = {"sharing": {"mode": "none"}}
TIME_SLICING: dict[str, Any] = {"sharing": {"mode": "time_slicing", "replicas": 4}}
MIG: dict[str, Any] = {"sharing": {"mode": "mig", "profile": "1g.18gb"}}
MODES: dict[str, dict[str, Any]] = {
    "none": NONE,
    "time_slicing": TIME_SLICING,
    "time_slicing_plain": {"sharing": {"mode": "time_slicing", "replicas": 2, "rename": False}},
    "mps": {"sharing": {"mode": "mps", "replicas": 4}},
    # 128 shares of a node, more than it takes pods
    "mps_many": {"sharing": {"mode": "mps", "replicas": 16}},
    "mig_single": MIG,
    "mig_mixed": {"sharing": {"mode": "mig", "profile": "3g.71gb", "strategy": "mixed"}},
    "dra_standalone": {"sharing": {"mode": "dra"}},
    "dra_gpu_cluster": {"sharing": {"mode": "dra"}, "accelerator": {"product": "H200", "operator_mode": "gpu_cluster"}},
}


def cluster(make: Make, changes: dict[str, Any], *active: str) -> User:
    """RKE2 with the GPU Operator as this spec wants it."""
    user = make(agents=3, servers=1, faults=[(name, ()) for name in active])
    user.bring_up()
    before = run(user, stage("gpu_operator", **changes))
    assert [verdict.reason for verdict in before.values() if not verdict.is_pass] == []
    return user


@pytest.mark.sampled_rows(3)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_passes_on_a_healthy_cluster(make: Make, mode: str) -> None:
    user = cluster(make, MODES[mode])
    verdicts = run(user, stage("sharing", **MODES[mode]))
    assert list(verdicts) == ["control", "nodes", "functional", "limit"]
    assert [verdict.reason for verdict in verdicts.values() if not verdict.is_pass] == []


@pytest.mark.sampled_rows(2)
# faults of host groups that differ need several groups, which only whole rehearsals have
@pytest.mark.parametrize(
    "fault", [fault for fault in faults.FAULTS if not fault.needs.startswith("hosts.")], ids=lambda fault: fault.name
)
def test_a_fault_is_caught_by_its_gate_and_by_none_before(make: Make, fault: Fault) -> None:
    modes = {"sharing.mode=mig": MIG, "sharing.mode=time_slicing": TIME_SLICING, "sharing.mode=dra": MODES["dra_standalone"]}
    mode = modes.get(fault.needs, NONE)
    verdicts = list(run(cluster(make, mode, fault.name), stage("sharing", **mode)).values())
    assert all(verdict.is_pass for verdict in verdicts[:-1])
    assert verdicts[-1].gate == fault.gate, verdicts[-1]
    undecided = fault.name == "mig_pending_for_ever"
    assert verdicts[-1].status is (Status.INCONCLUSIVE if undecided else Status.FAIL), verdicts[-1]


def test_a_second_run_finds_shares_and_passes_again(make: Make) -> None:
    user = cluster(make, TIME_SLICING)
    for _ in range(2):
        verdicts = run(user, stage("sharing", **TIME_SLICING))
        assert all(verdict.is_pass for verdict in verdicts.values())
    again = run(user, stage("gpu_operator", **TIME_SLICING))
    assert [verdict.reason for verdict in again.values() if not verdict.is_pass] == []


def test_taking_the_label_away_gives_whole_gpus_back(make: Make) -> None:
    user = cluster(make, TIME_SLICING)
    run(user, stage("sharing", **TIME_SLICING))
    user.api.merge(
        api_kinds.NODES, api_kinds.Ref("", "gpu000"), {"metadata": {"labels": {"nvidia.com/device-plugin.config": None}}}
    )
    user.simulator.advance(60)
    node = user.node("gpu000")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert "nvidia.com/gpu.shared" not in node["status"]["allocatable"]
