"""Outputs in the tools' own formats that nobody recorded: other forms of the command, and healthy ones. Takes 1 s of CPU."""

import re

import pytest

from steps.readings import recognition, site_values
from tests.unit.readings.recorded_outputs import all_recorded

LONG = "Sun Nov 29 16:00:00 2026\nNODELIST   NODES PARTITION STATE CPUS\ngpu001 1 batch* idle 192\ngpu002 1 batch* {state} 192\n"
REASONS = (
    "REASON               USER      TIMESTAMP           NODELIST\nNot responding       slurm     2026-11-29T10:00:00 gpu[003-004]\n"
)
JOB = "JobId=42 JobName=nccl\n   JobState={state} Reason=None Dependency=(null)\n   RunTime=00:01:00 ExitCode=0:0\n"
SACCT = "JobID           JobName  Partition    Account  AllocCPUS      State ExitCode \n------------ ---------- ----------\n"
DAEMON_SET = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {{name: driver, generation: 2}}
status: {{desiredNumberScheduled: 4, numberReady: {ready}, updatedNumberScheduled: 4, observedGeneration: {seen}}}
"""
LATENCY = "# OSU MPI Latency Test v7.4\n# Size          Latency (us)\n1                       1.21\n4194304               180.00\n"
GIGABITS = """\
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Link type       : IB
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             392.10             391.95               0.747
---------------------------------------------------------------------------------------
"""
INTEL = """\
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4711 RUNNING AT gpu003
=   EXIT CODE: 9
===================================================================================
"""
CASES = (
    (LONG.format(state="mixed"), ("nodes=2",), "pass", ""),
    (LONG.format(state="mixed"), ("nodes=3",), "inconclusive", "2 nodes instead of 3"),
    (LONG.format(state="drained"), ("nodes=2",), "fail", "gpu002 drained"),
    (REASONS, (), "fail", "gpu[003-004] not usable: Not responding"),
    (JOB.format(state="COMPLETED"), (), "pass", ""),
    (JOB.format(state="NODE_FAIL"), (), "fail", "job 42 NODE_FAIL"),
    (JOB.format(state="PENDING"), (), "inconclusive", "job 42 PENDING"),
    (SACCT + "7            nccl       batch      root                8  COMPLETED      0:0 \n", (), "pass", ""),
    (SACCT + "7            nccl       batch      root                8 OUT_OF_ME+    0:125 \n", (), "fail", "job 7 OUT_OF_ME+"),
    (SACCT + "7            nccl       batch      root                8    RUNNING      0:0 \n", (), "inconclusive", "RUNNING"),
    ("JobID|State|ExitCode\n7|CANCELLED by 0|0:0\n", (), "fail", "job 7 CANCELLED"),
    ("Slurmctld(primary) at head01 is UP\n", (), "pass", ""),
    ("Slurmctld(primary) at head01 is DOWN\n", (), "fail", "slurmctld on head01 is DOWN"),
    (DAEMON_SET.format(ready=4, seen=2), (), "pass", ""),
    (DAEMON_SET.format(ready=3, seen=2), (), "fail", "DaemonSet driver 3 of 4 ready"),
    (DAEMON_SET.format(ready=4, seen=1), (), "inconclusive", "older spec"),
    (LATENCY, ("latency_ceiling_us=200",), "pass", ""),
    (LATENCY, ("latency_ceiling_us=100",), "fail", "latency 180 us at 4 MiB"),
    (LATENCY.replace("4194304", "2097152"), ("latency_ceiling_us=200",), "inconclusive", "may be cut"),
    (LATENCY.replace("4194304", "2097152"), ("latency_ceiling_us=200", "largest_bytes=2097152"), "pass", ""),
    (GIGABITS, ("bw_floor_gbit=380",), "pass", ""),
    (GIGABITS, ("bw_floor_gbit=395",), "fail", "391.9 Gbit/s at 65536 bytes"),
    (GIGABITS, (), "inconclusive", "no limit is stated"),
    (INTEL, (), "fail", "a rank on gpu003 ended with code 9"),
    (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        (),
        "fail",
        "the NVIDIA driver does not answer",
    ),
    (
        "NAME     STATUS     ROLES    AGE   VERSION\ngpu001   NotReady   <none>   5d    v1.33.1\n",
        ("nodes=1",),
        "fail",
        "node gpu001 NotReady",
    ),
    ("NAME     STATUS     ROLES    AGE   VERSION\ngpu001   Ready      <none>   5d    v1.33.1\n", ("nodes=1",), "pass", ""),
    (
        "NAME     STATUS     ROLES    AGE   VERSION\ngpu001   Ready      <none>   5d    v1.33.1\n",
        ("nodes=2",),
        "inconclusive",
        "2 stated",
    ),
)


@pytest.mark.parametrize(("text", "stated", "verdict", "cause"), CASES)
def test_reads(text: str, stated: tuple[str, ...], verdict: str, cause: str) -> None:
    reading = recognition.reading_of([text], site_values.parse(stated))
    assert (reading.verdict.value, cause in reading.cause) == (verdict, True), reading


QUERY = next((output for output in all_recorded() if output.path.name == "nvidia_smi_q_8xh100_hw_power_brake.txt"), None)


@pytest.mark.skipif(QUERY is None, reason="recorded outputs are not here ($BRINGUP_TEST_DATA)")
@pytest.mark.parametrize(
    ("before", "after", "verdict", "cause"),
    [
        ("", "", "pass", ""),
        ("Remapping Failure Occurred        : No", "Remapping Failure Occurred        : Yes", "fail", "row remapping failed"),
        (
            "Attached GPUs                             : 8",
            "Attached GPUs                             : 7",
            "inconclusive",
            "7 GPUs attached",
        ),
        ("DRAM Uncorrectable            : 0", "DRAM Uncorrectable            : 2", "fail", "2 uncorrectable ECC errors"),
        (
            "                Current                   : 16x",
            "                Current                   : 8x",
            "fail",
            "PCIe width 8x of 16x",
        ),
    ],
)
def test_a_healthy_query_of_eight_gpus(before: str, after: str, verdict: str, cause: str) -> None:
    """The recorded one, without its power brake and with one other fault."""
    assert QUERY is not None
    text = re.sub(r"(Slowdown +: )Active", r"\1Not Active", QUERY.text).replace(before, after, 1)
    reading = recognition.reading_of([text], site_values.parse(("expected_gpus=8",)))
    assert (reading.verdict.value, cause in reading.cause) == (verdict, True), reading
