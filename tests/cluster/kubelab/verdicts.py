"""Two stands side by side: the same stages with the same faults, each from a snapshot before its stage, and what must be equal."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from workflows import examples
from workflows.rehearsal.faults import registry
from workflows.rehearsal.faults.registry import Fault
from workflows.rehearsal.stand import Outcome, Stand
from workflows.spec import ClusterSpec, load
from workflows.stages import ORDER

BESIDE = {
    "sharing.mode=time_slicing": "sharing: {mode: time_slicing, replicas: 4}\n",
    "sharing.mode=mig": "sharing: {mode: mig, profile: 1g.18gb}\n",
}
"""What a spec needs beside the example, by what faults need."""

Pair = tuple[Outcome, Outcome]


@dataclass(frozen=True)
class Case:
    """One stage with one fault; without a fault the name is that of the stage."""

    stage: str
    fault: str = ""

    @property
    def name(self) -> str:
        return self.fault or f"healthy-{self.stage}"


@functools.cache
def spec_for(needs: str) -> ClusterSpec:
    return load(examples.path("h200-16").read_text() + BESIDE.get(needs, ""))


def needed(fault: Fault) -> str:
    return "" if fault.fits(spec_for("")) else fault.needs


def walk(places: tuple[Stand, Stand], needs: str, wanted: Sequence[Case]) -> dict[str, Pair]:
    """Both stands from stage to stage: each wanted fault from a snapshot before its stage, then healthy to reach the next."""
    faults = {case.fault for case in wanted if case.fault and needed(registry.find(case.fault)) == needs}
    last = max(ORDER.index(case.stage) for case in wanted if not needs or case.fault in faults)
    done: dict[str, Pair] = {}
    for stage in ORDER[: last + 1]:
        before = [place.snapshot() for place in places]
        for name in [fault.name for fault in registry.faults() if fault.stage == stage and fault.name in faults]:
            for place, snapshot in zip(places, before, strict=True):
                place.restore(snapshot, [name])
            done[name] = (places[0].run(stage), places[1].run(stage))
            for place, snapshot in zip(places, before, strict=True):
                place.restore(snapshot)
        done[f"healthy-{stage}"] = (places[0].run(stage), places[1].run(stage))
    return done


def shape(outcome: Outcome) -> dict[str, object]:
    """What two runs must agree on: everything but times and wording."""
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
