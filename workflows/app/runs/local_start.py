"""Runs of the embedded engine: start one, resume one, show it while it runs, and print its report."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.runs.operation import BRINGUP, Operation, OperationKind
from steps.contract.verdict import Status
from workflows import bringup
from workflows.app.run_options import Pipeline, Wish
from workflows.app.runs import cancel_records, seal_traces, superseded_builds
from workflows.app.runs.run_progress import Progress, planned_graphs, planned_tasks
from workflows.app.runs.screen import RunView, Screen
from workflows.app.specs import manifests, revisions, sources
from workflows.engines import approval_announcer, launch, locks, open_approvals, run_inputs
from workflows.engines.argo.workflow_objects import CLUSTER
from workflows.engines.folders import RunFolder, StateFolder, new_run_name, result_paths
from workflows.engines.local.executor import StartProcess, start_process
from workflows.engines.local.result import NodeNews, Observer, RunNodeStatus, RunResult, read_status
from workflows.plan import show
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.rehearsal.restart import refuse_resuming, restart_command
from workflows.rehearsal.step_forks import StepForks
from workflows.render.bundle import Bundle
from workflows.spec import ClusterSpec

ANNOUNCE_FILE = "telling.json"
"""File beside a run's inputs with the commands that announce approvals, so that `resume` announces too."""
CLAIMS = "announced"


class NotReusable(ValueError):
    """Error for a run to reuse that does not exist, or is about another cluster."""

    hint = "see `bringup status` for runs of this machine; without --reuse everything is proven anew"


class CannotSweep(ValueError):
    """Error for a run that is not over, so that its report and seal would not be final."""


class Forgotten(ValueError):
    """Error for an ended run whose inputs are no longer complete, so that no new run can be made of them."""


def prepare(spec: ClusterSpec, only: Sequence[str], until: str, operation: Operation = BRINGUP) -> tuple[Plan, Bundle]:
    """Return plan and linted manifests of a bring-up, or of a narrower operation on a cluster."""
    plan = compile_plan(spec, only=only, until=until, operation=operation)
    return plan, manifests.rendered(plan, bringup.build)


def start(screen: Screen, spec: str, wish: Wish, pipeline: Pipeline, begun: Callable[[str], object]) -> tuple[str, int]:
    """Start a run on this machine and follow it; return its name and exit code.

    `begun` is called with the name before the first step.
    """
    path, loaded = pipeline.read(spec)
    plan = pipeline.plan(path, loaded, wish)
    bundle = manifests.rendered(plan, manifests.PIPELINES[pipeline.kind])
    home = StateFolder.of_environment()
    check_reuse(screen, home, plan, wish.reuse)
    folder = home.run(new_run_name(plan.name))
    if plan.starts and (plan.starts.schedule or plan.starts.events) and wish.operation.kind is OperationKind.BRINGUP:
        screen.lines(["the local engine has no scheduler: schedule and events of this spec act with --engine argo alone"])
    run_inputs.write(folder, plan, bundle, sources.beside(spec), os.environ)
    revisions.keep(folder, spec)
    keep_announce_commands(folder, loaded)
    if wish.supersede:
        superseded_builds.end_here(screen, home, bundle)
    begun(folder.name)
    view = new_view(screen, folder, plan)
    with (
        run_inputs.inputs_removed_if_busy(folder),
        announced(screen, folder) as announcing,
        view,
        _starting(folder, pipeline) as spawn,
    ):
        result = launch.start(folder, {}, announcing(view.observe), wish.reuse, spawn)
    return folder.name, conclude(screen, folder, result)


@contextmanager
def _starting(folder: RunFolder, pipeline: Pipeline) -> Iterator[StartProcess]:
    """Yield the function that starts the steps of a run: as new processes, or as forks for a pipeline that wants these."""
    if not pipeline.forks:
        yield start_process
        return
    with closing(StepForks(folder.inputs / "forks.log")) as forks:
        yield forks.start


