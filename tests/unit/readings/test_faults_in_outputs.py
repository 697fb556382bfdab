"""Outputs that look right at a first glance and hold a fault, or prove nothing, are no pass. Takes 1 s of CPU.

Each case is an output in a tool's own format, with the values that a site states for it.
"""

import json
from typing import Any

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
SXID = "[ 1234.567890] nvidia-nvswitch2: SXid (PCI:0000:07:00.0): {}"
DRIVER = "[   21.402118] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.126.20\n"
DRAINED = "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu*         up   infinite      2  drain gpu[0-1]\n"
RUNNING: dict[str, Any] = {
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
    (
        "a fatal SXid of a switch",
        DRIVER + SXID.format("24007, Fatal, Link 30 sourcetrack timeout"),
        (),
        "fail",
        "SXid 24007: Link 30",
    ),
    (
        "an SXid that a switch recovers from",
        DRIVER + SXID.format("20009, Non-fatal, Link 28 RX Short Error"),
        (),
        "inconclusive",
        "",
    ),
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
    ("an object behind a list", DRAINED.replace("drain", " idle") + FAILED_YAML, ("nodes=2",), "inconclusive", "was not read"),
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

LONG = NETWORK * 2500
EFA = nccl(400).replace("NET/IB/", "NET/AWS Libfabric/")
NETWORKS: tuple[Case, ...] = (
    ("a drained partition behind a long log", LONG + nccl(400) + DRAINED, TWO_NODES, "fail", "drain"),
    ("GPUDirect on EFA", EFA, (*TWO_NODES, "gdr_expected=true", "fabric=efa"), "pass", ""),
    ("EFA without GPUDirect", EFA.replace("/GDRDMA", ""), (*TWO_NODES, "gdr_expected=true"), "fail", "GDR 0"),
    ("a cut table below the floor", nccl(0.33, largest=1 << 30), TWO_NODES, "inconclusive", "1 rows of 4 sizes"),
    ("a whole table below the floor", nccl(0.33), TWO_NODES, "fail", "below the floor"),
    (
        "a cut table of zeroes",
        nccl(0.0, largest=1 << 30).replace("1073741824 ", "1024 "),
        TWO_NODES,
        "inconclusive",
        "1 rows of 24",
    ),
    ("sizes up to the stated one", nccl(400), (*TWO_NODES, "largest_bytes=8589934592"), "pass", ""),
    ("sizes below the stated one", nccl(400), (*TWO_NODES, "largest_bytes=17179869184"), "inconclusive", "the largest size is 8G"),
    ("a value that NCCL cannot answer", nccl(400), (*TWO_NODES, "expected_ports=8"), "inconclusive", "expected_ports was stated"),
)


def port(number: int, state: str = "Active", physical: str = "LinkUp", rate: int = 400, layer: str = "InfiniBand") -> str:
    """Return an adapter with one port as ibstat prints it."""
    fields = f"State: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {rate}\n\t\tLink layer: {layer}\n"
    return f"CA 'mlx5_{number}'\n\tCA type: MT4129\n\tPort 1:\n\t\t{fields}"


IB = [port(number) for number in range(8)]
SEVEN = "".join(IB[:7])
POLLING = port(7, "Down", "Polling", 10)
PORTS = ("expected_ports=8",)
PERFTEST = """\
---------------------------------------------------------------------------------------
                    RDMA_Write Latency Test
 Device         : mlx5_0
---------------------------------------------------------------------------------------
 #bytes        #iterations       {columns}
 2             1000          {values}
---------------------------------------------------------------------------------------
"""
NODE_STATUS = {
    "allocatable": {"nvidia.com/gpu": "8"},
    "capacity": {"nvidia.com/gpu": "8"},
    "conditions": [{"type": "Ready", "status": "True"}],
}


def node(spec: dict[str, object] | None = None, **status: object) -> str:
    """Return the dump of a node with eight GPUs and this difference."""
    labels = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "NVIDIA-H100"}
    document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}, "spec": spec or {}}
    return json.dumps({**document, "status": {**NODE_STATUS, **status}}) + "\n"


