"""Every case of the conformance corpus: executed like the real controller, or refused with a sentence; nothing in between."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from workflows.engines.local.execute import execute_manifest

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[3] / "shared") / "argo_conformance"
ENOUGH = 100  # executed cases; a change that refuses what was executed before is a regression
AT_ONE_TIME = 10  # most of a case is waiting


def cases() -> list[Path]:
    return sorted(path.parent for path in (DATA / "cases").glob("*/recorded.json"))


def execute(case: Path, results: Path) -> str:
    """The outcome of one case: executed, refused, or what else happened."""
    actions = case / "actions.yaml"
    said: list[str] = []
    code = execute_manifest(
        case / "workflow.yaml", results / f"{case.name}.json", actions if actions.exists() else None, say=said.append
    )
    if code == 64 and said:
        (results / f"{case.name}.refused").write_text("".join(said))
        return "refused"
    return "executed" if code in (0, 1, 65) and (results / f"{case.name}.json").exists() else f"exit code {code}: {''.join(said)}"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    if not cases():
        pytest.fail(f"no conformance cases under {DATA}: set BRINGUP_TEST_DATA to the folder that holds argo_conformance/")
    folder = tmp_path_factory.mktemp("results")
    with ThreadPoolExecutor(AT_ONE_TIME) as pool:
        outcomes = dict(zip((case.name for case in cases()), pool.map(lambda case: execute(case, folder), cases()), strict=True))
    return folder, outcomes


def test_each_case_is_executed_or_refused_with_a_sentence(results: tuple[Path, dict[str, str]]) -> None:
    folder, outcomes = results
    third = {name: outcome for name, outcome in outcomes.items() if outcome not in ("executed", "refused")}
    assert not third
    for name in (name for name, outcome in outcomes.items() if outcome == "refused"):
        path, _, sentence = (folder / f"{name}.refused").read_text().partition(": ")
        assert path
        assert sentence.strip()


def test_executed_cases_agree_with_the_controller(results: tuple[Path, dict[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    folder, outcomes = results
    command = [sys.executable, str(DATA / "compare.py"), str(DATA / "cases"), str(folder), "--core"]
    compared = subprocess.run(command, capture_output=True, text=True, check=False)
    executed = sum(outcome == "executed" for outcome in outcomes.values())
    with capsys.disabled():
        print(f"\nconformance: {executed} executed, {len(outcomes) - executed} refused of {len(outcomes)} cases")
    assert compared.returncode == 0, compared.stdout
    assert executed >= ENOUGH


def test_a_refused_case_is_one_that_the_controller_failed_or_rejected(results: tuple[Path, dict[str, str]]) -> None:
    """The grammar has room for every manifest of the corpus that ran: only defective ones are refused."""
    _, outcomes = results
    for case in cases():
        if outcomes[case.name] == "refused":
            recorded = yaml.safe_load((case / "recorded.json").read_text())
            assert recorded["phase"] in ("Failed", "Error", "Rejected"), case.name
