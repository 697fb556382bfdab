"""Outputs that look right at a first glance and hold a fault, or prove nothing, are no pass. Takes 3 s of CPU.

Each case is an output in a tool's own format, with the values that a site states for it.
"""

import json

import pytest

from steps.readings import recognition, site_values

Case = tuple[str, str, tuple[str, ...], str, str]
"""Name, output, stated values, verdict, and a part of its cause."""

EIGHT = ("expected_gpus=8",)


def diagnostic(*rows: str) -> str:
    """Return the table of `dcgmi diag` with these rows of hardware tests."""
    return "\n".join(
        (
            "+---------------------------+------------------------------------------------+",
            "|-----  Metadata  ----------+------------------------------------------------|",
            "| DCGM Version              | 4.4.1                                          |",
            "| GPU Device IDs Detected   | 2330,2330,2330,2330,2330,2330,2330,2330        |",
            "|-----  Deployment  --------+------------------------------------------------|",
            "| software                  | Pass                                           |",
            "|-----  Hardware  ----------+------------------------------------------------|",
            *(f"| {name.strip():25} | {value.strip():46} |" for name, value in (row.split("|") for row in rows)),
            "+---------------------------+------------------------------------------------+\n",
        )
    )


def results(**statuses: str) -> str:
    """Return the JSON of `dcgmi diag` with a status for each of eight GPUs (one letter each) in each hardware test."""
    words = {"P": "Pass", "S": "Skip", "W": "Warn", "F": "Fail"}

    def test(name: str, letters: str) -> dict[str, object]:
        return {
            "name": name,
            "results": [{"entity_group": "GPU", "entity_id": gpu, "status": words[at]} for gpu, at in enumerate(letters)],
        }

    categories = [
        {"category": "Deployment", "tests": [test("software", "PPPPPPPP")]},
        {"category": "Hardware", "tests": [test(name, letters) for name, letters in statuses.items()]},
    ]
    return json.dumps({"DCGM Diagnostic": {"test_categories": categories}}) + "\n"


DCGM: tuple[Case, ...] = (
    ("all pass", diagnostic("memory | Pass - All"), EIGHT, "pass", ""),
    ("each GPU has a line", diagnostic("memory | Pass", *(f" | GPU{gpu}: Pass" for gpu in range(8))), EIGHT, "pass", ""),
    (
        "second status of a cell",
        diagnostic("GPU Memory | Pass - GPUs: 1, 2, 3, 4, 5, 6, 7", " | Fail - GPU: 0"),
        EIGHT,
        "fail",
        "GPU 0",
    ),
    (
        "long list of GPUs before the failure",
        diagnostic("GPU Memory | Pass - GPUs: 0, 1, 2, 3,", " | 4, 5, 6", " | Fail - GPU: 7", "Warning | Thermal violations"),
        EIGHT,
        "fail",
        "on GPU 7",
    ),
    ("line of one GPU below a pass", diagnostic("memory | Pass", " | GPU0: Pass", " | GPU1: Fail"), EIGHT, "fail", "on GPU 1"),
    (
        "a GPU without a line",
        diagnostic("memory | Pass", *(f" | GPU{gpu}: Pass" for gpu in range(7))),
        EIGHT,
        "inconclusive",
        "GPU 7",
    ),
    (
        "one GPU skipped",
        diagnostic("memory | Pass - GPUs: 0, 1, 2, 3, 4, 5, 6", " | Skip - GPU: 7"),
        EIGHT,
        "inconclusive",
        "GPU 7",
    ),
    ("hardware tests skipped", diagnostic("memory | Skip - All"), EIGHT, "inconclusive", "no hardware test"),
    ("a status that nobody knows", diagnostic("memory | Aborted"), EIGHT, "inconclusive", "has no result"),
    ("JSON, all pass", results(memory="PPPPPPPP", diagnostic="PPPPPPPP"), EIGHT, "pass", ""),
    ("JSON, hardware tests skipped", results(memory="SSSSSSSS"), EIGHT, "inconclusive", "no hardware test"),
    (
        "JSON, a warning on each GPU",
        results(memory="PPPPPPPP", pcie="WWWWWWWW"),
        EIGHT,
        "inconclusive",
        "pcie ended with a warning",
    ),
    (
        "JSON, one GPU skipped",
        results(memory="PPPPPPPS", diagnostic="PPPPPPPS"),
        EIGHT,
        "inconclusive",
        "memory has no pass of GPU 7",
    ),
    ("JSON, one GPU missing in a test", results(memory="PPPPPPPP", diagnostic="PPPPPPP"), EIGHT, "inconclusive", "of GPU 7"),
)

