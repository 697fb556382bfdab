"""The scripts of checks inside a node, run with stand-ins for their tools: outputs are shortened to what the readers need.

The stand-in of nvidia-smi prints a recorded answer of a machine with eight H100. Costs 3 s of CPU.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from steps.contract.node_tests.nccl import NcclWant
from steps.contract.node_tests.node_health import GemmFigures, HostWant
from steps.readers import gpu_query, nvbandwidth_matrix, tensor_load
from steps.stages.shared import probe_checks
from steps.stages.validation import gate_dcgm, gate_host, gate_nccl, reader_dcgm, reader_nccl, reader_node
from tests.unit.stages.test_validation import DIAG, INFO, TABLE
from workflows.stages import manifest_objects

DATA = Path(os.environ.get("BRINGUP_TEST_DATA", Path(__file__).parents[4] / "shared")) / "samples/gpu_host"
QUERY, LINKS = DATA / "nvidia_smi_q_8xh100_hw_power_brake.txt", DATA / "nvidia_smi_nvlink_status_a100.txt"
SMI = f"""case "$*" in
  -q) cat {QUERY};;
  -L) for gpu in 0 1 2 3 4 5 6 7; do echo "GPU $gpu: NVIDIA H100 80GB HBM3 (UUID: GPU-$gpu)"; done;;
  *) cat {LINKS};;
esac"""
TESTER = """case "$*" in *"--max-processes 0"*) ;; *) exit 9;; esac
for sample in 1 2 3 4 5; do for gpu in 0 1 2 3 4 5 6 7; do
  echo "Worker $gpu:0 [1004]: TensorEngineActive:  generated ???, dcgm  (6.4${sample}e+05 gflops)."
done; done"""
COPIES = """echo 'nvbandwidth Version: v0.8'
for name in host_to_device device_to_host; do
  echo "Running ${name}_memcpy_ce."
  echo 'memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)'
  echo '           0         1'
  echo ' 0     52.03     51.94'
  echo
  echo "SUM ${name}_memcpy_ce 103.97"
