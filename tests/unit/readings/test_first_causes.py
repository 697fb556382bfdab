"""The first cause in an output is named with host, adapter and peer, whatever stands around it. Takes 1 s of CPU."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.readings import host_setup_readings, recognition, site_values
from steps.stages.shared import reader_errors, reader_host

CASES: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("first_causes.yaml").read_text())
NOTICES = """\
--------------------------------------------------------------------------
By default, for Open MPI 4.0 and later, infiniband ports on a device
are not used by default.
--------------------------------------------------------------------------
--------------------------------------------------------------------------
WARNING: There was an error initializing an OpenFabrics device.

  Local host:   gpu022
--------------------------------------------------------------------------
"""
LATENCY = "# OSU MPI Latency Test v7.4\n# Size          Latency (us)\n1                       1.21\n4194304               180.00\n"
LOST = """\
--------------------------------------------------------------------------
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[1,0],0] on node gpu001
  Remote daemon: [[1,0],1] on node gpu004
--------------------------------------------------------------------------
"""
BUILDING = """\
Starting installation of NVIDIA driver version 570.86.15 for Linux kernel version 6.8.0-60-generic
Building kernel modules... Done
Done, now waiting for signal
"""
STARTED = (
    "[2026-01-02T10:00:00.000] slurmctld version 24.05.3 started on cluster gpu\n[2026-01-02T10:00:01.000] Running as primary\n"
)
DESCRIBED = """\
Status:           {status}
Containers:
  driver:
    State:          Running
Conditions:
  Type              Status
  Ready             {ready}
Events:
  Type     Reason   Age   From     Message
  ----     ------   ----  ----     -------
  Warning  Failed   9m    kubelet  Failed to pull image "a/b:1": Head "https://a/v2": dial tcp 1.2.3.4:443: i/o timeout
"""


@pytest.mark.parametrize("name", CASES)
def test_first_cause_is_named(name: str) -> None:
    case = CASES[name]
    reading = recognition.reading_of([case["text"]], site_values.parse(()))
    whole = f"{reading.cause} | {reading.detail} | {reading.next_step}"
    assert reading.verdict.value == "fail", reading
    assert re.search(case["first"][0], reading.cause), reading
    assert [part for part in case["first"] if not re.search(part, whole)] == [], reading


@pytest.mark.parametrize(
    ("text", "verdict", "cause"),
    [
        (NOTICES + LATENCY, "pass", ""),
        (BUILDING, "inconclusive", "now waiting for signal"),
        (STARTED, "inconclusive", "no error is recognised"),
        (NOTICES + LOST, "fail", "lost communication with the daemon on gpu004"),
        (DESCRIBED.format(status="Running", ready="True"), "pass", ""),
        (DESCRIBED.format(status="Pending", ready="False"), "fail", "registry is not reached: dial tcp 1.2.3.4:443: i/o timeout"),
    ],
)
def test_notices_of_a_healthy_run_are_no_cause(text: str, verdict: str, cause: str) -> None:
    stated = ("latency_ceiling_us=200",) if LATENCY in text else ()
    reading = recognition.reading_of([text], site_values.parse(stated))
    assert (reading.verdict.value, cause in reading.cause) == (verdict, True), reading


def test_unknown_error_of_a_journal_is_quoted() -> None:
    line = 'Nov 30 10:00:00 gpu004 rke2[12]: time="2026-11-30T10:00:00Z" level=error msg="the frobnicator is out of gas"'
    reading = recognition.reading_of([f"{line}\n"], site_values.parse(()))
    assert (reading.verdict.value, "frobnicator" in reading.detail) == ("inconclusive", True), reading


@pytest.mark.parametrize(
    "line",
    [
        "kernel: mlx5_core 0000:5e:00.0: Port module event[error]: module 0, Cable error",
        "kernel: [ 9000.1] Out of memory: Killed process 12 (python3) total-vm:1kB",
        "kernel: mce: [Hardware Error]: Machine check events logged",
        'rke2[12]: time="2026-11-30T10:00:00Z" level=info msg="server is not ready: Node password rejected"',
        'rke2-agent[12]: level=fatal msg="x509: certificate has expired or is not yet valid"',
    ],
)
def test_machine_of_a_line_in_a_journal_is_read(line: str) -> None:
    patterns = (*reader_host.PATTERNS, *host_setup_readings.PATTERNS)
    assert [error.host for error in reader_errors.find(f"Nov 30 10:00:00 gpu001 {line}\n", patterns)] == ["gpu001"]
