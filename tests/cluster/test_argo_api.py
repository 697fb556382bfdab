"""The tests of the Argo engine, which the emulated API server passes, are also passed by the real one."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from actors import argo_home, kubelet_port
from kubelab import custom_kinds, product
from kubelab.control_plane import ControlPlane

pytestmark = pytest.mark.sampled("parts of a real cluster")

FOLDER = Path("tests/unit/engines/argo")
SHORT = ("test_same_evidence.py", "test_starts.py")
"""Test files about equal evidence of both engines, and about schedules."""

REST = (
    "test_answers.py",
    "test_cli.py",
    "test_follow.py",
    "test_install.py",
    "test_live.py",
    "test_announced_approvals.py",
    "test_not_ours.py",
    "test_run_views.py",
)
"""Test files about followers, installation, approvals and cancellation. They take five minutes, so they run as `long`;
`test_argo_engine.py` tests the essence by the command line."""

LEFT_OUT = {
    "disturbs the emulated API server": 19,
    "takes CRDs from a server that other tests use": 1,
    "a real home cluster has the full CRDs in every test": 1,
}
"""Why tests are skipped, and how many: `test_argo_engine.py` disturbs the real one."""


@pytest.mark.parametrize(
    ("names", "least", "left_out"),
    [
        pytest.param(SHORT, 4, {}, id="schedules and evidence"),
        pytest.param(REST, 60, LEFT_OUT, id="all else", marks=pytest.mark.long),
    ],
)
def test_the_engine_does_the_same_on_a_real_server(
    bare: ControlPlane, tmp_path: Path, names: Sequence[str], least: int, left_out: dict[str, int]
) -> None:
    """`least` is the number that must have run: a suite that collects nothing proves nothing."""
    before, report = bare.snapshot(), tmp_path / "junit.xml"
    custom_kinds.install(bare, argo_home.CRDS)
    modules = [str(FOLDER / module) for module in names]
    command = [sys.executable, "-m", "pytest", *modules, "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
    with kubelet_port.serving(tmp_path / "kubelets") as logs:
        environment = {"BRINGUP_TEST_KUBECONFIG": str(bare.kubeconfig), "BRINGUP_TEST_POD_LOGS": str(logs)}
        done = subprocess.run(command, cwd=product.ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    bare.restore(before)
    assert done.returncode == 0, done.stdout[-6000:]
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    reasons = [str(found.get("message")) for case in cases if (found := case.find("skipped")) is not None]
    assert {reason: reasons.count(reason) for reason in reasons} == left_out
    print(f"{len(cases) - len(reasons)} tests passed")
    assert len(cases) - len(reasons) >= least