def check_reuse(screen: Screen, home: StateFolder, plan: Plan, earlier: str) -> None:
    """Raise NotReusable if a run of this plan on real hosts cannot reuse run `earlier`; the run itself checks again."""
    if earlier == "none":
        return
    read = Store(home.store).read
    problem = run_records.reuse_obstacle(earlier, read, cluster=plan.name, uid=plan.target_uid, simulated=False)
    if problem:
        raise NotReusable(problem)
    if note := run_records.unreached_sentence(earlier, read):
        screen.lines([note])


def resume(screen: Screen, folder: RunFolder) -> int:
    """Continue an interrupted run by its journal, or start a new one after a run that has ended; return the exit code.

    Raises RunDriven, CannotResume for a rehearsal, and the errors of `_start_anew`.
    """
    locks.require_idle(folder)
    refuse_resuming(folder)
    engine = read_status(folder.engine)
    if engine.finished:
        return _start_anew(screen, folder)
    with announced(screen, folder, engine.gates) as announcing, _resumed_view(screen, folder) as view:
        result = launch.resume(folder, announcing(view.observe))
    return conclude(screen, folder, result)


def continues(earlier: str, *, proved: bool) -> str:
    """Return the sentence that a new run continues an ended one; `proved` says if there is evidence to reuse."""
    if not proved:
        return f"goes on where {earlier} ended, which was before it began: nothing of it is reused"
    return f"goes on where {earlier} ended; what that proved and still holds is not done again"


def _start_anew(screen: Screen, before: RunFolder) -> int:
    """Start a run with a copy of an ended run's inputs, reusing its evidence; return the exit code.

    Raises Forgotten and ClusterBusy.
    """
    template = _complete(before)
    read = Store(before.home.store).read
    began = read(run_records.header_key(before.name)) is not None
    folder = before.home.run(new_run_name(template["metadata"]["labels"][CLUSTER]))
    # the folder of secrets gets its mode before any secret is in it
    (folder.inputs / "secrets").mkdir(parents=True, mode=0o700)
    shutil.copytree(before.inputs, folder.inputs, dirs_exist_ok=True)
    note = run_records.unreached_sentence(before.name, read) if began else ""
    with run_inputs.inputs_removed_if_busy(folder), announced(screen, folder) as announcing:
        view = _view(screen, folder, _progress(folder, planned_tasks(folder), planned_graphs(folder)))
        view.say(f"run {folder.name}: {continues(before.name, proved=began)}")
        screen.lines([note] if note else [])
        with view:
            result = launch.start(folder, {}, announcing(view.observe), before.name if began else "none")
    return conclude(screen, folder, result)


def _complete(before: RunFolder) -> dict[str, Any]:
    """Return the template of an ended run's Workflow. Raises Forgotten if a file that its tasks read is missing."""
    manifest = before.inputs / run_inputs.MANIFEST
    _require(before, manifest)
    template: dict[str, Any] = msgspec.json.decode(manifest.read_bytes())["template"]
    tasks = before.inputs / "tasks" / run_records.PLAN_FILE
    for path in (tasks, before.inputs / "fleet", *(before.inputs / "secrets" / name for name in _secrets(template))):
        _require(before, path)
    return template


def _secrets(template: dict[str, Any]) -> Iterator[str]:
    """Yield the names of the secret files that the template's pods mount."""
    for volume in template["spec"].get("volumes", ()):
        for source in volume.get("projected", {}).get("sources", ()):
            yield from (item["path"] for item in source.get("secret", {}).get("items", ()))


def _require(before: RunFolder, path: Path) -> None:
    if not path.exists():
        again = f"start it again with `bringup run SPEC --reuse {before.name}`"
        raise Forgotten(f"run {before.name} has ended and its {path.relative_to(before.inputs)} is gone: {again}")


def new_view(screen: Screen, folder: RunFolder, plan: Plan) -> RunView:
    """Return the live view of a run that is about to start, after printing the run's name and size."""
    graphs = {(stage.id, step.name): len(step.graph) for stage in plan.stages for step in stage.steps if step.graph}
    view = _view(
        screen, folder, _progress(folder, {stage.id: [step.name for step in stage.steps] for stage in plan.stages}, graphs)
    )
    view.say(f"run {folder.name}: {show.size_text(plan)}, plan {plan.digest[:19]}")
    return view


