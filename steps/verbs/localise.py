"""Verb localise: run rounds of tests between nodes until the node, rail, pair or path at fault is named, or all are cleared."""

import functools
from collections import Counter
from typing import Any

import msgspec
from msgspec import Struct

from steps.contract.canonical import canonical
from steps.contract.exit import ExitCode
from steps.contract.fleet import LEAF
from steps.contract.task import Task, TaskError, decode, file_name
from steps.contract.verdict import FailureClass, Status, Verdict, passed
from steps.errors import BadTask, StepError
from steps.localise import rounds
from steps.localise.contract import FabricMap, History, Policy, Round
from steps.localise.rounds import HistoryStudy
from steps.runtime import gating, localisation, target
from steps.runtime.context import Context
from steps.runtime.fabric_jobs import FabricJobs, FabricTemplates, group_template
from steps.stages.validation.contract import LocaliseExpectation, LocaliseObservation, PlayedRound

_OF_PARTS = (FailureClass.PERFORMANCE, FailureClass.HARDWARE, FailureClass.RUNTIME)
"""Classes of failures that a single node, rail, pair or path can cause."""

MOST_SHOWN = 60
"""So many of the last rounds are in the observation, which is part of the run's evidence."""

ONE_LEAF = "fabric"
"""Name of the only leaf where the fleet names no leaves, so that no path can be told from a pair."""


class Arguments(Struct, frozen=True, kw_only=True):
    """Arguments of verb localise.

    `templates` are the objects of tests between nodes; groups also run the MPIJob of the stage's task `group`. Nodes of `select`
    take part that passed the stage's `after` tasks, at least two. `unless` names a task of the stage: if it passed, nothing is to
    be localised and nothing runs; empty: it always runs. `policy` is that of the localisation.
    """

    gate: str
    templates: FabricTemplates
    group: str
    select: str = "gpu"
    after: tuple[str, ...] = ()
    unless: str = ""
    policy: Policy = Policy()


class _KeptLocalisation(Struct, frozen=True):
    """The state of a localisation in the store: its history, and the least bandwidth of each rail of each node so far."""

    history: History
    rails: dict[str, tuple[float | None, ...]] = {}


def history_key(run: str, stage: str, task: str) -> str:
    """Return the store key of a localisation's history."""
    return f"runs/{run}/localise/{stage}.{task}.json"


def run(context: Context) -> ExitCode:
    """Run the localisation. Its verdict is data for the judge, so the task ends with 0 once the record is written."""
    arguments = context.arguments(Arguments)
    nodes = _nodes(context, arguments)
    if arguments.unless and _passed(context, arguments.unless):
        reason = f"not run at this level: {arguments.unless} passed, so there is no fault to localise"
        return _ended(context, passed(arguments.gate, reason))
    if named := _named_cause(context, arguments.group):
        reason = f"not run: {arguments.group} failed by a cause that it names, of class {named}"
        return _ended(context, Verdict(gate=arguments.gate, status=Status.SKIPPED, reason=reason))
    if len(nodes) < 2:
        reason = f"not run: {len(nodes)} nodes passed the gates before it, 2 are needed"
        return _ended(context, Verdict(gate=arguments.gate, status=Status.SKIPPED, reason=reason))
    target.claim(context)
    gate = gating.find(arguments.gate)
    want: LocaliseExpectation = gate.expect(context.task.expectations, nodes)
    group = group_template(_other_task(context, arguments.group).arguments.get("objects", ()), arguments.templates.check)
    jobs = FabricJobs(context, arguments.templates, group, want)
    begun = _begun(context, arguments, nodes, want)
    jobs.rails = begun.rails
    clock = context.clock
    deadline = clock.now() + context.task.deadline_seconds
    jobs.prepare()
    try:
        keep = functools.partial(_keep, context, jobs=jobs)
        study = localisation.drive(begun.history, jobs, keep, lambda: clock.now() >= deadline)
        seen = _observation(study, jobs)
        return _ended(context, gate.decide(seen, want), seen)
    finally:
        _clean(context, jobs)


