"""The validation stage on the simulated cluster: its own tasks, probes and gates, healthy and under each fault."""

from __future__ import annotations

import re
from typing import Any

import pytest

from steps.contract.node_tests.nccl import NcclWant
from steps.stages.validation import gate_nccl, reader_nccl
from tests.unit.rehearsal.simulator.harness import Make, User
from tests.unit.rehearsal.simulator.stage_runner import NODES, run, stage
from workflows.rehearsal.faults import validation as faults
from workflows.rehearsal.faults.fault_registry import Fault
from workflows.rehearsal.simulator.api import api_kinds
from workflows.rehearsal.simulator.stages.validation import validation_nccl_output
from workflows.stages.stage import Stage

FLOORS: dict[str, Any] = {
    "validation": {"nccl": {"inter_node_floor_gb_s": 350}, "dcgm_level": 2, "gpu_floors": {"adapters_gb_s": 150}},
    "approvals": [],
    "scheduler": {"gang": "none"},  # these stages run without the one that installs Volcano
}


def cluster(make: Make, *active: str) -> User:
    """RKE2 with three nodes of eight GPUs and RDMA, as the stages before leave them."""
    user = make(agents=3, servers=1, faults=[(name, ()) for name in active])
    user.bring_up()
    for name in NODES:
        resources = {"nvidia.com/gpu": "8", "rdma/rdma_shared_device_a": "63"}
        user.api.merge(
            api_kinds.NODES, api_kinds.Ref("", name), {"status": {"capacity": resources, "allocatable": resources}}, "status"
        )
    user.simulator.settle()
    return user


def made(**changes: Any) -> Stage:
    return stage("validation", **FLOORS | changes)


def test_a_healthy_cluster_passes_every_gate(make: Make) -> None:
    user = cluster(make)
    verdicts = run(user, made())
    assert list(verdicts) == ["control", "nccl_intra", "dcgm", "functional"]
    assert [verdict.reason for verdict in verdicts.values() if not verdict.is_pass] == []
    assert "24 ranks on 3 nodes" in verdicts["functional"].reason
    assert "GPUDirect RDMA on 48 of 48 channels" in verdicts["functional"].reason
    assert user.pods("bringup-check") == []


def test_beside_slurm_nothing_asks_for_gpus_that_its_pods_hold(make: Make) -> None:
    user = cluster(make)
    for name in NODES:
        holder = {
            "nodeName": name,
            "containers": [{"name": "slurmd", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
        }
        user.api.create(api_kinds.PODS, {"metadata": {"name": f"slurmd-{name}", "namespace": "default"}, "spec": holder})
    user.simulator.settle()
    verdicts = run(user, made(slurm={"kind": "slinky"}))
    assert [verdict.reason for verdict in verdicts.values() if not verdict.is_pass] == []


def shows(fault: Fault) -> bool:
    """Return True if a fault shows on three machines without further settings; sweeps of all faults have sixteen and these."""
    return fault.name != "fabric_collapses_at_scale" and not fault.needs.startswith(
        ("validation.benchmarks", "validation.training")
    )


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize(
    "fault",
    [fault for fault in faults.FAULTS if fault.gate != "validation/localise" and shows(fault)],
    ids=lambda fault: fault.name,
)
def test_a_fault_is_caught_by_its_gate_and_by_none_before(make: Make, fault: Fault) -> None:
    verdicts = list(run(cluster(make, fault.name), made()).values())
    assert all(verdict.is_pass for verdict in verdicts[:-1])
    assert verdicts[-1].gate == fault.gate, verdicts[-1]
    assert not verdicts[-1].is_pass
    assert re.search(fault.cause, verdicts[-1].reason), verdicts[-1].reason


def test_average_of_a_bad_run_is_above_the_floor(make: Make) -> None:
    """The fault would pass a gate that reads the average."""
    shape = validation_nccl_output.Communicator(hosts=("a",), gpus=8, busbw=474.0, product="NVIDIA-H200", slow_at=474.0 * 0.81)
    log = reader_nccl.read(validation_nccl_output.join_lines(validation_nccl_output.table(shape, "1G", "8G", -1.0)))
    average, largest = log.runs[0].average, log.runs[0].largest
    assert average is not None
    assert average > 431
    assert largest is not None
    assert largest.size == 8 << 30
    assert gate_nccl.problem(log, NcclWant(floor=431.0)) is not None


def test_simulated_logs_read_like_recorded_ones() -> None:
    shape = validation_nccl_output.Communicator(hosts=tuple(f"w-{n}" for n in range(4)), gpus=8, busbw=386.0, product="NVIDIA-H200")
    lines = [
        *validation_nccl_output.debug_info(shape, [["mlx5_0:1/IB"]] * 4, network="IB", gdr=True),
        *validation_nccl_output.table(shape, "512M", "8G", 0.5),
    ]
    log = reader_nccl.read(validation_nccl_output.join_lines(lines))
    run = log.runs[0]
    assert (run.world, len(run.hosts), len(run.rows), run.collective) == (32, 4, 5, "all_reduce")
    assert run.gpu == "NVIDIA H200"
    assert (log.transport.ranks, log.transport.nodes) == (32, 4)
    assert gate_nccl.problem(log, NcclWant(floor=350.0, ranks=32, hosts=4, rdma=True, gdr=True)) is None
