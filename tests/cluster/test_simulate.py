"""The real kubectl looks at a simulated cluster: Go clients send no token over plain HTTP, and ask in ways of their own."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubelab import box, parts, product


@pytest.fixture
def simulated(able: None, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of a simulated cluster that is served for as long as the test."""
    written = tmp_path / "kubeconfig"
    command = [str(Path(sys.executable).with_name("bringup")), "simulate", "h200-16", "--kubeconfig-out", str(written)]
    process = subprocess.Popen(command, cwd=product.ROOT, env=os.environ | {"BRINGUP_HOME": str(tmp_path / "home")})
    while not written.exists() and process.poll() is None:
        select.select([], [], [], 0.05)
    yield written
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0


def test_kubectl_reads_and_writes(simulated: Path) -> None:
    def kubectl(*arguments: str) -> str:
        command = [str(parts.programs()["kubectl"]), "--kubeconfig", str(simulated), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    box.until(lambda: len(kubectl("get", "nodes", "-o", "name").split()) == 19, "simulate")
    assert "Name:               gpu001" in kubectl("describe", "node", "gpu001")
    assert "kube-system" in kubectl("get", "pods", "--all-namespaces")
    assert "labeled" in kubectl("label", "node", "gpu001", "looked=at")
    assert kubectl("get", "nodes", "-l", "looked=at", "-o", "name").split() == ["node/gpu001"]
