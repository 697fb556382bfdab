"""Acceptance of a cluster that is already there: its last sentence on a healthy one, and with each kind of bad part."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from steps.clients.store import Store
from steps.contract.runs.operation import Operation, OperationKind
from tests.unit.rehearsal.small import SMALL
from tests.unit.rehearsal.stage_bench import RUN, Snapshot, StageBench, stage_bench
from workflows import bringup
from workflows.accept import scope
from workflows.app import acceptance
from workflows.app.acceptance import AcceptanceRequest
from workflows.app.specs import cluster_pipeline, operations
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan, PlanError
from workflows.render.bundle import Bundle, render
from workflows.spec import ClusterSpec, load

HOSTS = {
    "servers": {"role": "server", "ranges": "sv1", "addresses": {"start": "10.10.0.11"}},
    "gpu": {
        "role": "agent",
        "ranges": "gpu[1-8]",
        "gpu": True,
        "addresses": {"start": "10.10.1.1"},
        "topology": {"rack": "r{block:4}", "leaf": "leaf{block:4}"},
    },
}
SPEC = SMALL | {"hosts": HOSTS, "slurm": {"kind": "none"}}


class AcceptedCluster:
    """A cluster without validation on a bench; each acceptance begins from the same snapshot."""

    def __init__(self, bench: StageBench, folder: Path, before: Snapshot) -> None:
        self.bench, self.folder, self.before = bench, folder, before

    def accept(self, *faults: str) -> tuple[str, int]:
        """Return the last sentence and the exit code of an acceptance with faults."""
        self.bench.restore(self.before, faults)
        code = self.bench.run("validation").exit_code
        report = json.loads((self.last / f"runs/{RUN}/report/report.json").read_bytes())
        return str(report["acceptance"]), code

    @property
    def last(self) -> Path:
        """Return the store of the last acceptance."""
        return max(self.folder.glob("*-validation")) / "store"


def planner(spec: ClusterSpec) -> Callable[..., tuple[Plan, Bundle]]:
    def planned(only: list[str]) -> tuple[Plan, Bundle]:
        operation = Operation(kind=OperationKind.ACCEPT) if only == ["validation"] else Operation()
        plan = compile_plan(spec, only=only, operation=operation)
        return plan, render(plan, bringup.build)

    return planned


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AcceptedCluster]:
    folder = tmp_path_factory.mktemp("accept")
    spec = load(yaml.safe_dump(SPEC))
    with stage_bench(planner(spec), folder) as bench:
        for stage in [stage.id for stage in compile_plan(spec).stages if stage.id != "validation"]:
            assert bench.run(stage).exit_code == 0, stage
        yield AcceptedCluster(bench, folder, bench.snapshot())


def test_a_healthy_cluster_is_accepted_with_its_bandwidth_and_floor(cluster: AcceptedCluster) -> None:
    sentence, code = cluster.accept()
    assert code == 0
    assert sentence.startswith("accepted: 8 nodes, 3")
    assert sentence.endswith(" GB/s against a floor of 350")
    header = json.loads((cluster.last / f"runs/{RUN}/run.json").read_bytes())
    assert header["operation"] == "accept at level standard"
    assert Store(cluster.last).read(f"runs/{RUN}/seal.json"), "signed or not, it is sealed as every run"


@pytest.mark.parametrize(
    ("fault", "part"),
    [
        ("fabric_node_degraded:gpu3", "not accepted: node gpu3: 18"),
        ("fabric_rail_degraded:gpu5", "not accepted: rail 3 of gpu5: 2"),
        ("fabric_pair_collision:gpu2,gpu7", "not accepted: pair gpu2 and gpu7: 19"),
        ("fabric_path_degraded", "not accepted: path between leaves leaf1 and leaf2: 2"),
        ("nvlink_degraded:gpu4", "not accepted: node gpu4: 2"),
    ],
)
def test_the_part_at_fault_is_named_with_its_measurement(cluster: AcceptedCluster, fault: str, part: str) -> None:
    sentence, code = cluster.accept(fault)
    assert code == 65
    assert sentence.startswith(part)


def test_the_partners_of_a_repaired_node_are_on_its_leaf_and_on_another() -> None:
    spec = load(yaml.safe_dump(SPEC))
    assert scope.with_partners(spec, {"gpu6"}) == {"gpu6", "gpu5", "gpu1"}
    assert scope.with_partners(spec, set()) == frozenset()


def test_an_acceptance_of_repaired_nodes_judges_them_and_their_partners_alone() -> None:
    spec = load(yaml.safe_dump(SPEC))
    operation = Operation(kind=OperationKind.ACCEPT, hosts=scope.with_partners(spec, {"gpu6"}))
    plan = compile_plan(spec, only=["validation"], operation=operation)
    tasks = {task.name: task.arguments for task in plan.tasks if task.stage == "validation"}
    assert {tasks[name]["select"] for name in ("nccl_intra", "dcgm", "functional", "localise")} == {"touched-gpu"}
    assert (tasks["judge"]["members"], tasks["judge"]["needed"]) == ("touched-gpu", 3)
    assert plan.open_task.arguments["operation"] == "accept at level standard gpu[1,5-6]"


def test_a_plan_and_a_rehearsal_of_an_acceptance_have_the_partners_of_its_nodes(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    accepted = acceptance.planned(AcceptanceRequest(spec=str(path), nodes=["gpu6"]))[1]
    named = operations.named("accept", ["gpu6"])
    assert operations.scoped(load(path.read_text()), named) == accepted
    plan = cluster_pipeline.BRINGUP.plan_of(str(path), operations.only(named), "", named)
    assert plan.open_task.arguments["operation"] == "accept at level standard gpu[1,5-6]"
    assert "validation/functional" in {gate for stage in plan.stages for gate in stage.gates}


@pytest.mark.parametrize("kind", ["infiniband", "roce", "none"])
def test_a_figure_of_one_node_is_no_acceptance_of_a_fabric(kind: str) -> None:
    spec = load(yaml.safe_dump(SPEC))
    spec = spec.model_copy(update={"fabric": spec.fabric.model_copy(update={"kind": kind})})
    operation = Operation(kind=OperationKind.ACCEPT, hosts=frozenset({"gpu6"}))
    if kind == "none":
        stage = compile_plan(spec, only=["validation"], operation=operation).stages[0]
        assert [change.what for change in stage.changes] == ["load every GPU for about 40 minutes"]
    else:
        with pytest.raises(PlanError, match=f"its fabric is {kind}, and nothing is measured on it"):
            compile_plan(spec, only=["validation"], operation=operation)
