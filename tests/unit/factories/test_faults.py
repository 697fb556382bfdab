"""Every fault of a factory's stages is caught by the gate that it names, and healthy stages pass, twice; about 20 CPU seconds."""

import json
from pathlib import Path

import pytest

from steps.clients.kube.client import Kube
from tests.unit.rehearsal import asking
from tests.unit.rehearsal.fault_sweep import missed
from tests.unit.rehearsal.stage_bench import Planner, StageOutcome, stage_bench
from workflows.app.factories import unplanned_objects
from workflows.rehearsal.faults import fault_registry
from workflows.spec import FactorySpec
from workflows.stages import FACTORY_ORDER, FACTORY_STAGES

Outcomes = dict[str, StageOutcome]
FAULTS = [fault for fault in fault_registry.faults() if fault.stage in FACTORY_STAGES]


@pytest.fixture(scope="module")
def swept(planner: Planner, whole: FactorySpec, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcomes, list[str], list[str]]:
    """The outcomes of faults and of healthy stages, run twice; what steps asked for without a right; what a rebuild would lose."""
    folder, outcomes = tmp_path_factory.mktemp("factory-sweep"), {}
    with stage_bench(planner, folder) as bench:
        for stage in FACTORY_ORDER:
            before = bench.snapshot()
            for fault in (fault for fault in FAULTS if fault.stage == stage):
                bench.restore(before, [fault.name])
                outcomes[fault.name] = bench.run(stage)
            bench.restore(before)
            outcomes[f"first {stage}"] = bench.run(stage)
        for stage in FACTORY_ORDER:
            outcomes[f"second {stage}"] = bench.run(stage)
        rows = asking.asked(folder / "cluster/kubeconfig")
        kube = Kube.from_file(folder / "cluster/kubeconfig")
        unplanned = [item.sentence for item in unplanned_objects.compare(whole, planner([])[0], kube).objects]
    _require_unchanged(folder)
    return outcomes, asking.refused(rows, planner([])[1].target_rbac), unplanned


def _require_unchanged(folder: Path) -> None:
    """Assert that the tasks that apply objects changed nothing in the second run of any stage."""
    runs = sorted(path for path in folder.iterdir() if path.name[:3].isdigit())[-len(FACTORY_ORDER) :]
    records = [json.loads(path.read_bytes()) for run in runs for path in run.glob("store/runs/*/evidence/*/apply*/**/*.json")]
    assert len(records) >= len(FACTORY_STAGES)
    lines = [line for record in records for line in record.get("changes", ())]
    assert [line for line in lines if not line.startswith("unchanged")] == []


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_named_gate_catches_it(fault: fault_registry.Fault, swept: tuple[Outcomes, list[str], list[str]]) -> None:
    outcome = swept[0][fault.name]
    assert not missed(fault, outcome)
    assert outcome.exit_code == 65


@pytest.mark.parametrize("stage", FACTORY_ORDER)
@pytest.mark.parametrize("time", ["first", "second"])
def test_a_healthy_stage_passes(stage: str, time: str, swept: tuple[Outcomes, list[str], list[str]]) -> None:
    outcome = swept[0][f"{time} {stage}"]
    assert outcome.exit_code == 0, outcome.verdict


def test_steps_ask_for_nothing_that_their_roles_deny(swept: tuple[Outcomes, list[str], list[str]]) -> None:
    assert swept[1] == []


def test_what_the_stages_build_is_what_the_spec_brings(swept: tuple[Outcomes, list[str], list[str]]) -> None:
    assert swept[2] == []


def test_all_faults_fit_the_whole_factory(whole: FactorySpec) -> None:
    assert all(fault.fits(whole) for fault in FAULTS)
    assert {fault.stage for fault in FAULTS} == set(FACTORY_STAGES)
