"""Two stands side by side: the same stages with the same faults, each from a snapshot before its stage, and what must be equal."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.unit.rehearsal.faults.specs import needed
from tests.unit.rehearsal.stage_bench import StageBench, StageOutcome
from workflows.rehearsal.faults import fault_registry
from workflows.stages import ORDER

Pair = tuple[StageOutcome, StageOutcome]


@dataclass(frozen=True)
class Case:
    """One stage with one fault; without a fault the name is that of the stage."""

    stage: str
    fault: str = ""

    @property
    def name(self) -> str:
        return self.fault or f"healthy-{self.stage}"


def walked(places: tuple[StageBench, StageBench], needs: str, wanted: Sequence[Case]) -> dict[str, Pair]:
    """Both stands through all that is wanted of this need, at the same time."""
    with ThreadPoolExecutor(len(places)) as sides:
        first, second = sides.map(lambda place: _walk(place, needs, wanted), places)
    return {name: (first[name], second[name]) for name in first}


def _walk(place: StageBench, needs: str, wanted: Sequence[Case]) -> dict[str, StageOutcome]:
    """From stage to stage: each wanted fault from a snapshot before its stage, then healthy to reach the next."""
    faults = [fault for fault in fault_registry.faults() if needed(fault) == needs and Case(fault.stage, fault.name) in wanted]
    last = max(ORDER.index(case.stage) for case in wanted if not needs or case.fault in {fault.name for fault in faults})
    done: dict[str, StageOutcome] = {}
    for stage in ORDER[: last + 1]:
        before, mine = place.snapshot(), [fault.name for fault in faults if fault.stage == stage]
        for name in mine:
            place.restore(before, [name])
            done[name] = place.run(stage)
        if mine:
            place.restore(before)
        done[f"healthy-{stage}"] = place.run(stage)
    return done


def shape(outcome: StageOutcome) -> dict[str, object]:
    """Return the parts of an outcome in which two runs must agree: all but times and wording."""
    verdict = outcome.verdict
    assert verdict is not None, "the judge left no record"
    nodes = {row.node: (row.status, row.failure_class) for row in verdict.nodes}
    return {
        "exit code": outcome.exit_code,
        "gate": verdict.gate,
        "status": verdict.status,
        "class": verdict.failure_class,
        "nodes": nodes,
    }
