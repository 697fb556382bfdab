"""Actions on a run on Argo: find it, show its status and logs, follow it, conclude it."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from typer import BadParameter

from steps import timeouts
from steps.clients.store import Store
from steps.contract import announcement, seal
from steps.contract import run as contract
from steps.contract.exit import ExitCode
from steps.contract.verdict import Status
from steps.errors import StepError, Unreachable
from steps.report import source, verify
from steps.report.build import build
from steps.report.timeline import stamp
from workflows.cli import kubeconfigs, naming, output
from workflows.cli.argo import listening
from workflows.cli.argo.options import LOCAL, Place
from workflows.cli.output import Format
from workflows.cli.runs import planned
from workflows.engines import approval_announcer, open_approvals
from workflows.engines.argo import approval_patches, cancellation, follower, logs, progress, pull, run_memory, waits
from workflows.engines.argo.home import Home, NoWorkflow, StarterWorkflow, WorkflowGone
from workflows.engines.argo.workflow_objects import PIPELINE, Workflow, node_status
from workflows.engines.folders import RunFolder, result_paths
from workflows.engines.folders import StateFolder as Runs
from workflows.engines.local.result import RunNodeStatus

NEVER_BEGUN = "it ended before its first task, so it has no report"


@dataclass(frozen=True)
class Away:
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


def find(run: str, place: Place) -> Away | None:
    """Return the run if it is on Argo, or None for a run of this machine. Raises NoSuchRun, NoHomeCluster, NoWorkflow."""
    away = locate(run, place)
    if away is None or (not place.is_named and run_memory.knows_tasks(away.folder)):
        return away
    return known(away.home, away.folder)


def locate(run: str, place: Place) -> Away | None:
    """Return the run if it is on Argo, without asking for its Workflow, which may be deleted; None for a run of this machine.

    Home is asked only for the name of the newest run, if none is given.
    """
    runs = Runs.of_environment()
    if not place.is_named:
        folder = runs.find(run)
        memory = run_memory.read(folder)
        if memory is None:
            return None
        if place.engine == LOCAL:
            raise BadParameter(f"run {folder.name} is on Argo, in namespace {memory.where.namespace}: leave out --engine local")
        return Away(kubeconfigs.reached(memory.where), folder)
    naming.require(run)
    home = kubeconfigs.home(place.home_kubeconfig, place.home_context, place.namespace)
    return Away(home, runs.run(run if run not in ("", "last") else _newest(home)))


def known(home: Home, folder: RunFolder) -> Away:
    """Return a run that exists on Argo, and record on this machine where it is. Raises NoWorkflow."""
    away = Away(home, folder)
    run_memory.fetch_tasks(home, away.workflow(), folder)
    memory = run_memory.read(folder)
    if memory is None:
        run_memory.write(folder, run_memory.RunMemory(where=home.where))
    elif memory.where != home.where:
        run_memory.write(folder, msgspec.structs.replace(memory, where=home.where))
    return away


def reached(away: Away) -> Workflow:
    """Return the run's Workflow, or if it is deleted a stand-in by which its store can still be read. Raises NoWorkflow."""
    try:
        return known(away.home, away.folder).workflow()
    except WorkflowGone as gone:
        return pull.without_workflow(away.home, gone, away.name)


def _newest(home: Home) -> str:
    workflows = home.ask(lambda kube: kube.list(home.workflows(), Workflow, labels=PIPELINE)) or ()
    if not workflows:
        raise NoWorkflow(f"namespace {home.namespace} of the home cluster has no run of ours")
    return max(workflows, key=lambda one: (one.metadata.creation_timestamp, one.metadata.name)).metadata.name


# --- show -----------------------------------------------------------------------------------------------------------------


def status(away: Away) -> dict[str, Any]:
    """Return phase, stages so far, and open waits with their times, in the same form as for local runs."""
    workflow = away.workflow()
    all_nodes = workflow.nodes()
    statuses = [node_status(node, all_nodes) for node in all_nodes.values()]
    open_waits = waits.waits(away.home, workflow)
    return {
        "run": away.name,
        "phase": workflow.status.phase or "Pending",
        "message": cancellation.end_message(workflow),
        "waiting": [_waiting(away, workflow, wait) for wait in open_waits],
        "stages": progress.with_reasons(_stages(away, workflow, statuses), _verdicts(away.folder)),
    }


def _stages(away: Away, workflow: Workflow, told: list[RunNodeStatus]) -> list[dict[str, str]]:
    """Return the rows of the stages; in a run that has ended, even before its first task, no stage is still to come."""
    rows = progress.stages(list(planned.tasks(away.folder)), told, away.name)
    return progress.ended_rows(rows) if workflow.finished else rows


def _verdicts(folder: RunFolder) -> dict[str, tuple[str, str]]:
    """Return status and reason of each stage whose verdict is on this machine."""
    store = Store(folder.home.store)
    if store.read(contract.header_key(folder.name)) is None:
        return {}
    report = build(source.read(store, folder.name))
    return {stage.id: (stage.status, stage.reason) for stage in report.with_opening if stage.judged}


def _waiting(away: Away, workflow: Workflow, wait: waits.Wait) -> dict[str, str]:
    row = {"for": wait.sentence, "since": stamp(wait.since), "how": ""}
    if wait.kind != waits.APPROVAL:
        return row
    try:
        asked = _shown(away, workflow, wait)
    except (StepError, NoWorkflow) as error:
        unknown = dict.fromkeys(("stage", "about", "evidence", "approvers"), "")
        return {**row, **unknown, "how": f"its evidence cannot be read now: {error}"}
    return row | asked.row(away.home.namespace)


