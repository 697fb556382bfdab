"""Formats of nccl-tests that no recorded log shows: the JSON file, per-iteration columns, tags, several runs in one log."""

import json
from typing import Any

import pytest

from steps.contract.node_tests.nccl import NcclWant
from steps.contract.verdict import Status
from steps.stages.validation import gate_nccl, reader_nccl

HEADER = "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong"
ROW = "  8589934592    2147483648     float     sum      -1  84948.7  101.12  189.60       0  84992.3  101.07  189.50       0"
RUN = f"""# nccl-tests version 2.17.9 nccl-headers=22903 nccl-library=22903
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8589934592 maxBytes 8589934592 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1 validation: 1
#  Rank  0 Group  0 Pid   2574 on  node-0 device  0 [0000:0f:00] NVIDIA H200
#  Rank  1 Group  0 Pid   2575 on  node-1 device  0 [0000:0f:00] NVIDIA H200
{HEADER}
{ROW}
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 189.55
#
# Collective test concluded: all_reduce_perf
"""


def document(**over: Any) -> dict[str, Any]:
    """A file of `-J`, with booleans and numbers as the tool writes them (util.cu of nccl-tests 2.19)."""
    devices = [
        {"rank": rank, "group": 0, "pid": 1, "hostname": f"n{rank // 8}", "device": rank % 8, "device_info": "NVIDIA H200"}
        for rank in range(16)
    ]
    side = {"time": 1.0, "alg_bw": 200.0, "bus_bw": 375.0, "nwrong": 0.0}
    result = {
        "size": 8 << 30,
        "count": 2 << 30,
        "type": "float",
        "redop": "sum",
        "root": "-1",
        "out_of_place": side,
        "in_place": side,
    }
    return {
        "version": 3,
        "start_time": "2026-01-01 00:00:00",
        "args": ["/opt/nccl_tests/build/all_reduce_perf", "-J", "out.json"],
        "env": ["TOKEN=secret"],
        "nccl_version": 22602,
        "config": {"nthreads": 1, "devices": devices},
        "results": [result],
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": 375.0, "okay": "unchecked"},
        "end_time": "2026-01-01 00:01:00",
    } | over


def test_json() -> None:
    log = reader_nccl.read(json.dumps(document()))
    run = log.runs[0]
    assert (run.collective, run.world, run.hosts, run.gpu) == ("all_reduce", 16, ("n0", "n1"), "NVIDIA H200")
    assert run.largest is not None
    assert run.largest.out_of_place == 375.0
    assert gate_nccl.problem(log, NcclWant(floor=350.0, ranks=16, hosts=2)) is None
    assert "secret" not in repr(log)


@pytest.mark.parametrize(
    ("over", "status", "said"),
    [
        ({"end_time": None}, "fail", "did not conclude"),
        ({"out_of_bounds": {"count": 3, "okay": "false"}}, "fail", "wrong data: 3 values"),
        ({"results": []}, "fail", "before its first row"),
        ({"results": [{"size": 8 << 30, "out_of_place": {"bus_bw": 375.0, "nwrong": None}}]}, "inconclusive", "not checked"),
        ({"results": [{"size": 8 << 30, "out_of_place": {"bus_bw": "nan", "nwrong": 0.0}}]}, "inconclusive", "no bandwidth"),
    ],
)
def test_json_that_is_no_pass(over: dict[str, Any], status: str, said: str) -> None:
    found = gate_nccl.problem(reader_nccl.read(json.dumps(document(**over))), NcclWant(floor=350.0))
    assert found is not None
    assert found.status is Status(status)
    assert said in found.seen


def test_json_cut_in_the_middle_is_no_run() -> None:
    assert reader_nccl.read(json.dumps(document())[:900]).runs == ()


