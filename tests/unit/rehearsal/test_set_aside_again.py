"""A node that a run has set aside and cordoned: the next run says so in seconds and how it is released, and then takes it back."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.runs import quarantine
from steps.contract.verdict import Verdict
from tests.unit.rehearsal.small import SMALL
from tests.unit.rehearsal.stage_bench import RUN, StageBench, StageOutcome, stage_bench
from workflows.cli import main
from workflows.spec import load

MOST_SECONDS = 60.0
"""Of the target's clock, from the control plane's pass to the verdict on the nodes: no wait for what cannot come."""


class Runs:
    """Runs of stage rke2 one after the other on one cluster, and what each left."""

    def __init__(self, place: StageBench, folder: Path) -> None:
        self.place, self.folder = place, folder

    def run(self, *faults: str) -> StageOutcome:
        """The stage with these faults, on the cluster as it is."""
        self.place.restore(self.place.snapshot(), faults)
        return self.place.run("rke2")

    @property
    def home(self) -> Path:
        """Return the folder of the last run."""
        return max(self.folder.glob("*-rke2"))

    @property
    def store(self) -> Store:
        """Return the store of the last run."""
        return Store(self.home / "store")

    def record(self, task: str) -> Any:
        """Return the first record that a task of the last run left."""
        return self.store.records(RUN, "rke2", task)[0]

    def took(self) -> float:
        """Seconds of the target's clock from the last look at the control plane to the last look at the nodes."""
        return float(self.record("nodes").observation["now"] - self.record("control").observation["now"])

    def release(self, node: str) -> int:
        """As a person does after a run on real hosts, whose cluster is still there."""
        key = run_records.header_key(RUN)
        header = run_records.decode_header(self.store.read(key) or b"")
        self.store.replace(key, canonical(msgspec.structs.replace(header, simulated=False)))
        return main.run(["quarantine", "release", node, "--as", "ada"])


def nodes_of(verdict: Verdict | None) -> dict[str, str]:
    assert verdict is not None
    return {row.node: row.status.value for row in verdict.nodes}


def test_the_next_run_names_the_release_in_seconds_and_takes_the_node_back_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = load(yaml.safe_dump(SMALL | {"quorum": {"default": "2/3"}}))
    with stage_bench(spec, tmp_path) as place:
        assert place.run("os_prep").exit_code == 0
        runs = Runs(place, tmp_path)

        assert runs.run("overlay_broken:gpu1").exit_code == 0
        assert "cordoned gpu1" in runs.record("judge").changes

        again = runs.run()
        assert again.exit_code == 0, "the quorum is there without it"
        assert nodes_of(again.verdict) == {"sv1": "pass", "gpu1": "fail", "gpu2": "pass", "gpu3": "pass"}
        said = runs.record("nodes").verdict
        assert said.final
        assert "gpu1: cordoned since run stand set it aside in rke2 (" in said.reason
        assert f"`bringup quarantine release gpu1 --run {RUN} --as NAME`" in said.next_step
        assert runs.took() < MOST_SECONDS
        (entry,) = quarantine.entries(runs.store.keys(quarantine.folder(RUN)), runs.store.read)
        assert entry.node == "gpu1"
        assert "cordoned gpu1" not in runs.record("judge").changes, "the first run's reason stays on the node"

        monkeypatch.setenv("BRINGUP_HOME", str(runs.home))
        assert runs.release("gpu[1-1]") == 0
        assert "released gpu1 as ada, uncordoned" in capsys.readouterr().out
        back = runs.run()
        assert back.exit_code == 0
        assert set(nodes_of(back.verdict).values()) == {"pass"}
