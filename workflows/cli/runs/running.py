"""Shared code of the commands that start or continue a local run: prepare it, show it, conclude it."""

from collections.abc import Mapping, Sequence
from functools import partial

from steps.clients.store import Store
from steps.contract import run
from steps.contract.operation import BRINGUP, Operation
from steps.contract.verdict import Status
from workflows import bringup
from workflows.cli import output
from workflows.cli.runs import cancelling, live, planned
from workflows.cli.specs import compiling
from workflows.engines import open_approvals
from workflows.engines.folders import RunFolder, StateFolder, result_paths
from workflows.engines.local.result import RunResult, read_status
from workflows.plan import show
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render.bundle import Bundle
from workflows.spec import ClusterSpec


def prepare(spec: ClusterSpec, only: Sequence[str], until: str, operation: Operation = BRINGUP) -> tuple[Plan, Bundle]:
    """Plan, render and lint a bring-up, or a narrower operation."""
    plan = compile_plan(spec, only=only, until=until, operation=operation)
    return plan, compiling.rendered(plan, bringup.build)


class NotReusable(ValueError):
    """Error for a run to reuse that does not exist, or is about another cluster."""

    hint = "see `bringup status` for runs of this machine; without --reuse everything is proven anew"


def check_reuse(home: StateFolder, plan: Plan, earlier: str) -> None:
    """Raise NotReusable if a run of this plan on real hosts cannot reuse the earlier one; the run itself checks again."""
    if earlier == "none":
        return
    read = Store(home.store).read
    problem = run.why_not_reused(earlier, read, cluster=plan.name, uid=plan.target_uid, simulated=False)
    if problem:
        raise NotReusable(problem)
    if note := run.unreached(earlier, read):
        output.lines([note])


def continues(earlier: str, *, proved: bool) -> str:
    """Return the sentence about a new run that continues an ended one."""
    if not proved:
        return f"goes on where {earlier} ended, which was before it began: nothing of it is reused"
    return f"goes on where {earlier} ended; what that proved and still holds is not done again"


def shown(plan: Plan, folder: RunFolder) -> live.View:
    """Return the live view of a run that is about to start."""
    console = output.console()
    console.print(f"run {folder.name}: {show.size(plan)}, plan {plan.digest[:19]}")
    tasks = {stage.id: [step.name for step in stage.steps] for stage in plan.stages}
    return live.View(_progress(folder, tasks), console, partial(cancelling.by_signal, folder))


def _progress(folder: RunFolder, tasks: Mapping[str, Sequence[str]]) -> live.Progress:
    return live.Progress(tasks, folder.name, Store(folder.home.store), lambda node: open_approvals.answer_command(folder, node)[1])


def shown_again(folder: RunFolder) -> live.View:
    """Return the live view of a run that goes on, with the state from its journal; the spec may have changed since its plan was
    made.
    """
    stages = planned.tasks(folder)
    progress = _progress(folder, stages)
    console = output.console()
    taken = [(node, progress.take(node)) for node in read_status(folder.engine).nodes]
    done = sum(row.status == Status.PASS.value for row in progress.rows.values())
    console.print(f"run {folder.name} goes on: {done} of {len(stages)} stages have passed")
    for waits in (lines for node, lines in taken if node.type == "Suspend" and node.finished is None):
        output.lines(waits)
    return live.View(progress, console, partial(cancelling.by_signal, folder))


def shown_anew(folder: RunFolder, said: str, note: str) -> live.View:
    """Return the live view of a run that starts with an earlier run's inputs; `said` is printed after its name."""
    console = output.console()
    console.print(f"run {folder.name}: {said}")
    output.lines([note] if note else [])
    return live.View(_progress(folder, planned.tasks(folder)), console, partial(cancelling.by_signal, folder))


def conclude(folder: RunFolder, result: RunResult) -> int:
    """Print the acceptance report and where it lies; return the run's exit code."""
    report = folder.stored / "report" / "report.txt"
    output.lines(
        [
            "",
            report.read_text().rstrip()
            if report.exists()
            else f"no report was written: {result.phase} {cancelling.told(folder, result.message)}",
        ]
    )
    output.lines(["", *result_paths(folder)])
    if (folder.stored / "secrets").is_dir():
        hand_out = f"bringup report {folder.name} --out FOLDER/"
        output.lines(
            [f"secrets  {folder.stored / 'secrets'} opens the cluster: keep it here; {hand_out} copies what others may have"]
        )
    return result.exit_code
