"""Rehearses faults: each stage from a snapshot before it, once with each of its faults; or a whole bring-up with one all along."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from steps.clients.store import Store
from steps.contract.verdict import Verdict
from workflows import bringup
from workflows.engines.folders import Home, RunFolder
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.rehearsal import approver
from workflows.rehearsal.faults.registry import Fault, faults
from workflows.rehearsal.rehearse import Options, rehearse
from workflows.rehearsal.stand import Outcome, stand
from workflows.render.bundle import render
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


def whole(spec: ClusterSpec, fault: Fault, folder: Path) -> Catch:
    """One bring-up from bare machines to its end, with a fault in force from the start: the first gate that does not pass."""
    began = time.monotonic()
    plan = compile_plan(spec)
    run = Home(folder).run(fault.name.replace("_", "-"))
    result = rehearse(run, plan, render(plan, bringup.build), Options(faults=[fault.name]), [approver.opener(run)])
    stage, verdict = _first_refusal(plan, run)
    outcome = Outcome(stage=stage, verdict=verdict, exit_code=result.exit_code, seconds=time.monotonic() - began)
    return Catch(stage=stage, fault=fault.name, gate=fault.gate, outcome=outcome, problem=_missed(fault, outcome))


def _first_refusal(plan: Plan, run: RunFolder) -> tuple[str, Verdict | None]:
    """The first stage whose judge did not pass, with its verdict; else the last stage that was judged."""
    last: tuple[str, Verdict | None] = ("", None)
    for stage in plan.stages:
        records = Store(run.home.store).records(run.name, stage.id, "judge")
        verdict = records[0].verdict if records else None
        if verdict is None:
            break
        last = stage.id, verdict
        if not verdict.is_pass:
            break
    return last


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
