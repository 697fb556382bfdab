"""Runs on Argo: find one, read status and logs, cancel it, and do the work of an exit handler that did not finish."""

from dataclasses import dataclass
from typing import Any

import msgspec

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.runs import run_seal
from steps.contract.verdict import Status
from steps.errors import StepError
from steps.report import source
from steps.report.assembly import build
from steps.report.timeline import stamp
from workflows.app import kubeconfigs, name_checks
from workflows.app.run_options import LOCAL, RunLocation, UsageError
from workflows.app.runs import cancel_records, run_progress
from workflows.app.runs.screen import Screen
from workflows.engines import open_approvals
from workflows.engines.argo import approval_patches, cancellation, follower, logs, pull, run_memory, waits
from workflows.engines.argo.home import Home, NoWorkflow, StarterWorkflow, WorkflowGone
from workflows.engines.argo.workflow_objects import PIPELINE, Workflow, node_status
from workflows.engines.folders import RunFolder, StateFolder
from workflows.engines.local.result import RunNodeStatus

NEVER_BEGUN = "it ended before its first task, so it has no report"


@dataclass(frozen=True)
class ArgoRun:
    """A run on Argo, with the home cluster and the run's folder on this machine."""

    home: Home
    folder: RunFolder

    @property
    def name(self) -> str:
        """Return the name of the run, which is also the name of its Workflow."""
        return self.folder.name

    def workflow(self) -> Workflow:
        """Return the Workflow as it is now. Raises NoWorkflow."""
        workflow = self.home.workflow(self.name)
        self.home.check_ours(workflow)
        return workflow


def find(run: str, place: RunLocation) -> ArgoRun | None:
    """Return the run if it is on Argo, None for a run of this machine. Raises NoSuchRun, NoHomeCluster, NoWorkflow.

    The Workflow must exist unless this machine has a copy of the run's tasks.
    """
    away = locate(run, place)
    if away is None or (not place.is_named and run_memory.knows_tasks(away.folder)):
        return away
    return known(away.home, away.folder)


def locate(run: str, place: RunLocation) -> ArgoRun | None:
    """Return the run if it is on Argo, even if its Workflow is deleted; None for a run of this machine.

    The home cluster is asked only if no run is named, for the name of the newest one.
    """
    runs = StateFolder.of_environment()
    if not place.is_named:
        folder = runs.find(run)
        memory = run_memory.read(folder)
        if memory is None:
            return None
        if place.engine == LOCAL:
            raise UsageError(f"run {folder.name} is on Argo, in namespace {memory.where.namespace}: leave out --engine local")
        return ArgoRun(kubeconfigs.reached(memory.where), folder)
    name_checks.require(run)
    home = kubeconfigs.home(place.home_kubeconfig, place.home_context, place.namespace)
    return ArgoRun(home, runs.run(run if run not in ("", "last") else _newest(home)))


def known(home: Home, folder: RunFolder) -> ArgoRun:
    """Return a run that exists on Argo; copy its tasks to this machine and record where it is. Raises NoWorkflow."""
    away = ArgoRun(home, folder)
    pull.fetch_tasks(home, away.workflow(), folder)
    memory = run_memory.read(folder)
    if memory is None:
        run_memory.write(folder, run_memory.RunMemory(where=home.where))
    elif memory.where != home.where:
        run_memory.write(folder, msgspec.structs.replace(memory, where=home.where))
    return away


def reached(away: ArgoRun) -> Workflow:
    """Return the run's Workflow; if it is deleted, a stand-in through which the run's store can be read. Raises NoWorkflow."""
    try:
        return known(away.home, away.folder).workflow()
    except WorkflowGone as gone:
        return pull.without_workflow(away.home, gone, away.name)


def _newest(home: Home) -> str:
    workflows = home.ask(lambda kube: kube.list(home.workflows(), Workflow, labels=PIPELINE)) or ()
    if not workflows:
        raise NoWorkflow(f"namespace {home.namespace} of the home cluster has no run of ours")
    return max((workflow.metadata.creation_timestamp, workflow.metadata.name) for workflow in workflows)[1]