done
echo 'Running device_to_device_memcpy_read_ce.'
echo 'memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)'
echo '           0         1'
echo ' 0       N/A    376.07'
echo ' 1    276.19       N/A'"""
KERNEL = """echo '[    1.0] Linux version 6.8.0'
echo '[  812.4] NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=x, DBE (double bit error)'
echo '[  813.0] NVRM: Xid (PCI:0000:3b:00): 43, pid=7, name=python, Ch 00000008'"""
ENGINE = {"nv-hostengine": "exit 0", "dcgmi": 'case "$1" in diag) cat $AT/diag;; esac', "dmesg": KERNEL, "sleep": "exit 0"}
WHOLE = ENGINE | {"nvidia-smi": SMI, "dcgmproftester12": TESTER, "nvbandwidth": COPIES}


def ran(folder: Path, script: str, tools: dict[str, str], **environment: str) -> tuple[dict[str, Any], str]:
    """Report of a script with stand-ins for its tools, and the output that it packed."""
    place = folder / "bin"
    place.mkdir()
    for name, body in tools.items():
        (place / name).write_text(f"#!/bin/sh\n{body}\n")
        (place / name).chmod(0o755)
    for name, text in {"table": TABLE, "info": INFO, "diag": DIAG}.items():
        (folder / name).write_text(text)
    device = folder / "sys/class/infiniband/mlx5_0"
    device.mkdir(parents=True)
    (device / "board_id").write_text("MT_0000000838\n")
    (device / "fw_ver").write_text("28.43.2026\n")
    (device / "device").mkdir()
    (device / "device/current_link_width").write_text("16\n")
    (device / "device/current_link_speed").write_text("32.0 GT/s PCIe\n")
    (folder / "sys/class/infiniband/mlx5_1").mkdir()
    text = manifest_objects.script(script).replace("/tmp/", f"{folder}/").replace("/dev/termination-log", str(folder / "report"))
    env = {"PATH": f"{place}:/usr/bin:/bin", "NODE_NAME": "gpu001", "AT": str(folder), "SYSFS": str(folder / "sys"), **environment}
    subprocess.run(["/bin/sh", "-c", text], env=env, check=True, capture_output=True, text=True, timeout=60)
    assert len((folder / "report").read_text()) <= 4096
    report: dict[str, Any] = json.loads((folder / "report").read_text())
    return report, probe_checks.unpack_output(report)


@pytest.mark.skipif(not QUERY.is_file(), reason="recorded outputs are not here ($BRINGUP_TEST_DATA)")
def test_dcgm_script_packs_what_every_reader_needs(tmp_path: Path) -> None:
    report, output = ran(tmp_path, "dcgm.sh", WHOLE, LEVEL="2", SECONDS_TO_RUN="20", COPIES="1", TRIES="4")
    assert report["exits"] == [0]
    outputs = reader_node.programs(output)
    assert list(outputs) == ["query", "links", "kernel", "adapters", "gemm", "nvbandwidth", "dcgm"]
    assert gate_dcgm.problem(reader_dcgm.read(outputs["dcgm"].text), 8, 2) is None
    facts, speed = reader_node.facts(outputs), reader_node.speed(outputs)
    assert facts is not None
    assert speed is not None
    assert (facts.driver, facts.attached, facts.adapters) == ("535.161.08", 8, ("MT_0000000838 28.43.2026",))
    assert facts.adapter_links == {"mlx5_0": "16 lanes at 32.0 GT/s"}
    assert [group.gpus for group in facts.groups] == [tuple(range(8))]
    assert [(xid.number, xid.times) for xid in facts.xids or ()] == [(48, 1)]
    assert speed.gemm == (GemmFigures(median=644.0, least=643.0, most=645.0),) * 8
    assert (speed.to_gpu, speed.to_host) == ((52.03, 51.94), (52.03, 51.94))
    assert speed.peers is not None
    assert (speed.peers.least, speed.peers.first, speed.peers.second) == (276.19, 1, 0)
    assert (speed.absent, speed.problem) == ((), "")
    finding = gate_host.problem(facts, HostWant(product="NVIDIA-H100-80GB-HBM3", pcie_generation=5, pcie_width=16, links=12), 8)
    assert finding is not None
    assert finding.seen.startswith("HW power brake slowdown is active on all 8 GPUs; Xid 48: ")


@pytest.mark.skipif(not QUERY.is_file(), reason="recorded outputs are not here ($BRINGUP_TEST_DATA)")
def test_the_shortened_query_reads_as_the_whole_one(tmp_path: Path) -> None:
    """Only what nobody judges is missing: the UUID and the power draw."""
    _, output = ran(tmp_path, "dcgm.sh", WHOLE, LEVEL="1", SECONDS_TO_RUN="20", TRIES="1")
    short, whole = gpu_query.read(reader_node.programs(output)["query"].text), gpu_query.read(QUERY.read_text())
    omitted = {"fields", "uuid", "power_watts"}
    read = [name for name in gpu_query.QueriedGpu.__struct_fields__ if name not in omitted]
    assert [[getattr(gpu, name) for name in read] for gpu in short.gpus] == [
        [getattr(gpu, name) for name in read] for gpu in whole.gpus
    ]


@pytest.mark.skipif(not QUERY.is_file(), reason="recorded outputs are not here ($BRINGUP_TEST_DATA)")
def test_the_shortened_query_keeps_what_a_gpu_reports_of_itself(tmp_path: Path) -> None:
    """Each field of the reader's table with a bad value, and an error in place of a value that nobody judges otherwise."""
    sections: dict[str, list[str]] = {}
    for section, name in gpu_query.GOOD_VALUES:
        sections.setdefault(section.title(), []).append(name.title())
    lines = [f"    {name:<34}: Bad" for name in sections.pop("")] + [f"    {'Fan Speed':<34}: [GPU requires reset]"]
    for section, names in sections.items():
        lines += [f"    {section}", *(f"        {name:<30}: Bad" for name in names)]
    recorded = QUERY.read_text().splitlines()
    first = next(at for at, line in enumerate(recorded) if line.startswith("GPU ")) + 1
    (tmp_path / "query").write_text("\n".join([*recorded[:first], *lines, *recorded[first:]]) + "\n")
    tools = ENGINE | {"nvidia-smi": 'case "$*" in -q) cat $AT/query;; esac'}
    _, output = ran(tmp_path, "dcgm.sh", tools, LEVEL="1", SECONDS_TO_RUN="20")
    broken, *others = gpu_query.read(reader_node.programs(output)["query"].text).gpus
    assert len(broken.faults) == len(gpu_query.GOOD_VALUES)
    assert broken.lost == ("Fan Speed: [GPU requires reset]",)
    assert not any((*gpu.faults, *gpu.lost) for gpu in others)


