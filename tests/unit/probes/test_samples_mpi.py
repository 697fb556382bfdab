"""Every recorded MPI output is read to its figures or its cause."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.probes import mpi_output

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


@pytest.mark.parametrize("case", [case for case in CASES if "test" in case["expected"]], ids=lambda case: case["file"])
def test_osu(case: dict[str, Any]) -> None:
    expected, given = case["expected"], case["given"]
    run = mpi_output.osu((DATA / case["file"]).read_text())
    assert run is not None
    values = [row.value for row in run.rows]
    largest, smallest = run.largest, min(run.rows, key=lambda row: row.size, default=None)
    seen: dict[str, Any] = {"test": run.test, "version": run.version, "rows": len(run.rows)}
    if largest and smallest:
        seen |= {
            "unit": run.unit,
            "largest_bytes": largest.size,
            "value_at_largest": largest.value,
            "smallest_bytes": smallest.size,
            "value_at_smallest": smallest.value,
            "max_value": max(values),
            "min_value": min(values),
            "validation": {"Pass": sum(row.valid is True for row in run.rows)},
        }
    assert {key: seen[key] for key in expected if key in seen} == {key: expected[key] for key in expected if key in seen}
    if largest and "latency_ceiling_us" in given:
        assert (largest.value <= given["latency_ceiling_us"]) == (expected["verdict"] == "pass")
    if largest and "bw_floor_mbs" in given:
        assert (largest.value >= given["bw_floor_mbs"]) == (expected["verdict"] == "pass")


@pytest.mark.parametrize("name", CAUSES)
def test_errors(name: str) -> None:
    expected = next(case["expected"] for case in CASES if case["file"] == name)
    found = mpi_output.errors((DATA / name).read_text())
    assert found
    assert CAUSES[name] in found[0].cause
    assert found[0].failure_class.value == expected["class"]
    if "remote" in expected:
        assert expected["remote"] in {error.host for error in found}


def test_good_runs_have_no_errors() -> None:
    good = [case["file"] for case in CASES if case["expected"]["verdict"] == "pass"]
    assert good
    assert [name for name in good if mpi_output.errors((DATA / name).read_text())] == []
