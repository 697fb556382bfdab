"""Sweeps of the faults whose tests run, one file of tests for each part of the stages, so that two workers share them.

Each fault costs about one second of CPU, and so does each healthy stage on the way of a spec.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.rehearsal import asking
from tests.unit.rehearsal.fault_sweep import FaultResult, FaultSweeps, rehearse_with_fault, sweep_faults
from tests.unit.rehearsal.faults.specs import needed, spec_for, stage_needs
from workflows import bringup
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.apiserver.routing import RequestKind
from workflows.rehearsal.faults import fault_registry
from workflows.rehearsal.rehearsal_run import RehearsalOptions
from workflows.render.bundle import render
from workflows.stages import RUNNING_ORDER


@dataclass(frozen=True)
class Swept:
    """One sweep: what became of each fault and of `healthy STAGE`, and what its steps asked that their Roles do not let them."""

    catches: dict[str, FaultResult]
    refused: list[str]


DELAY_SCALE = 0.25
"""Share of the usual delays with which sweeps run: gates look fewer times. Rehearsals of healthy seeds keep the whole delays."""
Sweeps = Callable[[str, tuple[str, ...]], Swept]
CATCHING = "test_the_named_gate_catches_it"
"""The tests that show one fault each. Their parameter `name` is its name."""


@pytest.fixture(scope="session")
def chosen(request: pytest.FixtureRequest) -> tuple[fault_registry.Fault, ...]:
    """The faults whose tests run; all if none of them does, as when only a test of Roles was asked for."""
    mine = [item for item in request.session.items if item.path.parent == Path(__file__).parent]
    tests = [item for item in mine if isinstance(item, pytest.Function) and item.originalname == CATCHING]
    names = {str(item.callspec.params["name"]) for item in tests}
    return tuple(fault for fault in fault_registry.faults() if not names or fault.name in names)


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory, chosen: tuple[fault_registry.Fault, ...]) -> Iterator[Sweeps]:
    """The sweep of the chosen faults with these needs in these stages.

    Each is run once, in clusters for all sweeps of these stages.
    """
    done: dict[tuple[str, tuple[str, ...]], Swept] = {}
    clusters: dict[tuple[str, ...], FaultSweeps] = {}

    def run(needs: str, stages: tuple[str, ...]) -> Swept:
        if stages not in clusters:
            while clusters:
                clusters.popitem()[1].close()
            clusters[stages] = FaultSweeps(tmp_path_factory.mktemp("sweep"), RehearsalOptions(delay_scale=DELAY_SCALE))
        if (needs, stages) not in done:
            done[needs, stages] = _sweep(clusters[stages], needs, stages, chosen)
        return done[needs, stages]

    yield run
    for idle in clusters.values():
        idle.close()


def _sweep(sweeps: FaultSweeps, needs: str, stages: tuple[str, ...], chosen: Sequence[fault_registry.Fault]) -> Swept:
    wanted = [fault for fault in chosen if fault.stage in stages and needed(fault) == needs]
    judged = [stage for stage in stages if stage_needs(stage) == needs]
    until = max((*(fault.stage for fault in wanted), *judged), key=RUNNING_ORDER.index)
    names = [fault.name for fault in wanted] or ["none"]
    results = list(sweeps.sweep(spec_for(needs), names, until, ends_healthy=until in judged))
    asked = frozenset[RequestKind]().union(*(result.asked for result in results))
    rendered = render(compile_plan(spec_for(needs)), bringup.build).target_rbac
    return Swept({result.fault or f"healthy {result.stage}": result for result in results}, asking.refused(asked, rendered))


@pytest.fixture(scope="session")
def refused_in(swept: Sweeps, chosen: tuple[fault_registry.Fault, ...]) -> Callable[[tuple[str, ...]], dict[str, list[str]]]:
    """A function that returns what the sweeps of some stages asked in vain, by the needs of the chosen faults."""

    def find(stages: tuple[str, ...]) -> dict[str, list[str]]:
        return {
            needs: swept(needs, stages).refused for needs in sorted({needed(fault) for fault in chosen if fault.stage in stages})
        }

    return find


@pytest.fixture(scope="session")
def catch_of(swept: Sweeps) -> Callable[[str, tuple[str, ...]], FaultResult]:
    """A function that returns the result of a fault, or of `healthy STAGE`, from the sweep of some stages."""

    def find(name: str, stages: tuple[str, ...]) -> FaultResult:
        stage = name.removeprefix("healthy ")
        needs = stage_needs(stage) if name != stage else needed(fault_registry.find_fault(name))
        return swept(needs, stages).catches[name]

    return find


@pytest.fixture
def whole_catch() -> Callable[[fault_registry.Fault, Path], FaultResult]:
    """A function that rehearses a whole bring-up with a fault in force from its start, and returns the result."""
    return lambda fault, folder: rehearse_with_fault(spec_for(needed(fault)), fault, folder)


@pytest.fixture
def healthy() -> Callable[[int, Path], list[str]]:
    """The false alarms of a rehearsal without faults whose delays are drawn from a seed."""

    def run(seed: int, folder: Path) -> list[str]:
        print(f"seed {seed}")
        caught = sweep_faults(spec_for(""), folder, RehearsalOptions(seed=seed, jitter=1.0), ["none"])
        return [catch.problem for catch in caught if catch.problem]

    return run
