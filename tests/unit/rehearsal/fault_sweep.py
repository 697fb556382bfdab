"""Rehearsals of many faults: each stage from a snapshot with each of its faults, or a whole bring-up with one fault."""

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from steps.clients.store import Store
from steps.contract.verdict import Verdict
from tests.unit.rehearsal.stage_bench import StageOutcome, stage_bench
from workflows import bringup
from workflows.engines.folders import RunFolder, StateFolder
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.rehearsal import approver
from workflows.rehearsal.faults.fault_registry import Fault, faults
from workflows.rehearsal.rehearsal_run import RehearsalOptions, rehearse
from workflows.render.bundle import render
from workflows.spec import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class FaultResult:
    """The result of one fault, or of a healthy stage (empty `fault`). `problem` is empty if the result is as expected."""

    stage: str
    fault: str
    gate: str
    outcome: StageOutcome
    problem: str


def sweep_faults(
    spec: ClusterSpec, folder: Path, options: RehearsalOptions | None = None, only: Sequence[str] = (), until: str = ""
) -> Iterator[FaultResult]:
    """Yield the result of every fault of every planned stage in order, and of each stage without a fault.

    `only` limits the sweep to named faults, `until` names the last stage.
    """
    with stage_bench(spec, folder, options) as bench:
        for stage in compile_plan(spec, until=until).stages:
            before = bench.snapshot()
            for fault in faults():
                if fault.stage == stage.id and fault.fits(spec) and (not only or fault.name in only):
                    bench.restore(before, [fault.name])
                    outcome = bench.run(stage.id)
                    yield FaultResult(
                        stage=stage.id, fault=fault.name, gate=fault.gate, outcome=outcome, problem=missed(fault, outcome)
                    )
            bench.restore(before)
            healthy = bench.run(stage.id)
            yield FaultResult(stage=stage.id, fault="", gate="", outcome=healthy, problem=_alarm(healthy))


def rehearse_with_fault(spec: ClusterSpec, fault: Fault, folder: Path) -> FaultResult:
    """Rehearse a whole bring-up with a fault in force from the start; the result is that of the first gate that does not pass."""
    began = time.monotonic()
    plan = compile_plan(spec)
    run = StateFolder(folder).run(fault.name.replace("_", "-"))
    result = rehearse(
        run, plan, render(plan, bringup.build), RehearsalOptions(faults=[fault.name]), [approver.approving_observer(run)]
    )
    stage, verdict = _first_refusal(plan, run)
    outcome = StageOutcome(stage=stage, verdict=verdict, exit_code=result.exit_code, seconds=time.monotonic() - began)
    return FaultResult(stage=stage, fault=fault.name, gate=fault.gate, outcome=outcome, problem=missed(fault, outcome))


def _first_refusal(plan: Plan, run: RunFolder) -> tuple[str, Verdict | None]:
    """Return the first stage whose judge did not pass, with its verdict; otherwise the last stage that was judged."""
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


def missed(fault: Fault, outcome: StageOutcome) -> str:
    """Return why the result of a fault is not as expected; empty if the named gate caught it with its cause."""
    verdict = outcome.verdict
    if verdict is None:
        return f"{fault.gate} should have caught it, but the judge left no record"
    if verdict.is_pass:
        return f"{fault.gate} should have caught it, but the stage passed: {verdict.reason}"
    if verdict.gate != fault.gate:
        return f"{fault.gate} should have caught it, but {verdict.gate} did: {verdict.reason}"
    if not (verdict.seen and verdict.expected and verdict.next_step):
        return f"{verdict.gate} caught it without saying what was seen, expected, and what to do next: {verdict.reason}"
    if not re.search(fault.cause, verdict.reason):
        return f"{verdict.gate} caught it for another cause than {fault.cause!r}: {verdict.reason}"
    return ""


def _alarm(outcome: StageOutcome) -> str:
    if outcome.verdict is None:
        return "the healthy stage left no record of its judge"
    return "" if outcome.verdict.is_pass else f"false alarm: {outcome.verdict.gate}: {outcome.verdict.reason}"