def status(away: ArgoRun) -> dict[str, Any]:
    """Return phase, stages so far, and what the run waits for with its start, in the same form as for local runs."""
    workflow = away.workflow()
    statuses = _statuses(workflow)
    open_waits = waits.find_waits(away.home, workflow)
    stages = follower.stages(list(run_progress.planned_tasks(away.folder)), statuses, away.name)
    # in a run that has ended, even before its first task, no stage is still to come
    stages = follower.ended_rows(stages) if workflow.finished else stages
    return {
        "run": away.name,
        "phase": workflow.status.phase or "Pending",
        "message": "; ".join(filter(None, (cancellation.end_message(workflow), objection(away, workflow)))),
        "progress": run_progress.progress(away.folder, statuses),
        "problems": list(waits.Watchdog(away.home).look(workflow)),
        "waiting": [_waiting(away, workflow, wait) for wait in open_waits],
        "stages": follower.with_reasons(stages, _verdicts(away.folder)),
    }


def objection(away: ArgoRun, workflow: Workflow) -> str:
    """Return why a run that Argo calls Succeeded has not passed by its evidence here; "" if it has, or if the evidence is not here.

    Argo's phase says only that pods ended well, so the evidence has the last word.
    """
    store = Store(away.folder.home.store)
    if workflow.status.phase != "Succeeded" or store.read(run_records.header_key(away.name)) is None:
        return ""
    if store.read(f"runs/{away.name}/{run_seal.FILE}") is None:
        return f"its evidence here is not complete: bringup watch {away.name}"
    report = build(source.read(store, away.name))
    return "" if report.status == Status.PASS else f"the evidence says {report.status}, and decides: {report.sentence}"


def _statuses(workflow: Workflow) -> list[RunNodeStatus]:
    nodes = workflow.nodes()
    return [node_status(node, nodes) for node in nodes.values()]


def _verdicts(folder: RunFolder) -> dict[str, tuple[str, str]]:
    """Return status and reason by stage, for stages whose verdict is in this machine's store."""
    store = Store(folder.home.store)
    if store.read(run_records.header_key(folder.name)) is None:
        return {}
    report = build(source.read(store, folder.name))
    return {stage.id: (stage.status, stage.reason) for stage in report.with_opening if stage.judged}


def _waiting(away: ArgoRun, workflow: Workflow, wait: waits.Wait) -> dict[str, str]:
    row = {"for": wait.sentence, "since": stamp(wait.since), "how": ""}
    if wait.kind != waits.APPROVAL:
        return row
    node = wait.node.removeprefix(f"{away.name}.")
    try:
        # the evidence is read from the store now, and this machine then counts it as shown
        (open_approval,) = approval_patches.waiting_approvals(away.home, workflow, away.folder, [node])
        open_approvals.remember(away.folder, [open_approval])
    except (StepError, NoWorkflow) as error:
        unknown = dict.fromkeys(("stage", "about", "evidence", "approvers"), "")
        return {**row, **unknown, "how": f"its evidence cannot be read now: {error}"}
    return row | open_approval.row(away.home.namespace)


def read_logs(away: ArgoRun, task: str) -> list[tuple[str, str]]:
    """Return (name, text) of the logs of tasks named like `task`; of a schedule's Workflow that only starts runs, all logs."""
    try:
        return logs.logs(away.home, reached(away), away.folder, task)
    except StarterWorkflow:
        return logs.starter_logs(away.home, away.home.workflow(away.name))


def is_over(away: ArgoRun) -> bool:
    """Return True if the run has ended, or if its Workflow is deleted."""
    return reached(away).finished


def nodes(away: ArgoRun) -> list[RunNodeStatus]:
    """Return the state of all Argo nodes (pods, waits, groups of them) of the run."""
    return _statuses(reached(away))


def cancel(screen: Screen, away: ArgoRun, *, now: bool) -> None:
    """Cancel the run, record who did, and print it; with `now` the exit handler does not run."""
    keep = cancellation.cancel(away.home, away.name, cancel_records.by_me(), now=now)
    then = f"; if it ends without report and seal: bringup sweep {away.name}" if cancellation.has_begun(away.workflow()) else ""
    screen.lines([f"{away.name} is being cancelled{then}"])
    cancel_records.keep_on_argo(screen, keep)


def sweep(away: ArgoRun) -> str:
    """Finish a run whose exit handler failed: write report and seal, unlock the target, fetch the evidence; return a sentence.

    For a sealed run only the evidence is fetched; for a run that ended before its first task nothing is done.
    """
    workflow = away.workflow()
    if cancellation.was_never_begun(workflow):
        return f"{away.name}: {NEVER_BEGUN}, nor holds a target"
    pull.pull(away.home, workflow, away.folder)
    if Store(away.folder.home.store).read(f"runs/{away.name}/{run_seal.FILE}") is not None:
        return f"{away.name} was reported and sealed already"
    cancellation.sweep(away.home, workflow)
    pull.pull(away.home, workflow, away.folder)
    return f"{away.name} was swept: reported, sealed, its target given back"