def test_facts_are_read_while_the_gpus_are_loaded(tmp_path: Path) -> None:
    """The load ends while the second reading is taken, which is therefore dropped; it is the fourth call of nvidia-smi."""
    smi = """echo x >>$AT/asked
[ "$(wc -l <$AT/asked)" -ne 4 ] || { touch $AT/stop; load=$(cat $AT/load_id)
  while [ -e /proc/$load ] && ! grep -q 'State:.Z' /proc/$load/status; do :; done; }
echo 'GPU 00000000:1B:00.0'
state=P0
[ ! -e $AT/stop ] || state=P8
echo "    Performance State                     : $state\""""
    load = "echo $PPID >$AT/load_id\nwhile [ ! -e $AT/stop ]; do /bin/sleep 0.02; done"
    wait = "while [ ! -s $AT/load_id ]; do /bin/sleep 0.02; done"
    tools = ENGINE | {"nvidia-smi": smi, "dcgmproftester12": load, "sleep": wait}
    _, output = ran(tmp_path, "dcgm.sh", tools, LEVEL="1", SECONDS_TO_RUN="20")
    facts = reader_node.facts(reader_node.programs(output))
    assert facts is not None
    assert [group.state.performance for group in facts.groups] == ["P0"]


def test_a_storm_of_xids_hides_no_other(tmp_path: Path) -> None:
    storm = """echo '[    1.0] NVRM: Xid (PCI:0000:3b:00): 48, pid=1, DBE (double bit error)'
echo '[    1.1] NVRM: Xid (PCI:0000:4b:00): 48, pid=2, DBE'
echo '[    1.2] NVRM: Xid (PCI:0000:3b:00): 48, pid=3, DBE'
for time in $(seq 200); do echo "[ 812.$time] NVRM: Xid (PCI:0000:3b:00): 13, pid=$time, Graphics Exception"; done
for time in $(seq 50); do echo "[ 900.$time] NVRM: a line $time"; done"""
    tools = ENGINE | {"nvidia-smi": "echo 'GPU 00000000:3B:00.0'", "dmesg": storm}
    _, output = ran(tmp_path, "dcgm.sh", tools, LEVEL="1", SECONDS_TO_RUN="20")
    outputs = reader_node.programs(output)
    facts = reader_node.facts(outputs)
    assert facts is not None
    assert [(xid.bus_id, xid.number, xid.text, xid.times) for xid in facts.xids or ()] == [
        ("0000:3b:00", 48, "pid=1, DBE (double bit error)", 2),
        ("0000:4b:00", 48, "pid=2, DBE", 1),
    ]
    assert outputs["kernel"].text.splitlines()[3:] == [f"[ 900.{time}] NVRM: a line {time}" for time in range(11, 51)]


def test_fatal_errors_of_nvswitches_are_told_apart_from_others(tmp_path: Path) -> None:
    """A switch recovers from errors that are not fatal, and lines of details follow each error."""
    ring = """for link in $(seq 60); do
  echo "[ 80.$link] nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link $link RX Short Error Rate"; done
echo '[ 90.1] nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 24007, Fatal, Link 30 sourcetrack timeout error (First)'
echo '[ 90.1] nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 24007, Severity 1 Engine instance 30 Sub-engine instance 00'
echo '[ 90.2] nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 24007, Fatal, Link 31 sourcetrack timeout error'
echo '[ 99.1] NVRM: Xid (PCI:0000:3b:00): 74, pid=9, NVLink: fatal error detected on link 3'"""
    tools = ENGINE | {"nvidia-smi": "echo 'GPU 00000000:3B:00.0'", "dmesg": ring}
    _, output = ran(tmp_path, "dcgm.sh", tools, LEVEL="1", SECONDS_TO_RUN="20")
    outputs = reader_node.programs(output)
    facts = reader_node.facts(outputs)
    assert facts is not None
    assert [(event.bus_id, event.number, event.text, event.times) for event in facts.switches] == [
        ("0000:07:00.0", 24007, "Link 30 sourcetrack timeout error (First)", 2)
    ]
    assert [xid.number for xid in facts.xids or ()] == [74]
    assert len(outputs["kernel"].text.splitlines()) == 2


def test_programs_that_an_image_lacks_are_told(tmp_path: Path) -> None:
    _, output = ran(tmp_path, "dcgm.sh", ENGINE | {"dmesg": "exit 1"}, LEVEL="2", SECONDS_TO_RUN="20", COPIES="1")
    outputs = reader_node.programs(output)
    speed = reader_node.speed(outputs)
    assert speed is not None
    assert (speed.absent, speed.gemm) == (("dcgmproftester", "nvbandwidth"), ())
    assert reader_node.facts(outputs) is None


def test_dcgm_script_without_a_host_engine(tmp_path: Path) -> None:
    tools = ENGINE | {"nv-hostengine": "echo 'cannot start'; exit 1", "dcgmi": 'case "$1" in diag) exit 9;; esac'}
    report, output = ran(tmp_path, "dcgm.sh", tools, LEVEL="2", SECONDS_TO_RUN="20")
    assert report["exits"] == [9]
    assert reader_node.programs(output)["dcgm"].text == "cannot start\n"
    assert reader_dcgm.read("cannot start\n") is None


