"""Measured durations of builds come from the records of the newest runs, and order later plans."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.clients.store import Store
from steps.contract.canonical import canonical
from steps.contract.runs.evidence import Evidence
from steps.softwarestack.contract.package_build import BuildOutcome, PackageBuilt
from steps.stages.stack_build.contract import BatchBuilt
from tests.unit.softwarestack.small_locks import chain, hash_of, lock
from workflows.app.stacks import stack_plans
from workflows.app.stacks.build_durations import MOST_RUNS, measured
from workflows.stages import stack_build


def package(name: str, seconds: float, outcome: BuildOutcome = BuildOutcome.BUILT) -> PackageBuilt:
    return PackageBuilt(hash=hash_of(name), title=f"{name}@1.0", outcome=outcome, seconds=seconds + 20, tool_seconds=seconds)


def write(store: Store, run: str, ended: float, *packages: PackageBuilt, observation: Any = None) -> None:
    """Write a run that ended at a time, with one record of a batch."""
    batch = msgspec.to_builtins(BatchBuilt(stack="sha256:x", batch=0, packages=packages))
    record = Evidence(
        run=run,
        stage=stack_build.ID,
        task=stack_build.PART,
        verb="build",
        shard=0,
        attempt=1,
        input_digest="sha256:x",
        engine="local",
        started=1.0,
        finished=2.0,
        observation=batch if observation is None else observation,
    )
    store.write_evidence(record, canonical)
    store.write(f"runs/{run}/run.json", b"{}")
    os.utime(store.path(f"runs/{run}/run.json"), (ended, ended))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_the_newest_build_of_a_name_counts_and_every_hash_has_its_own(store: Store) -> None:
    write(store, "newer", 200.0, package("hdf5", 50.0))
    write(store, "older", 100.0, package("hdf5", 70.0), package("zlib", 5.0))
    assert measured(store) == {hash_of("hdf5"): 50.0, "hdf5": 50.0, hash_of("zlib"): 5.0, "zlib": 5.0}


def test_only_builds_that_succeeded_are_measured(store: Store) -> None:
    write(store, "r", 1.0, package("a", 9.0, BuildOutcome.FAILED), package("b", 9.0, BuildOutcome.CACHED), package("c", 0.0))
    assert measured(store) == {}


def test_records_that_cannot_be_used_are_left_out(store: Store) -> None:
    write(store, "fine", 1.0, package("zlib", 5.0))
    write(store, "foreign", 2.0, observation={"packages": "many"})
    write(store, "absurd", 3.0, package("hdf5", 1e9))
    write(store, "broken", 4.0, package("hdf5", 5.0))
    store.path("runs/broken/evidence/stack_build/package/0000/01.json").write_bytes(b"{")
    assert measured(store) == {hash_of("zlib"): 5.0, "zlib": 5.0}


def test_few_runs_are_read_and_those_without_builds_are_not_counted(store: Store) -> None:
    store.write("runs/cluster/run.json", b"{}")
    for number in range(MOST_RUNS + 1):
        write(store, f"r{number}", 100.0 - number, package(f"p{number}", 5.0))
    assert set(measured(store)) == {key for number in range(MOST_RUNS) for key in (f"p{number}", hash_of(f"p{number}"))}


def test_a_plan_takes_what_earlier_runs_measured_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path))
    write(Store(tmp_path / "store"), "r", 1.0, package("lib", 321.0), package("app", 12.0))
    (tmp_path / "spack.lock").write_bytes(lock(chain(), ["app"]))
    (tmp_path / "durations.json").write_text('{"app": 7}')
    planned = stack_plans.prepare(str(tmp_path / "spack.lock"), None, tmp_path / "durations.json", ())
    seconds = {build.node.name: build.seconds for build in planned.plan.ordered if build.measured}
    assert seconds == {"lib": 321.0, "app": 7.0}
