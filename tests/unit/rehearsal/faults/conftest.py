"""Sweeps of all faults, one file of tests for each part of the stages, so that two workers share them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.rehearsal.faults.specs import needed, spec_for
from workflows.rehearsal.faults import registry
from workflows.rehearsal.rehearse import Options
from workflows.rehearsal.sweep import Catch, sweep, whole
from workflows.stages import ORDER


@pytest.fixture(scope="session")
def catch_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, tuple[str, ...]], Catch]:
    """What became of a fault, or of `healthy STAGE`, in the sweep of these stages; each sweep is run once."""
    done: dict[tuple[str, tuple[str, ...]], dict[str, Catch]] = {}

    def run(needs: str, stages: tuple[str, ...]) -> dict[str, Catch]:
        if (needs, stages) not in done:
            wanted = [fault for fault in registry.faults() if fault.stage in stages and needed(fault) == needs]
            until = max((fault.stage for fault in wanted), key=ORDER.index)
            found = sweep(spec_for(needs), tmp_path_factory.mktemp("sweep"), Options(), [fault.name for fault in wanted], until)
            done[needs, stages] = {catch.fault or f"healthy {catch.stage}": catch for catch in found}
        return done[needs, stages]

    def find(name: str, stages: tuple[str, ...]) -> Catch:
        needs = "" if name.startswith("healthy ") else needed(registry.find(name))
        return run(needs, stages)[name]

    return find


@pytest.fixture
def whole_catch() -> Callable[[registry.Fault, Path], Catch]:
    """What a whole bring-up makes of a fault that is in force from its start."""
    return lambda fault, folder: whole(spec_for(needed(fault)), fault, folder)


@pytest.fixture
def healthy() -> Callable[[int, Path], list[str]]:
    """The false alarms of a rehearsal without faults whose delays are drawn from a seed."""

    def run(seed: int, folder: Path) -> list[str]:
        print(f"seed {seed}")
        caught = sweep(spec_for(""), folder, Options(seed=seed, jitter=1.0), ["none"])
        return [catch.problem for catch in caught if catch.problem]

    return run