def _shown(away: Away, workflow: Workflow, wait: waits.Wait) -> open_approvals.OpenApproval:
    """Return the approval with its evidence, read from the store now; this machine then counts the evidence as shown."""
    node = wait.node.removeprefix(f"{away.name}.")
    (asked,) = approval_patches.waiting(away.home, workflow, away.folder, [node])
    open_approvals.remember(away.folder, [asked])
    return asked


def show_status(away: Away, form: Format) -> int:
    """Print the answer of `bringup status`."""
    view = status(away)
    if form is not Format.TABLE:
        output.data(view, form)
        return ExitCode.OK
    output.lines([f"run {view['run']}: {view['phase']} {view['message']}".rstrip()])
    for wait in view["waiting"]:
        output.lines([f"waits for {wait['for']} since {wait['since']}" + (f": {wait['how']}" if wait["how"] else "")])
        output.lines([f"  it is about {wait['about']}"] if wait.get("about") else [])
    output.table(("stage", "status", "reason"), [(row["stage"], row["status"], row["reason"]) for row in view["stages"]])
    return ExitCode.OK


def show_logs(away: Away, task: str) -> list[tuple[str, str]]:
    """Return the logs for `bringup logs`, also of the Workflow by which a schedule starts a run."""
    try:
        return logs.logs(away.home, reached(away), away.folder, task)
    except StarterWorkflow:
        return logs.starter_logs(away.home, away.home.workflow(away.name))


def nodes(away: Away) -> list[RunNodeStatus]:
    """Return all nodes of the run as Argo knows them."""
    all_nodes = reached(away).nodes()
    return [node_status(node, all_nodes) for node in all_nodes.values()]


# --- follow ---------------------------------------------------------------------------------------------------------------


def watch(away: Away) -> int:
    """Follow the run to its end with the live view, then fetch evidence and report. Ctrl-C and SIGTERM do not stop the run."""
    console = output.console()

    def say(sentence: str) -> None:
        console.print(sentence)

    ended: Workflow | None = None
    with _interruptible(), _announced(away, say) as tell:
        try:
            with listening.shown(away.folder, console, away.home.where) as show:
                ended = follower.follow(away.home, away.name, tell(show), say)
        except KeyboardInterrupt:
            ending = "goes on in the home cluster; follow it again" if ended is None else "has ended; its evidence and report"
            output.lines([f"run {away.name} {ending}: bringup watch {away.name}"])
            raise
    return conclude(away, ended)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Handle SIGTERM in this context as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _announced(away: Away, say: follower.Say) -> Iterator[Callable[[listening.Observer], listening.Observer]]:
    """Put an announcer beside an observer if this machine knows a command that announces approvals of the run."""
    memory = run_memory.read(away.folder)
    if memory is None or not memory.telling:
        yield lambda observer: observer
        return
    # reading the evidence would take a pod and a while, so its digest is left out
    answer = "", announcement.command(away.name, namespace=away.home.namespace)
    claim = approval_patches.claim(away.home.where, away.name)
    announcer = approval_announcer.Announcer(away.name, memory.telling, claim, lambda _node: answer, say)
    try:
        yield announcer.beside
    finally:
        announcer.close()


def conclude(away: Away, ended: Workflow) -> int:
    """Print the report of a run that has ended and return its exit code; a Workflow that succeeded without evidence is no
    success.
    """
    code, phase = follower.exit_code(ended.status.phase), f"{ended.status.phase} {cancellation.end_message(ended)}".rstrip()
    if cancellation.was_never_begun(ended):
        output.lines(["", f"{NEVER_BEGUN}: {phase}"])
        return code or ExitCode.GATE_FAILED
    try:
        _pulled(away, ended)
    except (StepError, NoWorkflow) as error:
        output.lines([f"it ended as {phase}, its evidence could not be read: {error}", *([error.hint] if error.hint else [])])
        output.lines([f"try again: bringup watch {away.name}"])
        return code or ExitCode.TEMPORARY
    report, sealed = away.folder.stored / "report/report.txt", away.folder.stored / seal.FILE
    output.lines(["", report.read_text().rstrip() if report.exists() else f"no report was written: {phase}"])
    if not sealed.exists():
        output.lines(["", f"its exit handler did not finish, so nothing is sealed: bringup sweep {away.name}"])
        code = code or ExitCode.GATE_FAILED
    elif broken := verify.problems(away.folder.stored):
        output.lines(["", f"its evidence is not what was sealed ({'; '.join(broken[:3])}): bringup verify {away.folder.stored}"])
        code = code or ExitCode.GATE_FAILED
    # Argo's phase says only that pods ended well, so the evidence has the last word
    elif code == ExitCode.OK and (proven := _proven(away)) != Status.PASS:
        output.lines(["", f"Argo says {ended.status.phase}, the evidence says {proven}: the evidence decides"])
        code = ExitCode.GATE_FAILED
    output.lines(["", *result_paths(away.folder)])
    return code


def _pulled(away: Away, ended: Workflow) -> None:
    """Fetch the evidence to this machine. Raises StepError."""
    patiently(lambda: pull.pull(away.home, ended, away.folder))


T = TypeVar("T")


def patiently(ask: Callable[[], T]) -> T:
    """Call `ask` again while the API server is away. Raises Unreachable when it does not come back."""
    import tenacity

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Unreachable),
        stop=tenacity.stop_after_delay(timeouts.CREDENTIAL_RENEWAL),
        wait=tenacity.wait_exponential(timeouts.WATCH_FIRST, max=timeouts.WATCH_MAX),
        reraise=True,
    )
    return retrying(ask)


def _proven(away: Away) -> str:
    return build(source.read(Store(away.folder.home.store), away.name)).status
