"""Every recorded nccl-tests log is read to its figures, and judged as a person judged it."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.contract.node_tests.nccl import NcclLog, NcclRun, NcclWant
from steps.contract.verdict import Status
from steps.stages.shared.finding import Finding
from steps.stages.validation import gate_nccl, reader_nccl

DATA = Path(os.environ.get("BRINGUP_TEST_DATA", Path(__file__).parents[4] / "shared")) / "samples" / "nccl"
CASES: list[dict[str, Any]] = yaml.safe_load((DATA / "INDEX.yaml").read_text())["cases"] if DATA.is_dir() else []
CAUSES = {
    "gdr_disabled_for_hca_roce.txt": "GPU Direct RDMA Disabled for mlx5_0, mlx5_1",
    "gh200_2node_slingshot_hook_disabled_slow.txt": "5.41 GB/s at 128M",
    "gh200_libfabric_out_of_bounds_4_failed.txt": "wrong data: 4 values out of bounds (sizes 1048576)",
    "h100_5node_ib_completion_error_4.txt": "IBV_WC_LOC_PROT_ERR (4): local protection error",
    "h100_cuda_802_system_not_yet_initialized.txt": "fabric manager not running",
    "h100_nvls_cuda_invalid_argument.txt": "NVLink SHARP multicast allocation fails",
    "h100_zero_busbw_not_built_with_mpi.txt": "each process is its own world",
    "h200_cuda_illegal_memory_access.txt": "an illegal memory access was encountered",
    "ib_completion_error_12_vendor_129.txt": "IBV_WC_RETRY_EXC_ERR (12)",
    "roce_ring_gdr_0_pxn_0.txt": "0 of 8 channels between nodes use GDRDMA",
    "rtx5090_unhandled_cuda_error.txt": "NCCL failure: unhandled cuda error",
    "socket_fallback_libibverbs_missing.txt": "cannot open libibverbs",
    "tcp_socket_fallback_2node_efa_disabled.txt": "network Socket",
    "torch_watchdog_timeout_1800s_v100.txt": "ALLREDUCE ran longer than 1800 s (sequence number 469508)",
    "torch_watchdog_timeout_600s.txt": "ALLREDUCE ran longer than 600 s (sequence number 1580)",
}
"""Text that the gate must report for each failing log, as far as the log itself shows the cause."""

pytestmark = pytest.mark.skipif(not CASES, reason="recorded outputs are not here ($BRINGUP_TEST_DATA)")


def log_of(case: dict[str, Any]) -> NcclLog:
    return reader_nccl.read((DATA / case["file"]).read_text(errors="replace"))


def is_excerpt(run: NcclRun) -> bool:
    """Return True if only a part of a log was recorded: its header or some of its rows are not in the file."""
    return len(run.rows) != run.sizes


def judged(log: NcclLog, given: dict[str, Any]) -> Finding | None:
    want = NcclWant(
        floor=given.get("busbw_floor_gbps"),
        rdma=given.get("rdma_expected", False),
        gdr=given.get("gdr_expected", False),
        checked=given.get("validation_required", True),
        whole=not any(is_excerpt(run) for run in log.runs),
    )
    transport_only = not log.runs and ("rdma_expected" in given or "mnnvl_expected" in given)
    return gate_nccl.network(log.transport, want) if transport_only else gate_nccl.problem(log, want)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
def test_figures(case: dict[str, Any]) -> None:
    log, expected = log_of(case), case["expected"]
    assert len(log.runs) <= 1
    run = log.runs[0] if log.runs else NcclRun()
    largest = run.largest
    word = {True: "OK", False: "FAILED", None: None}[run.out_of_bounds_ok]
    wrong = next((row for row in run.rows if row.wrong), None)
    seen = {
        "rows": len(run.rows),
        "largest_bytes": largest and largest.size,
        "busbw_largest_out_of_place": largest and largest.out_of_place,
        "busbw_largest_in_place": largest and largest.in_place,
        "max_busbw": run.fastest,
        "cells_with_wrong_gt_0": run.wrong_sides,
        "wrong_na_cells": run.unchecked_sides,
        "out_of_bounds": run.out_of_bounds,
        "out_of_bounds_word": word,
        "avg_busbw": run.average,
        "ranks": run.ranks,
        "hosts": len(run.hosts),
        "gpu": run.gpu,
        "world_size": run.world,
        "hcas": len(log.transport.hcas),
        "hca": log.errors[0].device if log.errors else "",
        "nccl_version": log.transport.version,
        "mnnvl": log.transport.mnnvl,
        "clique_size": log.transport.clique_size,
        "nranks": log.transport.ranks,
        "n_nodes": log.transport.nodes,
        "wrong_at_bytes": [row.size for row in run.rows if row.wrong],
        "wrong_out_of_place": wrong and wrong.wrong_out_of_place,
        "wrong_in_place": wrong and wrong.wrong_in_place,
    }
    common = {key: value for key, value in expected.items() if key in seen}
    assert {key: seen[key] for key in common} == common
    assert common
    if run.collective:
        assert run.collective == expected["collective"]
    if expected.get("gdr") in ("yes", "no"):
        assert log.transport.gdr is (expected["gdr"] == "yes")
    if log.transport.network:
        assert log.transport.network.upper() in expected["transport"].upper()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
def test_verdict(case: dict[str, Any]) -> None:
    expected, found = case["expected"], judged(log_of(case), case["given"])
    status = found.status if found else Status.PASS
    assert status.value == expected["verdict"], found
    if expected["verdict"] == "fail":
        assert found is not None
        assert found.failure_class.value == expected["class"]
        assert CAUSES[case["file"]] in found.seen


def test_average_never_decides() -> None:
    """One good run: 338 GB/s at 8 GiB, 70.7 on average."""
    case = next(case for case in CASES if case["file"] == "h100_a3mega_16gpu_allreduce_full.txt")
    log = log_of(case)
    assert log.runs[0].average == pytest.approx(70.742)
    assert gate_nccl.problem(log, NcclWant(floor=330.0)) is None
    found = gate_nccl.problem(log, NcclWant(floor=338.0))
    assert found is not None
    assert "337.35 GB/s at 8G" in found.seen
