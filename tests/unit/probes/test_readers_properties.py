"""Whatever a tool prints: the readers never raise, and text that no tool printed is never judged a pass."""

import base64
import gzip
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from steps.contract.node_tests.nccl import NcclWant
from steps.contract.node_tests.node_health import HostWant, SpeedWant
from steps.stages.shared import probe_checks, reader_mpi
from steps.stages.slurm import reader, reader_slurm_errors
from steps.stages.validation import (
    gate_dcgm,
    gate_host,
    gate_nccl,
    gate_speed,
    reader_dcgm,
    reader_nccl,
    reader_nccl_errors,
    reader_node,
)

WORDS = (
    "# nccl-tests version 2.17.8",
    "# Collective test starting: all_reduce_perf",
    "# Collective test concluded: all_reduce_perf",
    "#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong",
    "#       size         count      type   redop     time   algbw   busbw  error     time   algbw   busbw  error",
    "#  size count type redop",
    "  8589934592    2147483648     float     sum      -1  84948.7  101.12  189.60       0  84992.3  101.07  189.50       0",
    "  8589934592    2147483648     float     sum  inf nan 1e309 N/A",
    "  99999999999999999999999 2 float sum -1 1 2 3 4",
    "#  Rank  0 Group  0 Pid   2574 on node-0 device  0 [0000:0f:00] NVIDIA H200",
    "#  Rank 999999999 Pid 1 device 0 [0x1] x",
    "# Avg bus bandwidth    : nan",
    "# Avg bus bandwidth    : 1e",
    "NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    "Channel 00/0 : 7[7] -> 8[0] [send] via NET/IB/3(7)/GDRDMA(PCI)/Shared",
    "GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
    "h:1:2 [3] x.cc:1 NCCL WARN NET/IB : Got completion from peer a with status=12 opcode=1 len=2 vendor err 129 (Recv) hca mlx5_1",
    '{"DCGM Diagnostic": {"test_categories": [{"tests": [{"results": [{"gpu_ids": 7, "status": null}]}]}]}}',
    '{"test_categories": "x", "nodes": [{"name": 3, "state": [1], "gres": []}], "errors": [null, 3, {"error": 1}]}',
    '{"results": [{"size": 1e400, "out_of_place": {"bus_bw": "nan"}}]}',
    "| PCIe                      | Fail - All |",
    "NodeName=a State=IDLE+DRAIN Gres=gpu:x:9999999999 Reason=why [root@now]",
    "batch*       up   infinite      1  alloc dgx[1-999999999999]",
    "idle|gpu:h200:8(S:0-1)|gpu[001-016,a-b,9-1]",
    "ENCODED: Wed Sep 22 01:11:11 2021\nDECODED: nonsense",
    "1 2 Pass",
    "# OSU MPI Bandwidth Test v7.5",
    "# Size      Bandwidth (MB/s)        Validation",
)
TEXTS = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=120)), max_size=25).map("\n".join)
WANT = NcclWant(floor=1.0, runs=1, rdma=True, gdr=True)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(TEXTS)
def test_readers_never_raise(text: str) -> None:
    reader_nccl.read(text)
    reader_nccl_errors.read(text)
    reader_mpi.errors(text)
    reader.sinfo(text)
    reader.reasons(text)
    reader.read_rest_nodes(text)
    reader.records(text)
    reader_slurm_errors.read(text)
    reader_slurm_errors.skew(text)
    probe_checks.unpack_output({probe_checks.KEY: text})
    assert len(reader.expand_hostlist(text)) <= reader.MOST
    run = reader_dcgm.read(text)
    if run is not None:
        gate_dcgm.problem(run, 8, 2)


NODE_WORDS = (
    *(f"@@ {name} 0" for name in ("query", "links", "kernel", "adapters", "gemm", "nvbandwidth", "dcgm", "fabric")),
    "@@ kernel 1",
    "@@ gemm 127",
    "Attached GPUs                             : 1",
    "Driver Version                            : 580.126.20",
    "GPU 00000000:1B:00.0",
    "    Product Name                          : NVIDIA H200",
    "                Current                   : 5",
    "    Remapped Rows",
    "        Pending                           : Yes",
    "GPU 0: NVIDIA H200 (UUID: GPU-x)",
    "\t Link 0: <inactive>",
    "NVRM: Xid (PCI:0000:1b:00): 9999, x",
    "mlx5_0 MT_1 28.43 16 32.0",
    "mlx5_1 - - 99999999999999999999 -",
    "Worker 9999:0 [1004]: TensorEngineActive:  generated ???, dcgm  (9.9e+99 gflops).",
    "Worker 0:0 [1004]: TensorEngineActive:  generated ???, dcgm M:{ CI: 1 } (1e+05 gflops).",
    "Running device_to_device_memcpy_read_ce.",
    " 0       N/A    376.07",
    " 1    276.19",
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.sampled_from(NODE_WORDS), st.text(max_size=60)), max_size=25).map("\n".join))
def test_scraps_of_a_node_report_raise_nothing_and_prove_nothing(text: str) -> None:
    outputs = reader_node.programs(text)
    facts, speed = reader_node.facts(outputs), reader_node.speed(outputs)
    reader_node.nccl_outputs(text)
    assert gate_host.problem(facts, HostWant(product="NVIDIA-H200", pcie_generation=5, pcie_width=16, links=18), 1) is not None
    if speed is not None:
        gate_speed.judge({"gpu1": speed}, SpeedWant(host=48.0, between=335.0), {"gpu1": 8}, joined=True)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=400))
def test_text_of_nobody_is_no_pass(text: str) -> None:
    assert gate_nccl.problem(reader_nccl.read(text), WANT) is not None
    assert gate_nccl.problem(reader_nccl.read(text), NcclWant()) is not None
    assert gate_dcgm.problem(reader_dcgm.read(text), 8, 2) is not None


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(WORDS), max_size=15).map("\n".join))
def test_scraps_of_a_log_pass_only_with_table_end_and_network(text: str) -> None:
    if gate_nccl.problem(reader_nccl.read(text), WANT) is None:
        assert "8589934592    2147483648     float     sum      -1  84948.7" in text
        assert "concluded" in text
        assert "GDRDMA" in text


def test_packed_output_is_bounded() -> None:
    bomb = base64.b64encode(gzip.compress(b"x" * (probe_checks.MOST * 3))).decode()
    assert len(probe_checks.unpack_output({probe_checks.KEY: bomb})) == probe_checks.MOST
    assert probe_checks.unpack_output({probe_checks.KEY: base64.b64encode(gzip.compress("grün\n".encode())).decode()}) == "grün\n"
    assert probe_checks.unpack_output({}) == ""
    assert probe_checks.unpack_output({probe_checks.KEY: 7}) == ""


def test_a_log_of_a_thousand_nodes_is_read_in_seconds() -> None:
    """128,000 lines, 16 channels of each of 8,000 ranks, and the table at the end."""
    lines = [
        f"worker-{rank // 8}:100:{rank} [{rank % 8}] NCCL INFO Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {rank + 8}[0] [send]"
        f" via NET/IB/{rank % 8}/GDRDMA"
        for rank in range(8000)
        for channel in range(16)
    ]
    table = (*WORDS[:2], WORDS[3], WORDS[6], "# Out of bounds values : 0 OK", WORDS[2])
    text = "\n".join([*lines, *table])
    started = time.process_time()
    log = reader_nccl.read(text)
    spent = time.process_time() - started
    assert log.transport.channels == log.transport.gdr_channels == 128_000
    assert log.runs[0].concluded
    assert spent < 5
