"""Every fault is caught by the gate it names, from a snapshot just before its stage; every healthy stage passes between them."""

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from workflows import examples
from workflows.rehearsal.faults import registry
from workflows.rehearsal.rehearse import Options
from workflows.rehearsal.sweep import Catch, sweep
from workflows.spec import ClusterSpec, load
from workflows.stages import ORDER

EXAMPLE = examples.path("h200-16").read_text()
SHARED = {
    "sharing.mode=time_slicing": "sharing: {mode: time_slicing, replicas: 4}\n",
    "sharing.mode=mig": "sharing: {mode: mig, profile: 1g.18gb}\n",
}
"""Specs that faults need beside the example, by what they need."""

HALVES = (ORDER[:4], ORDER[4:])
Sweep = Callable[[str, tuple[str, ...]], dict[str, Catch]]


@functools.cache
def spec_for(needs: str) -> ClusterSpec:
    return load(EXAMPLE + SHARED.get(needs, ""))


def needed(fault: registry.Fault) -> str:
    """What the spec of this fault's sweep needs beside the example."""
    return "" if fault.fits(spec_for("")) else fault.needs


def cases(stages: tuple[str, ...]) -> list[registry.Fault]:
    return [fault for fault in registry.faults() if fault.stage in stages]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Sweeps once per spec and half of the stages; catches by fault name, or by `healthy STAGE`."""
    done: dict[tuple[str, tuple[str, ...]], dict[str, Catch]] = {}

    def run(needs: str, stages: tuple[str, ...]) -> dict[str, Catch]:
        if (needs, stages) not in done:
            names = [fault.name for fault in cases(stages) if needed(fault) == needs]
            until = (
                stages[-1]
                if not needs
                else max((fault.stage for fault in cases(stages) if needed(fault) == needs), key=ORDER.index)
            )
            found = sweep(spec_for(needs), tmp_path_factory.mktemp("sweep"), Options(), names, until)
            done[needs, stages] = {catch.fault or f"healthy {catch.stage}": catch for catch in found}
        return done[needs, stages]

    return run


def check(catch: Catch) -> None:
    assert not catch.problem, catch.problem
    if catch.fault:
        assert catch.outcome.exit_code == 65


@pytest.mark.xdist_group("early faults")
@pytest.mark.parametrize("fault", cases(HALVES[0]), ids=lambda fault: fault.name)
def test_faults_of_the_first_stages(fault: registry.Fault, swept: Sweep) -> None:
    check(swept(needed(fault), HALVES[0])[fault.name])


@pytest.mark.xdist_group("early faults")
@pytest.mark.parametrize("stage", HALVES[0])
def test_no_false_alarm_between_the_first_faults(stage: str, swept: Sweep) -> None:
    check(swept("", HALVES[0])[f"healthy {stage}"])


@pytest.mark.xdist_group("late faults")
@pytest.mark.parametrize("fault", cases(HALVES[1]), ids=lambda fault: fault.name)
def test_faults_of_the_last_stages(fault: registry.Fault, swept: Sweep) -> None:
    check(swept(needed(fault), HALVES[1])[fault.name])


@pytest.mark.xdist_group("late faults")
@pytest.mark.parametrize("stage", HALVES[1])
def test_no_false_alarm_between_the_last_faults(stage: str, swept: Sweep) -> None:
    check(swept("", HALVES[1])[f"healthy {stage}"])


@pytest.mark.parametrize("stage", ORDER)
def test_each_stage_has_faults_and_the_false_greens_are_among_them(stage: str) -> None:
    assert len([fault for fault in registry.faults() if fault.stage == stage]) >= 2
    covered = {fault.false_green for fault in registry.faults()}
    assert {"0.1", "0.2", "0.6", "0.8", "0.9", "0.10"} <= covered


def test_a_wrong_name_proposes_the_nearest() -> None:
    with pytest.raises(registry.UnknownFault, match="did you mean"):
        registry.find("dns_brokn")


def _healthy(seed: int, folder: Path) -> None:
    print(f"seed {seed}")
    alarms = [catch.problem for catch in sweep(spec_for(""), folder, Options(seed=seed, jitter=1.0), ["none"]) if catch.problem]
    assert not alarms, f"seed {seed}: {alarms}"


@pytest.mark.parametrize("seed", [7, 1234])
def test_random_delays_raise_no_alarm(seed: int, tmp_path: Path) -> None:
    _healthy(seed, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_twenty_healthy_rehearsals_raise_no_alarm(seed: int, tmp_path: Path) -> None:
    _healthy(seed, tmp_path)
