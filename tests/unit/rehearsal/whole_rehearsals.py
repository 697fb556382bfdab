"""Rehearsals of whole bring-ups without delays and faults."""

import time
from pathlib import Path

from steps.clients.store import Store
from workflows import bringup
from workflows.engines.folders import RunFolder, StateFolder
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.rehearsal import approver
from workflows.rehearsal.rehearsal_run import RehearsalOptions, rehearse
from workflows.render.bundle import render
from workflows.spec import ClusterSpec


def refusals(spec: ClusterSpec, folder: Path, until: str = "") -> list[str]:
    """Rehearse a spec without delays and return what did not pass; print the seconds that it took."""
    began = time.monotonic()
    run = StateFolder(folder).run("r")
    plan = compile_plan(spec, until=until)
    options = RehearsalOptions(delay_scale=0.0)
    result = rehearse(run, plan, render(plan, bringup.build), options, [approver.approving_observer(run)])
    print(f"{spec.name}, {len(plan.hosts)} nodes until {plan.stages[-1].id}: {time.monotonic() - began:.1f} s")
    problems = list(_refused(plan, run))
    return problems or ([] if result.exit_code == 0 else [f"exit code {result.exit_code}"])


def _refused(plan: Plan, run: RunFolder) -> list[str]:
    for stage in plan.stages:
        records = Store(run.home.store).records(run.name, stage.id, "judge")
        verdict = records[0].verdict if records else None
        if verdict is None:
            return [f"{stage.id}: no verdict"]
        if not verdict.is_pass:
            return [f"{stage.id}: {verdict.gate}: {verdict.reason}"]
    return []
