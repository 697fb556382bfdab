"""A cluster that stands is held by one run at a time, whatever home it was started from: others are refused before any play."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.clients.store import Store
from steps.contract.runs import approval
from steps.contract.runs.operation import BRINGUP, Operation, OperationKind
from tests.unit.rehearsal.small import SMALL
from workflows import bringup
from workflows.engines import launch, run_inputs
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.result import News, NodeNews
from workflows.plan.compiler import compile_plan
from workflows.rehearsal import approver
from workflows.rehearsal.rehearsal_run import RehearsalOptions
from workflows.rehearsal.simulated_cluster import SimulatedCluster, call_control_api, simulated_cluster, write_fleet
from workflows.render.bundle import render
from workflows.spec import load

STAGES = ["os_prep", "rke2"]
OTHERS = [
    Operation(kind=OperationKind.UPGRADE),
    Operation(kind=OperationKind.ROLLBACK),
    Operation(kind=OperationKind.ADD_NODE, hosts=frozenset({"gpu3"})),
    Operation(kind=OperationKind.REPLACE_NODE, hosts=frozenset({"gpu2"})),
    Operation(kind=OperationKind.RESET),
    Operation(kind=OperationKind.RESET, hosts=frozenset({"gpu1"})),
    BRINGUP,
]


@dataclass(frozen=True)
class Place:
    """A cluster that several homes reach over SSH alone: no spec names a kubeconfig."""

    folder: Path
    cluster: SimulatedCluster

    def run(
        self, home: str, run: str, operation: Operation = BRINGUP, meanwhile: Callable[[], object] | None = None
    ) -> tuple[int, Store]:
        """A run to its end: its exit code and its store. Before stage rke2 it waits while others do what `meanwhile` says."""
        held: Mapping[str, Any] = {"approvals": [{"before": "rke2", "approvers": [approval.REHEARSAL]}]} if meanwhile else {}
        spec = load(yaml.safe_dump(SMALL | {"stages": STAGES} | held))
        only = ["rke2"] if operation.kind in (OperationKind.UPGRADE, OperationKind.ROLLBACK) else ()
        plan = compile_plan(spec, only=only, operation=operation)
        folder = StateFolder(self.folder / home).run(run)
        run_inputs.write(folder, plan, render(plan, bringup.build), Path("/"), {}, simulated=True)
        result = launch.start(folder, self.cluster.environment, _waiting(folder, meanwhile), spawn=self.cluster.start)
        return int(result.exit_code), Store(folder.home.store)

    def state(self) -> dict[str, Any]:
        """Return the state of each simulated machine, as plays left it."""
        told = call_control_api("GET", self.cluster.url + "/state", self.cluster.token)
        return dict(msgspec.json.decode(told)["hosts"])


def _waiting(folder: RunFolder, meanwhile: Callable[[], object] | None) -> Callable[[News], None]:
    passes = approver.approving_observer(folder)

    def observe(news: News) -> None:
        if meanwhile is not None and isinstance(news, NodeNews) and news.waits:
            meanwhile()
        passes(news)

    return observe


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A cluster that a run of the home `office` brought up."""
    fleet = write_fleet(tmp_path, compile_plan(load(yaml.safe_dump(SMALL))))
    with simulated_cluster(tmp_path / "cluster", fleet, RehearsalOptions().arguments()) as cluster:
        made = Place(tmp_path, cluster)
        assert made.run("office", "first")[0] == 0
        yield made


def test_what_another_home_starts_while_a_run_is_under_way_is_refused_before_a_host_is_changed(place: Place) -> None:
    refused: list[Operation] = []

    def others() -> None:
        before = place.state()
        for number, operation in enumerate(OTHERS):
            code, store = place.run("laptop", f"other-{number}", operation)
            [opened] = store.records(f"other-{number}", "run", "open")
            assert (code, opened.error.partition(", renewed")[0]) == (65, "run second holds this cluster"), operation
            assert not [key for key in store.keys(f"runs/other-{number}/evidence") if "/run/" not in key], operation
            refused.append(operation)
        assert place.state() == before

    assert place.run("office", "second", meanwhile=others)[0] == 0
    assert refused == OTHERS
    code, store = place.run("laptop", "third", Operation(kind=OperationKind.RESET))
    assert (code, len(store.records("third", "reset", "servers"))) == (0, 1), "what ended holds nothing"
