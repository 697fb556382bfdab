"""Rehearses every fault: each stage from a snapshot before it, once with each of its faults, then healthy to reach the next."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from workflows.plan.compiler import compile_plan
from workflows.rehearsal.faults.registry import Fault, faults
from workflows.rehearsal.rehearse import Options
from workflows.rehearsal.stand import Outcome, stand
from workflows.spec import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class Catch:
    """What became of one fault, or (without one) of a healthy stage. `problem` is empty when it is as it must be."""

    stage: str
    fault: str
    gate: str
    outcome: Outcome
    problem: str


def sweep(
    spec: ClusterSpec, folder: Path, options: Options | None = None, only: Sequence[str] = (), until: str = ""
) -> Iterator[Catch]:
    """Every fault of every planned stage in running order, and each stage healthy. `only` names faults, `until` the last stage."""
    with stand(spec, folder, options) as place:
        for stage in compile_plan(spec, until=until).stages:
            before = place.snapshot()
            for fault in faults():
                if fault.stage == stage.id and fault.fits(spec) and (not only or fault.name in only):
                    place.restore(before, [fault.name])
                    outcome = place.run(stage.id)
                    yield Catch(stage=stage.id, fault=fault.name, gate=fault.gate, outcome=outcome, problem=_missed(fault, outcome))
            place.restore(before)
            healthy = place.run(stage.id)
            yield Catch(stage=stage.id, fault="", gate="", outcome=healthy, problem=_alarm(healthy))


def _missed(fault: Fault, outcome: Outcome) -> str:
    verdict = outcome.verdict
    if verdict is None:
        return f"{fault.gate} should have caught it, but the judge left no record"
    if verdict.is_pass:
        return f"{fault.gate} should have caught it, but the stage passed: {verdict.reason}"
    if verdict.gate != fault.gate:
        return f"{fault.gate} should have caught it, but {verdict.gate} did: {verdict.reason}"
    if not (verdict.seen and verdict.expected and verdict.next_step):
        return f"{verdict.gate} caught it without saying what was seen, expected, and what to do next: {verdict.reason}"
    return ""


def _alarm(outcome: Outcome) -> str:
    if outcome.verdict is None:
        return "the healthy stage left no record of its judge"
    return "" if outcome.verdict.is_pass else f"false alarm: {outcome.verdict.gate}: {outcome.verdict.reason}"