NETWORK = "".join(
    f"gpu-{host}:10:10 [0] NCCL INFO Channel 0{host}/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA\n" for host in range(2)
)
HEAD = """\
# nThread 1 nGpus 1 minBytes 1073741824 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#  Rank  0 Group  0 Pid  1000 on gpu-0 device  0 [0000:1b:00] NVIDIA H200
#  Rank  1 Group  0 Pid  1000 on gpu-1 device  0 [0000:1b:00] NVIDIA H200
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
"""


def nccl(busbw: float, wrong: int = 0, largest: int = 8 << 30) -> str:
    """Return a log of nccl-tests on two ranks that ends at a size."""
    rows = [
        f"{size:12d} {size // 4:12d}  float  sum  -1  100.0  213.33  {busbw:6.2f}  {wrong}  100.0  213.33  {busbw:6.2f}  0"
        for size in (1 << 30, 2 << 30, 4 << 30, 8 << 30)
        if size <= largest
    ]
    bounds = f"# Out of bounds values : {wrong * len(rows)} {'FAILED' if wrong else 'OK'}"
    end = [bounds, f"# Avg bus bandwidth    : {busbw}", "#"] if largest == 8 << 30 else []
    return NETWORK + HEAD + "\n".join([*rows, *end]) + "\n"


def prefixed(prefix: str, text: str) -> str:
    """Return a text with a prefix before each line."""
    return "".join(prefix + line for line in text.splitlines(keepends=True))


TWO_NODES = ("busbw_floor_gbps=350", "ranks=2", "hosts=2", "rdma_expected=true")
PREFIXES = {
    "nothing": "",
    "prterun --tag-output": "[prterun-gpu0-1234@1,3]<stdout>: ",
    "mpirun with time and tag": "Mon Sep  1 10:00:00 2025[1,3]<stdout>:",
    "srun --label, padded": " 0: ",
    "pdsh": "gpu-0: ",
    "journalctl -o short-iso": "2025-09-01T10:00:00+0000 login1 nccl[123]: ",
    "docker compose": "nccl-1  | ",
    "a quoted mail": "> ",
    "mpiexec -l": "[0] ",
    "syslog of RFC 5424": "<14>1 2025-09-01T10:00:00Z host app - - - ",
    "klog": "I0901 10:00:00.000000       1 log.go:10] ",
}
NCCL: tuple[Case, ...] = (
    *((f"fast, after {name}", prefixed(prefix, nccl(400)), TWO_NODES, "pass", "") for name, prefix in PREFIXES.items()),
    *(
        (f"wrong data, after {name}", prefixed(prefix, nccl(4, 7)), TWO_NODES, "fail", "data corr")
        for name, prefix in PREFIXES.items()
    ),
    ("hung before the table", NETWORK, TWO_NODES, "inconclusive", "nothing is known about busbw_floor_gbps, ranks, hosts"),
    ("only the network is in question", NETWORK, ("gdr_expected=true",), "pass", ""),
)

