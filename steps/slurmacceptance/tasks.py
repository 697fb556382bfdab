"""Entry points of the acceptance of a Slurm cluster: verb `build`, called through `steps.runtime.product_tasks`."""

import shutil
import signal
from typing import NoReturn

import msgspec
from msgspec import Struct

from steps.contract.exit import ExitCode
from steps.errors import BadTask
from steps.runtime import gating
from steps.runtime.context import Context
from steps.slurmacceptance import control_survey, leftover_jobs, pair_rounds, task_scope
from steps.slurmacceptance.job_checks import JobChecks
from steps.slurmacceptance.task_scope import ScopeArguments
from steps.stages.slurm_acceptance.contract import BANDWIDTH, CONTROL, JOBS


def build(context: Context) -> ExitCode:
    """Look at the cluster or run its jobs, judge that and store the record. Raises BadTask for an unknown task.

    A task that does not pass ends with GATE_FAILED, so that later ones, which need its result, are left out.
    """
    scope = context.arguments(ScopeArguments)
    nodes = context.expected_nodes("all")
    leftover_jobs.clear(context, resume=scope.allow_drain)
    task_scope.remove_abandoned(context, scope)
    gate = gating.find(scope.gate)
    seen = _seen(context, scope, nodes)
    verdict = gate.decide(seen, gate.expect(context.task.expectations, nodes))
    context.record(verdict, observation=msgspec.to_builtins(seen))
    context.output("verdict", verdict.status.value)
    return ExitCode.OK if verdict.is_pass else ExitCode.GATE_FAILED


def publish(context: Context) -> ExitCode:
    """Refuse: an acceptance publishes nothing. Raises BadTask."""
    raise BadTask(f"stage {context.task.stage} publishes nothing", hint="render with the version that runs the steps")


def _stop(number: int, _: object) -> NoReturn:
    """End this task in order when the engine stops it, so that its jobs are cancelled."""
    raise SystemExit(128 + number)


def _seen(context: Context, scope: ScopeArguments, nodes: tuple[str, ...]) -> Struct:
    if context.task.name == CONTROL:
        return control_survey.control()
    if context.task.name not in (JOBS, BANDWIDTH):
        raise BadTask(f"task {context.task.name!r} of an acceptance is not one of {CONTROL}, {JOBS}, {BANDWIDTH}")
    place = task_scope.place(context, scope)
    remaining: tuple[str, ...] | None = None
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        if context.task.name == BANDWIDTH:
            return pair_rounds.localise(context, scope, place, nodes)
        jobs = JobChecks(context, scope, place, nodes).run()
    finally:
        # also after an error and when the engine stops this task; after kill -9 the next start does it
        signal.signal(signal.SIGTERM, before)
        remaining = leftover_jobs.finish(context)
        shutil.rmtree(place.folder, ignore_errors=True)
    return msgspec.structs.replace(jobs, remaining=remaining)