def test_intra_script_measures_over_the_adapters_alone(tmp_path: Path) -> None:
    """NCCL's lines about the network are kept once for each way, and the runs over NVLink stay apart."""
    nccl = """[ -z "$NCCL_P2P_DISABLE" ] || [ "$NCCL_DEBUG" != INFO ] || { cat $AT/info; cat $AT/info; }
cat $AT/table"""
    tools = {"nvidia-smi": "echo 'GPU 0: x'; echo 'GPU 1: x'", "all_reduce_perf": nccl}
    sizes = {"FIRST": "8G", "LAST": "8G", "RUNS": "2", "SECONDS_A_RUN": "20", "ADAPTERS": "1"}
    report, output = ran(tmp_path, "nccl_intra.sh", tools, **sizes)
    assert (report["exits"], report["fabric_exits"]) == ([0, 0], [0, 0])
    inside, fabric = reader_node.nccl_outputs(output)
    assert "NCCL INFO" not in inside
    assert "via P2P" not in fabric
    assert "via NET/IB/0/GDRDMA [repeated 1 more times]" in fabric
    want = NcclWant(floor=431.0, runs=2, spread=0.1, ranks=2)
    assert gate_nccl.problem(reader_nccl.read(inside), want) is None
    log = reader_nccl.read(fabric)
    assert gate_nccl.problem(log, NcclWant(runs=2, rdma=True, gdr=True, hcas=1)) is None
    assert log.transport.gdr_channels == 2


def test_a_field_that_the_driver_gave_up_is_no_fault() -> None:
    text = "GPU 00000000:1B:00.0\n    GPU Reset Status\n        Reset Required : {}\n"
    deprecated, broken = (gpu_query.read(text.format(value)) for value in ("Requested functionality has been deprecated", "Yes"))
    assert (deprecated.gpus[0].faults, broken.gpus[0].faults) == ((), ("reset required: Yes",))


@pytest.mark.parametrize(
    ("section", "field"),
    [("GPU Power Readings", "Current Power Limit"), ("Power Readings", "Power Limit")],
    ids=["newer_driver", "older_driver"],
)
def test_the_script_keeps_the_power_limit_of_each_gpu(tmp_path: Path, section: str, field: str) -> None:
    """The module that a GPU shares with a processor has a limit of its own; the limit that somebody asked for is none in force."""
    lines = ["GPU 00000000:3B:00.0", f"    {section}", f"        {field} : 600.00 W", "        Requested Power Limit : 500.00 W"]
    lines += ["    Module Power Readings", "        Current Power Limit : 1000.00 W"]
    tools = ENGINE | {"nvidia-smi": "\n".join(f"echo '{line}'" for line in lines), "dmesg": "exit 1"}
    _, output = ran(tmp_path, "dcgm.sh", tools, LEVEL="1", SECONDS_TO_RUN="20")
    facts = reader_node.facts(reader_node.programs(output))
    assert facts is not None
    assert [group.state.power_limit for group in facts.groups] == [600.0]


def test_readers_keep_what_is_missing_as_missing() -> None:
    assert tensor_load.read("Worker 0:0 [1004]: TensorEngineActive:  generated ???, dcgm 0.000 (nan gflops).") == {}
    assert tensor_load.read("Worker 3:0[1004]: TensorEngineActive: generated ???, dcgm M: 0.5 (26096.4 gflops)") == {3: (26.096,)}
    matrix = nvbandwidth_matrix.read("Running host_to_device_memcpy_ce.\nCUDA_ERROR_ILLEGAL_STATE\n 0 0.00 25.94\n")
    assert matrix.cases["host_to_device_memcpy_ce"].by_column == (None, 25.94)
    assert matrix.error == "CUDA_ERROR_ILLEGAL_STATE"


def test_a_matrix_between_gpus_is_whole_or_not_measured() -> None:
    whole = [" 0 N/A 370.1 371.2", " 1 372.3 N/A 0.00", " 2 373.4 N/A N/A"]
    cases = {
        "whole": (whole, ((1, 2), (2, 1))),
        "a row is cut off": (whole[:2], None),
        "a row is missing in the middle": ([whole[0], whole[2]], None),
        "a cell is cut off": ([*whole[:2], " 2 373.4 N/A"], None),
        "a GPU with itself": ([whole[1], whole[0], whole[2]], None),
    }
    for why, (rows, dead) in cases.items():
        text = "\n".join([f"Running {reader_node.BETWEEN}.", *rows])
        speed = reader_node.speed({"nvbandwidth": reader_node.ProgramOutput(code=0, text=text)})
        assert speed is not None
        assert (speed.peers and speed.peers.dead) == dead, why