GPUS = "".join(f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu}aaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee)\n" for gpu in range(8))
XID = "[ 1234.567890] NVRM: Xid (PCI:0000:1b:00): 79, pid=123, GPU has fallen off the bus.\n"
DRAINED = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu*         up   infinite      2  drain gpu[0-1]\n"
RUNNING = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a"},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}
FAILED = {**RUNNING, "status": {"phase": "Failed", "reason": "OOMKilled"}}
FAILED_YAML = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: b\nstatus:\n  phase: Failed\n"
RUNNING_YAML = """\
apiVersion: v1
kind: Pod
metadata:
  name: a
status:
  phase: Running
  conditions:
  - type: Ready
    status: 'True'
"""
MPIRUN = "mpirun noticed that process rank 3 with PID 0 on node gpu-1 exited on signal 9 (Killed)."
TWO_HOSTS = prefixed("gpu-0: ", GPUS) + prefixed("gpu-1: ", "".join(GPUS.splitlines(keepends=True)[:7]))
SEVERAL: tuple[Case, ...] = (
    ("a drained partition behind a good test", nccl(400) + DRAINED, TWO_NODES, "fail", "drain"),
    ("a drained partition behind a test without a floor", nccl(400) + DRAINED, (), "fail", "drain"),
    ("a failed diagnostic behind a good test", nccl(400) + diagnostic("memory | Fail - GPU: 3"), TWO_NODES, "fail", "memory"),
    ("Xid 79 behind a list of GPUs", GPUS + XID, EIGHT, "fail", "Xid 79"),
    ("Xid 79 before a list of GPUs", XID + GPUS, EIGHT, "fail", "Xid 79"),
    ("two hosts, each with eight GPUs", prefixed("gpu-0: ", GPUS) + prefixed("gpu-1: ", GPUS), EIGHT, "pass", ""),
    ("two hosts, one with seven GPUs", TWO_HOSTS, EIGHT, "fail", "gpu-1: 7 GPUs"),
    ("a failed pod over several lines", f"{json.dumps(RUNNING)}\n{json.dumps(FAILED, indent=1)}\n", (), "fail", "pod Failed"),
    ("two dumps of several lines", f"{json.dumps(RUNNING, indent=1)}\n{json.dumps(FAILED, indent=1)}\n", (), "fail", "pod Failed"),
    ("a cut object behind another", f"{json.dumps(RUNNING)}\n{json.dumps(FAILED)[:-10]}\n", (), "inconclusive", "cannot be read"),
    ("two dumps of YAML without a separator", RUNNING_YAML + FAILED_YAML, (), "fail", "pod Failed"),
    (
        "two commands",
        f"$ kubectl get pod a -o yaml\n{RUNNING_YAML}$ kubectl get pod b -o yaml\n{FAILED_YAML}",
        (),
        "fail",
        "pod Failed",
    ),
    ("a table behind an object", json.dumps(RUNNING) + "\n" + DRAINED, ("nodes=2",), "fail", "drain"),
    ("an object behind a list", GPUS + FAILED_YAML, EIGHT, "inconclusive", "was not read"),
    ("a killed rank behind the table", f"{nccl(400)}{'-' * 74}\n{MPIRUN}\n{'-' * 74}\n", TWO_NODES, "fail", "signal 9"),
    (
        "a crashed task behind the table",
        nccl(400) + "srun: error: gpu-1: task 3: Segmentation fault (core dumped)\n",
        TWO_NODES,
        "fail",
        "gpu-1",
    ),
    (
        "a job that was cancelled behind the table",
        nccl(400) + "slurmstepd: error: *** STEP 12.0 ON gpu-0 CANCELLED AT 2025-01-01T00:00:00 DUE TO TIME LIMIT ***\n",
        TWO_NODES,
        "fail",
        "TIME LIMIT",
    ),
)

CASES: tuple[Case, ...] = (*DCGM, *NCCL, *SEVERAL)


@pytest.mark.parametrize(("text", "stated", "verdict", "cause"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_reads(text: str, stated: tuple[str, ...], verdict: str, cause: str) -> None:
    reading = recognition.reading_of([text], site_values.parse(stated))
    assert (reading.verdict.value, cause in reading.cause) == (verdict, True), reading