def test_per_iteration_columns() -> None:
    """`-I` adds four columns a side: the third bandwidth from the left is another thing then."""
    header = f"{HEADER.rsplit('time', 1)[0]}i_min i_max i_p99 i_cv% time algbw busbw #wrong i_min i_max i_p99 i_cv%"
    row = "1048576 262144 float sum -1 10.0 100.0 187.5 0 9.1 11.0 10.9 1.2 10.1 99.0 185.6 0 9.2 11.1 11.0 1.3"
    run = reader_nccl.runs(f"{header}\n{row}\n")[0]
    assert (run.rows[0].out_of_place, run.rows[0].in_place, run.rows[0].checked) == (187.5, 185.6, 2)


def test_time_stamps_and_large_numbers() -> None:
    row = "8589934592 2147483648 float sum -1 1.2e+05 101.12 189.60 1e+09 84992.3 101.07 189.50 0 2026-01-01 00:00:01"
    run = reader_nccl.runs(f"{HEADER} timestamp\n{row}\n")[0]
    assert run.rows[0].wrong_out_of_place == 1_000_000_000
    assert run.rows[0].in_place == 189.5


@pytest.mark.parametrize("tag", ["[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", ""])
def test_tags_of_launchers(tag: str) -> None:
    log = reader_nccl.read("\n".join(tag + line for line in RUN.splitlines()))
    assert len(log.runs) == 1
    assert gate_nccl.problem(log, NcclWant(floor=189.0, ranks=2, hosts=2)) is None


def test_runs_of_one_log_are_told_apart() -> None:
    crashed = "\n".join(RUN.splitlines()[:7])
    log = reader_nccl.read(f"{RUN}{crashed}\n{RUN}")
    assert [run.concluded for run in log.runs] == [True, False, True]
    found = gate_nccl.problem(log, NcclWant())
    assert found is not None
    assert "did not conclude" in found.seen


def test_slowest_run_decides() -> None:
    log = reader_nccl.read(RUN + RUN.replace("189.50", "120.00"))
    found = gate_nccl.problem(log, NcclWant(floor=180.0))
    assert found is not None
    assert "120 GB/s at 8G" in found.seen


@pytest.mark.parametrize(
    ("line", "gdr"),
    [
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/3/GDRDMA", True),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/3(7)/GDRDMA", True),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/3(7)/GDRDMA(PCI)/Shared", True),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/IBext_v8/3/GDRDMA", True),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/3/Shared", False),
        ("Channel 00/0 : 7[7] -> 8[0] [send] via NET/Socket/0", False),
        ("Channel 00/0 : 7[7] -> 8[0] via P2P/CUMEM", None),
        ("[GDRDMA]", None),
    ],
)
def test_gdr_in_its_current_form(line: str, gdr: bool | None) -> None:
    """Current NCCL never prints `[GDRDMA]`."""
    assert reader_nccl.read(f"h:1:2 [0] NCCL INFO {line}\n").transport.gdr is gdr


def test_adapters_are_told_apart_by_host() -> None:
    """Hosts with equal adapters share an entry, and tags of launchers do not hide the host; the smallest set comes first."""
    whole, less = "[0]mlx5_0:1/IB [1]mlx5_1:1/IB", "[0]mlx5_1:1/IB"
    lines = [
        f"{tag}w-{host}:7:8 [0] NCCL INFO NET/IB : Using {ports} [RO]; OOB eth0:10.0.0.{host}<0>"
        for tag, host, ports in (("", 0, whole), ("[1,8]<stdout>: ", 1, whole), ("[1,16]<stdout>: ", 2, less))
    ]
    transport = reader_nccl.read("\n".join(lines) + "\n").transport
    assert transport.hcas == ("mlx5_0", "mlx5_1")
    assert [(used.host, list(used.adapters)) for used in transport.adapter_sets] == [
        ("w-2", ["mlx5_1"]),
        ("w-0", ["mlx5_0", "mlx5_1"]),
    ]


def test_one_socket_among_many_is_a_fallback() -> None:
    lines = ["h:1:2 [0] NCCL INFO Using network IB", "h:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0"]
    assert reader_nccl.read("\n".join(lines)).transport.socket
