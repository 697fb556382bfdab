"""Every recorded dcgmi diag is read to its results, and judged as a person judged it."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.contract.node_tests.dcgm import DcgmTest
from steps.contract.verdict import Status
from steps.stages.validation import gate_dcgm, reader_dcgm

DATA = Path(os.environ.get("BRINGUP_TEST_DATA", Path(__file__).parents[4] / "shared")) / "samples" / "gpu_host"
INDEX = yaml.safe_load((DATA / "INDEX.yaml").read_text())["cases"] if DATA.is_dir() else []
CASES: list[dict[str, Any]] = [case for case in INDEX if case["file"].startswith("dcgmi_")]
CAUSES = {
    "dcgmi_diag_json_per_gpu_json.json": "sm_stress failed: Max stress level of 2128.7 did not exceed",
    "dcgmi_diag_table_pcie_fail_nvlink_down_a100.txt": "PCIe failed: NVLink links 0, 1, 2, 3, 4 down on GPU 0",
    "dcgmi_diag_table_v4_pcie_fail_child_process.txt": "pcie failed: There was an internal error during the test: 'A child process",
}

pytestmark = pytest.mark.skipif(not CASES, reason="recorded outputs are not here ($BRINGUP_TEST_DATA)")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["file"])
def test_sample(case: dict[str, Any]) -> None:
    run, expected = reader_dcgm.read((DATA / case["file"]).read_text()), case["expected"]
    assert run is not None
    for word, count in expected.get("statuses", {}).items():
        assert run.count(word.lower()) == count
    if "failed" in expected:
        assert [test.name for test in run.tests if test.statuses.get("fail")] == expected["failed"]
    if "dcgm" in expected:
        assert run.version == expected["dcgm"]
    if "gpus" in expected:
        assert len(run.gpus) == expected["gpus"]
    found = gate_dcgm.problem(run, 0)
    assert found is not None
    assert found.status is Status.FAIL
    assert found.failure_class.value == expected["class"]
    assert CAUSES[case["file"]] in found.seen


def diag(status: str, *, gpus: int = 8, key: str = "DCGM Diagnostic", hardware: bool = True, summary: str = "") -> str:
    """A result of DCGM 4 as `dcgmi diag -j` prints it."""
    rows = ", ".join(
        f'{{"entity_group": "GPU", "entity_group_id": 1, "entity_id": {gpu}, "status": "{status}"}}' for gpu in range(gpus)
    )
    tests = f'{{"name": "memory", "results": [{rows}], "test_summary": {{"status": "{summary or status}"}}}}'
    software = '{"name": "software", "results": [{"entity_group": "GPU", "entity_id": 0, "status": "Pass"}]}'
    categories = f'{{"category": "Deployment", "tests": [{software}]}}'
    categories += f', {{"category": "Hardware", "tests": [{tests}]}}' if hardware else ""
    return f'{{"{key}": {{"test_categories": [{categories}]}}, "metadata": {{"version": "4.5.2"}}}}'


def test_passes_when_every_gpu_was_tested() -> None:
    assert gate_dcgm.problem(reader_dcgm.read(diag("Pass")), 8, 2) is None
    assert gate_dcgm.problem(reader_dcgm.read("Successfully ran diagnostic for group.\n" + diag("Pass")), 8, 2) is None
    run = reader_dcgm.read(diag("Pass"))
    assert run is not None
    names = ("Diagnostic", "Targeted Stress", "targeted_power")
    more = tuple(DcgmTest(name=name, category="Stress", statuses={"pass": 8}) for name in names)
    assert gate_dcgm.problem(msgspec.structs.replace(run, tests=(*run.tests, *more)), 8, 3) is None


@pytest.mark.parametrize(
    ("text", "gpus", "level", "status", "said"),
    [
        (diag("Skip"), 8, 2, "inconclusive", "level 2 ran no hardware test"),
        (diag("Pass", hardware=False), 1, 2, "inconclusive", "level 2 ran no hardware test"),
        (diag("Pass", gpus=7), 8, 2, "fail", "tested 7 GPUs"),
        (diag("Fail"), 8, 2, "fail", "memory failed on GPU 0, 1, 2"),
        (diag("Pass", summary="Fail"), 8, 2, "fail", "memory failed"),
        (diag("Pass", summary="Warn"), 8, 2, "inconclusive", "memory ended with a warning"),
        (diag("Pass"), 8, 3, "inconclusive", "did not run diagnostic, targeted_stress, targeted_power"),
        (diag("Pass")[:300], 8, 2, "inconclusive", "no result"),
        ("", 8, 1, "inconclusive", "no result"),
        ('{"DCGM Diagnostic": {"runtime_error": "no hostengine", "test_categories": []}}', 8, 1, "fail", "no hostengine"),
    ],
)
def test_never_a_pass(text: str, gpus: int, level: int, status: str, said: str) -> None:
    found = gate_dcgm.problem(reader_dcgm.read(text), gpus, level)
    assert found is not None
    assert found.status.value == status
    assert said in found.seen
