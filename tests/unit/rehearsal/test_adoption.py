"""An RKE2 that already runs is adopted by its gates: a run that knows nothing of it passes, and changes nothing."""

import shutil
from pathlib import Path

import yaml

from steps.clients.store import Store
from steps.contract.verdict import Status
from tests.unit.rehearsal.small import SMALL
from tests.unit.rehearsal.stage_bench import RUN, StageBench, stage_bench
from workflows.engines.folders import StateFolder
from workflows.spec import load


def changes(folder: Path, number: int) -> dict[str, int]:
    """By host, how many tasks of this run's plays of RKE2 changed something; agents are not played after servers that fail."""
    store = Store(StateFolder(folder / f"{number:03d}-rke2").store)
    records = [record for task in ("servers", "agents") for record in store.records(RUN, "rke2", task)]
    return {row["node"]: row.get("changed", 0) for record in records for row in (record.observation or {"nodes": ()})["nodes"]}


def forget(folder: Path) -> None:
    """The next run has neither kubeconfig nor token of the cluster."""
    shutil.rmtree(folder / "secrets")


def run(place: StageBench) -> None:
    outcome = place.run("rke2")
    assert outcome.exit_code == 0, outcome.verdict


def test_a_cluster_that_runs_passes_unchanged_and_hands_over_its_kubeconfig(tmp_path: Path) -> None:
    with stage_bench(load(yaml.safe_dump(SMALL)), tmp_path) as place:
        assert place.run("os_prep").exit_code == 0
        run(place)
        assert set(changes(tmp_path, 2).values()) == {3}
        kubeconfig = (tmp_path / "secrets/kubeconfig").read_text()
        forget(tmp_path)
        run(place)
        assert set(changes(tmp_path, 3).values()) == {0}
        assert (tmp_path / "secrets/kubeconfig").read_text() == kubeconfig
        assert (tmp_path / "secrets/join_token").exists()


def test_a_cluster_that_is_not_well_is_not_adopted(tmp_path: Path) -> None:
    """A cluster whose disk has become slow since it was made fails the gate, and nothing on it is changed."""
    with stage_bench(load(yaml.safe_dump(SMALL)), tmp_path) as place:
        assert place.run("os_prep").exit_code == 0
        run(place)
        forget(tmp_path)
        place.restore(place.snapshot(), ["etcd_disk_slow"])
        outcome = place.run("rke2")
        assert outcome.exit_code == 65
        assert outcome.verdict is not None
        assert outcome.verdict.status is Status.FAIL
        assert "fsyncs" in outcome.verdict.reason
        assert set(changes(tmp_path, 3).values()) == {0}
