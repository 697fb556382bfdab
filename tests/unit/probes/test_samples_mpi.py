"""Every recorded failure of MPI is read to its cause, and no good run to one."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.stages.shared import reader_mpi

DATA = Path(os.environ.get("BRINGUP_TEST_DATA", Path(__file__).parents[4] / "shared")) / "samples" / "mpi"
CASES: list[dict[str, Any]] = yaml.safe_load((DATA / "INDEX.yaml").read_text())["cases"] if DATA.is_dir() else []
CAUSES = {
    "gpcnet_too_few_nodes_10.txt": "too few nodes: at least 10 needed",
    "orte_daemon_failed_after_launch.txt": "ORTE daemon failed after launch",
    "orte_lost_communication_k8s_137.txt": "a worker was killed (exit code 137), not the network",
    "orte_lost_communication_old_wording.txt": "lost communication with the daemon on ip-10-15-20-17.ec2.internal",
    "osu_iallreduce_cuda_pmix_crash.txt": "segmentation fault in a rank",
    "podman_pmix_ext3x_unreachable.txt": "PMIx is not reachable",
    "srun_pmix_not_found_ompi3.txt": "PMIx is not reachable",
}

pytestmark = pytest.mark.skipif(not CASES, reason="recorded outputs are not here ($BRINGUP_TEST_DATA)")


@pytest.mark.parametrize("name", CAUSES)
def test_errors(name: str) -> None:
    expected = next(case["expected"] for case in CASES if case["file"] == name)
    found = reader_mpi.errors((DATA / name).read_text())
    assert found
    assert CAUSES[name] in found[0].cause
    assert found[0].failure_class.value == expected["class"]
    if "remote" in expected:
        assert expected["remote"] in {error.host for error in found}


def test_good_runs_have_no_errors() -> None:
    good = [case["file"] for case in CASES if case["expected"]["verdict"] == "pass"]
    assert good
    assert [name for name in good if reader_mpi.errors((DATA / name).read_text())] == []