def _ended(context: Context, verdict: Verdict, seen: Any = None) -> ExitCode:
    context.record(verdict, observation=seen)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK


def _other_task(context: Context, name: str) -> Task:
    """Return another task of this stage. Raises BadTask if it cannot be read."""
    path = context.environment.tasks / file_name(context.task.stage, name)
    try:
        return decode(path.read_bytes())
    except (OSError, TaskError) as error:
        raise BadTask(f"{path}: {error}") from error


def _nodes(context: Context, arguments: Arguments) -> tuple[str, ...]:
    bad = context.not_passed(arguments.after)
    return tuple(name for name in context.expected_nodes(arguments.select) if name not in bad)


def _passed(context: Context, task: str) -> bool:
    records = context.store.records(context.environment.run, context.task.stage, task)
    return bool(records) and all(record.verdict is not None and record.verdict.is_pass for record in records[-1:])


def _named_cause(context: Context, task: str) -> str:
    """Return the class of a failure that no part of the fabric causes: a wrong image or a missing resource fails every test."""
    last = context.store.records(context.environment.run, context.task.stage, task)[-1:]
    kinds = [record.verdict.failure_class for record in last if record.verdict and record.verdict.status is Status.FAIL]
    return next((kind.value for kind in kinds if kind is not None and kind not in _OF_PARTS), "")


def _begun(context: Context, arguments: Arguments, nodes: tuple[str, ...], want: LocaliseExpectation) -> _KeptLocalisation:
    """Return what an earlier attempt of this task kept, else a new history. A history about other nodes is begun anew."""
    leaves = {host.name: host.variables.get(LEAF, ONE_LEAF) for host in context.fleet.hosts(arguments.select)}
    layout = FabricMap(nodes=nodes, leaves=tuple(leaves[node] for node in nodes), rails=want.rails)
    fresh = rounds.begin(layout, arguments.policy)
    data = context.store.read(history_key(context.environment.run, context.task.stage, context.task.name))
    kept = msgspec.json.decode(data, type=_KeptLocalisation) if data else None
    if kept is None or (kept.history.map, kept.history.policy) != (fresh.map, fresh.policy):
        return _KeptLocalisation(fresh)
    return kept


def _keep(context: Context, history: History, jobs: FabricJobs) -> None:
    last = history.rounds[-1]
    context.say(f"round {last.number}: {last.purpose or 'tests'}, {len(last.tests)} tests")
    state = _KeptLocalisation(history, jobs.rails)
    context.store.replace(history_key(context.environment.run, context.task.stage, context.task.name), canonical(state))


def _observation(study: HistoryStudy, jobs: FabricJobs) -> LocaliseObservation:
    history = study.history
    diagnosis = study.verdict if history.rounds else None
    shown = {test for suspect in diagnosis.suspects for test in suspect.evidence} if diagnosis else set()
    figures = {
        outcome.test: outcome.figure
        for played in history.rounds
        for outcome in played.outcomes
        if outcome.test in shown and outcome.result == "fail" and outcome.figure is not None
    }
    played = tuple(_summary(part) for part in history.rounds[-MOST_SHOWN:])
    return LocaliseObservation(diagnosis=diagnosis, rounds=played, rails=jobs.rails, figures=figures, problem=jobs.problem)


def _summary(played: Round) -> PlayedRound:
    results = Counter(outcome.result for outcome in played.outcomes)
    passed_tests, failed = results["pass"], results["fail"]
    unknown = len(played.tests) - passed_tests - failed
    return PlayedRound(number=played.number, purpose=played.purpose[:160], passed=passed_tests, failed=failed, unknown=unknown)


def _clean(context: Context, jobs: FabricJobs) -> None:
    """Remove what the rounds left; a problem is logged, because the verdict is recorded already."""
    try:
        remaining = jobs.clean()
    except StepError as error:
        remaining = f"the API server did not take the deletion: {error}"
    if remaining:
        context.say(f"not cleaned up: {remaining}")
