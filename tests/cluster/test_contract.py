"""The probes of the Kubernetes API that the emulated server passes are also passed by the real one."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

from kubelab.lab import Cluster

ROOT = Path(__file__).parents[2]
PROBES = 34
"""The least number that must have run: a suite that collects nothing proves nothing."""


def test_every_probe_of_the_contract_passes(cluster: Cluster, tmp_path: Path) -> None:
    cluster.plane.restart_api()  # its watch caches then begin now, and revision 1 is forgotten
    report = tmp_path / "junit.xml"
    command = [sys.executable, "-m", "pytest", "tests/contract", "-k", "real", "-p", "no:cacheprovider", f"--junitxml={report}"]
    environment = os.environ | {"BRINGUP_TEST_KUBECONFIG": str(cluster.plane.kubeconfig)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    cluster.plane.kubectl("delete", "nodes", "-l", "nvidia.com/gpu.present=true", "--wait=false")  # other tests share the cluster
    assert done.returncode == 0, done.stdout[-4000:]
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    ran = sum(int(suite.get("tests", 0)) - int(suite.get("skipped", 0)) for suite in suites)
    print(f"{ran} probes passed")
    assert ran >= PROBES