STALE = {**RUNNING, "metadata": {"generation": 5}, "status": {**RUNNING["status"], "observedGeneration": 4}}
STUCK = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "spec": {"replicas": 3},
    "status": {
        "readyReplicas": 3,
        "updatedReplicas": 3,
        "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}],
    },
}
PRESSURE = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "True"}]
LSPCI = "".join(f"{gpu}0:00.0 3D controller [0302]: NVIDIA Corporation H100 [10de:2330] (rev a1)\n" for gpu in range(1, 9))
HOSTS: tuple[Case, ...] = (
    ("eight ports", "".join(IB), PORTS, "pass", ""),
    (
        "a storage port beside a dead one",
        SEVEN + POLLING + port(8, rate=25, layer="Ethernet"),
        PORTS,
        "inconclusive",
        "ports differ",
    ),
    ("a port at another rate", SEVEN + port(7, rate=10), (*PORTS, "fabric=infiniband"), "inconclusive", "1 of InfiniBand 10"),
    ("a dead port of the fabric", SEVEN + POLLING + port(8, layer="Ethernet"), (*PORTS, "fabric=infiniband"), "fail", "7 of 8"),
    ("two hosts, one with a dead port", "".join(IB) + SEVEN + POLLING, PORTS, "fail", "mlx5_7 Polling: 7 of 8"),
    (
        "typical latency",
        PERFTEST.format(columns="t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]", values="1.6  4.9  1.65  1.66"),
        ("latency_ceiling_us=4",),
        "pass",
        "",
    ),
    (
        "latency of a test by time",
        PERFTEST.format(columns="t_avg[usec]    tps average", values="9.66           2.0"),
        ("latency_ceiling_us=4",),
        "fail",
        "9.7 us",
    ),
    (
        "a pod that is being deleted",
        json.dumps({**RUNNING, "metadata": {"deletionTimestamp": "2025"}}),
        (),
        "inconclusive",
        "deleted",
    ),
    ("an old status", json.dumps(STALE), (), "inconclusive", "is of an older spec"),
    ("a rollout that is stuck", json.dumps(STUCK), (), "fail", "does not progress: ProgressDeadlineExceeded"),
    ("a healthy node", node(), EIGHT, "pass", ""),
    ("six of eight GPUs", node(allocatable={"nvidia.com/gpu": "6"}), EIGHT, "fail", "6 of 8 nvidia.com/gpu allocatable"),
    ("no GPU is offered", node(allocatable={}, capacity={}), EIGHT, "fail", "0 GPUs allocatable instead of 8"),
    ("a cordoned node", node({"unschedulable": True}), EIGHT, "fail", "n1 is cordoned"),
    ("a full disk", node(conditions=PRESSURE), EIGHT, "fail", "n1 reports DiskPressure"),
    ("a node without a status", node(conditions=[]), EIGHT, "inconclusive", "has no conditions"),
    ("eight GPUs on the bus", LSPCI, EIGHT, "pass", ""),
    ("a silent GPU", LSPCI.replace("(rev a1)", "(rev ff)", 1), EIGHT, "fail", "fell off the bus"),
    ("an unknown header", LSPCI + "\t!!! Unknown header type 7f\n", EIGHT, "fail", "fell off the bus (rev ff): 80:00.0"),
)


def below(line: str) -> str:
    """Return the list of eight GPUs with a line below each."""
    return "".join(f"{gpu}\n{line}\n" for gpu in GPUS.splitlines())


OVERVIEW = """\
| NVIDIA-SMI 550.90.07              Driver Version: 550.90.07      CUDA Version: 12.4     |
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |
| N/A   30C    P0             70W /  700W |       1MiB /  81559MiB |      0%      Default |
|                                         |                        |              {mig:>8} |
{devices}| Processes:                                                                              |
|  No running processes found                                                             |
+-----------------------------------------------------------------------------------------+
"""
MIG_ROW = "|  0    {number}   0   0  |      3MiB /  9728MiB | 14      0 |  1   0    0    0    0 |\n"
MIG_TABLE = "| MIG devices:                                     |\n" + "".join(
    MIG_ROW.format(number=number) for number in range(7, 10)
)
ONE = ("expected_gpus=1", "expected_mig_devices=3")
DEAD_LINKS = below("NVML: Unable to retrieve NVLink information as all links are inActive")
SMI: tuple[Case, ...] = (
    ("all links are dead", DEAD_LINKS, EIGHT, "fail", "no NVLink is active on 8 GPUs"),
    ("all links are dead, and a number is stated", DEAD_LINKS, (*EIGHT, "expected_nvlinks=18"), "fail", "no NVLink is active"),
    ("cards without links", DEAD_LINKS, (*EIGHT, "nvlink_expected=false"), "pass", ""),
    ("capabilities of links", below("\t Link 0, P2P is supported: false"), EIGHT, "inconclusive", "which no rule judges"),
    ("errors of links", below("\t Link 0: CRC Errors: 57"), EIGHT, "inconclusive", "shows no speed"),
    ("MIG is off", OVERVIEW.format(mig="Disabled", devices=""), ONE, "fail", "0 MIG devices instead of 3"),
    ("MIG devices", OVERVIEW.format(mig="Enabled", devices=MIG_TABLE), ONE, "pass", ""),
    (
        "a missing MIG device",
        OVERVIEW.format(mig="Enabled", devices=MIG_TABLE),
        (*ONE[:1], "expected_mig_devices=4"),
        "fail",
        "3 MIG",
    ),
    ("MIG without its table", OVERVIEW.format(mig="Enabled", devices=""), ONE, "inconclusive", "table of its devices is missing"),
)

CASES: tuple[Case, ...] = (*DCGM, *NCCL, *SEVERAL, *NETWORKS, *HOSTS, *SMI)


@pytest.mark.parametrize(("text", "stated", "verdict", "cause"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_reads(text: str, stated: tuple[str, ...], verdict: str, cause: str) -> None:
    reading = recognition.reading_of([text], site_values.parse(stated))
    assert (reading.verdict.value, cause in reading.cause) == (verdict, True), reading