def _resumed_view(screen: Screen, folder: RunFolder) -> RunView:
    """Return the live view of a resumed run, filled from its journal and its stored plan, because the spec may have changed."""
    stages = planned_tasks(folder)
    progress = _progress(folder, stages, planned_graphs(folder))
    taken = [(node, progress.take(node)) for node in read_status(folder.engine).nodes]
    done = sum(row.status == Status.PASS.value for row in progress.rows.values())
    view = _view(screen, folder, progress)
    view.say(f"run {folder.name} goes on: {done} of {len(stages)} stages have passed")
    for waits in (lines for node, lines in taken if node.type == "Suspend" and node.finished is None):
        screen.lines(waits)
    return view


def _progress(folder: RunFolder, tasks: dict[str, list[str]], graphs: Mapping[tuple[str, str], int]) -> Progress:
    store = Store(folder.home.store)
    return Progress(tasks, folder.name, store, lambda node: open_approvals.answer_command(folder, node)[1], graphs=graphs)


def _view(screen: Screen, folder: RunFolder, progress: Progress) -> RunView:
    def stopped() -> None:
        if cancel_records.by_signal(folder):
            then = restart_command(folder) or f"bringup resume {folder.name}"
            view.say(f"run {folder.name} ends: running steps are stopped, then report and seal are written (Ctrl-C again: at once)")
            view.say(f"to go on afterwards: {then}")

    view = screen.view(progress, stopped)
    return view


def conclude(screen: Screen, folder: RunFolder, result: RunResult) -> int:
    """Print the report of an ended run and the paths of its results; return the run's exit code."""
    if launch.must_close(result):
        screen.lines([f"run {folder.name} was ended at once: its report and seal are written now (Ctrl-C again: not even those)"])
        launch.close(folder, result.phase)
    report = folder.stored / "report" / "report.txt"
    unreported = f"no report was written: {result.phase} {cancel_records.told(folder, result.message)}"
    screen.lines(["", report.read_text().rstrip() if report.exists() else unreported])
    screen.lines(["", *result_paths(folder), *seal_traces.unsigned(folder)])
    if (folder.stored / "secrets").is_dir():
        hand_out = f"bringup report {folder.name} --out FOLDER/"
        screen.lines(
            [f"secrets  {folder.stored / 'secrets'} opens the cluster: keep it here; {hand_out} copies what others may have"]
        )
    return result.exit_code


def sweep(folder: RunFolder) -> str:
    """Write report and seal of a run of this machine that ended without them; return a sentence. Raises CannotSweep, RunDriven."""
    locks.require_idle(folder)
    engine = read_status(folder.engine)
    if not engine.finished:
        raise CannotSweep(
            f"run {folder.name} was interrupted, so it is not over: `bringup resume {folder.name}` brings it to its end"
        )
    is_sealed = launch.close(folder, engine.phase)
    return f"{folder.name} is reported and sealed" if is_sealed else f"{folder.name} ended before its first task: nothing to report"


def keep_announce_commands(folder: RunFolder, spec: ClusterSpec) -> None:
    """Write the spec's commands that announce approvals beside the inputs of a run that is about to start."""
    folder.inputs.mkdir(parents=True, exist_ok=True)
    (folder.inputs / ANNOUNCE_FILE).write_bytes(msgspec.json.encode(approval_announcer.announce_commands(spec)))


@contextmanager
def announced(screen: Screen, folder: RunFolder, waiting: Sequence[RunNodeStatus] = ()) -> Iterator[Callable[[Observer], Observer]]:
    """Yield a function that puts an announcer of approvals beside an observer.

    `waiting` are approvals that are open already; they are announced here, because the engine sends no news of them.
    """
    file = folder.inputs / ANNOUNCE_FILE
    commands = msgspec.json.decode(file.read_bytes(), type=dict[str, approval_announcer.AnnounceCommand]) if file.exists() else {}
    claim = approval_announcer.local_claim(folder.engine / CLAIMS)
    answer, about = partial(open_approvals.answer_command, folder), partial(open_approvals.changes, folder)
    announcer = approval_announcer.Announcer(folder.name, commands, claim, answer, lambda text: screen.lines([text]), about)
    with closing(announcer):
        for node in waiting:
            announcer.observe(NodeNews(node, ""))
        yield announcer.beside
