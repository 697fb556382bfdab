"""What the commands do about a run on Argo: find it, start it, follow it, show it, answer it, end it."""

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
from workflows.engines import announce, approvals
from workflows.engines.argo import answer, claims, follow, logs, progress, pull, remembered, stop, waits
from workflows.engines.argo.home import Home, NoWorkflow, OnlyStarts, WorkflowGone
from workflows.engines.argo.objects import PIPELINE, Workflow, node_status
from workflows.engines.folders import Home as Runs
from workflows.engines.folders import RunFolder, places
from workflows.engines.local.result import NodeStatus

NEVER_BEGUN = "it ended before its first task, so it has no report"


@dataclass(frozen=True)
class Away:
    """A run on Argo as this machine reaches it."""

    home: Home
    folder: RunFolder

    @property
    def name(self) -> str:
        """The run's name, which is the Workflow's."""
        return self.folder.name

    def workflow(self) -> Workflow:
        """As it is now. Raises NoWorkflow."""
        found = self.home.workflow(self.name)
        self.home.check_ours(found)
        return found


def find(run: str, place: Place) -> Away | None:
    """The run where it is on Argo, else None: it is one of this machine's. Raises NoSuchRun, NoHomeCluster, NoWorkflow."""
    away = locate(run, place)
    if away is None or (not place.is_named and remembered.knows_tasks(away.folder)):
        return away
    return known(away.home, away.folder)


def locate(run: str, place: Place) -> Away | None:
    """The same, also where its Workflow may be gone: nothing is asked of home but the name of the newest run."""
    runs = Runs.of_environment()
    if not place.is_named:
        folder = runs.find(run)
        memory = remembered.read(folder)
        if memory is None:
            return None
        if place.engine == LOCAL:
            raise BadParameter(f"run {folder.name} is on Argo, in namespace {memory.where.namespace}: leave out --engine local")
        return Away(kubeconfigs.reached(memory.where), folder)
    naming.require(run)
    home = kubeconfigs.home(place.home_kubeconfig, place.home_context, place.namespace)
    return Away(home, runs.run(run if run not in ("", "last") else _newest(home)))


def known(home: Home, folder: RunFolder) -> Away:
    """A run that exists on Argo; this machine remembers it from now on. Raises NoWorkflow."""
    away = Away(home, folder)
    remembered.learn(home, away.workflow(), folder)
    memory = remembered.read(folder)
    if memory is None:
        remembered.write(folder, remembered.Memory(where=home.where))
    elif memory.where != home.where:
        remembered.write(folder, msgspec.structs.replace(memory, where=home.where))
    return away


def reached(away: Away) -> Workflow:
    """The run's Workflow, remembered from now on; where that is gone, what its store can be read with. Raises NoWorkflow."""
    try:
        return known(away.home, away.folder).workflow()
    except WorkflowGone as gone:
        return pull.without_workflow(away.home, gone, away.name)


def _newest(home: Home) -> str:
    every = home.ask(lambda kube: kube.list(home.workflows(), Workflow, labels=PIPELINE)) or ()
    if not every:
        raise NoWorkflow(f"namespace {home.namespace} of the home cluster has no run of ours")
    return max(every, key=lambda one: (one.metadata.creation_timestamp, one.metadata.name)).metadata.name


# --- show -----------------------------------------------------------------------------------------------------------------


def status(away: Away) -> dict[str, Any]:
    """Phase, stages so far, and what is waited for since when, in the form that local runs have."""
    workflow = away.workflow()
    every = workflow.nodes()
    told = [node_status(node, every) for node in every.values()]
    waiting = waits.waits(away.home, workflow)
    return {
        "run": away.name,
        "phase": workflow.status.phase or "Pending",
        "message": stop.told(workflow),
        "waiting": [_waiting(away, workflow, one) for one in waiting],
        "stages": progress.explained(_stages(away, workflow, told), _verdicts(away.folder)),
    }


def _stages(away: Away, workflow: Workflow, told: list[NodeStatus]) -> list[dict[str, str]]:
    """Of a run that has ended nothing is to come, also where it never began."""
    rows = progress.stages(list(planned.tasks(away.folder)), told, away.name)
    return progress.over(rows) if workflow.finished else rows


def _verdicts(folder: RunFolder) -> dict[str, tuple[str, str]]:
    """Status and reason of each stage whose verdict is on this machine."""
    store = Store(folder.home.store)
    if store.read(contract.header_key(folder.name)) is None:
        return {}
    made = build(source.read(store, folder.name))
    return {one.id: (one.status, one.reason) for one in made.with_opening if one.judged}


def _waiting(away: Away, workflow: Workflow, one: waits.Wait) -> dict[str, str]:
    row = {"for": one.sentence, "since": stamp(one.since), "how": ""}
    if one.kind != waits.APPROVAL:
        return row
    try:
        asked = _shown(away, workflow, one)
    except (StepError, NoWorkflow) as error:
        unknown = dict.fromkeys(("stage", "about", "evidence", "approvers"), "")
        return {**row, **unknown, "how": f"its evidence cannot be read now: {error}"}
    return row | asked.row(away.home.namespace)


def _shown(away: Away, workflow: Workflow, one: waits.Wait) -> approvals.Open:
    """The approval with its evidence, read from the store just now and remembered as shown."""
    node = one.node.removeprefix(f"{away.name}.")
    (asked,) = answer.waiting(away.home, workflow, away.folder, [node])
    approvals.remember(away.folder, [asked])
    return asked


def show_status(away: Away, form: Format) -> int:
    """`bringup status`."""
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
    """`bringup logs`; also of what a schedule starts, which is no run."""
    try:
        return logs.logs(away.home, reached(away), away.folder, task)
    except OnlyStarts:
        return logs.of_start(away.home, away.home.workflow(away.name))


def nodes(away: Away) -> list[NodeStatus]:
    """What Argo knows of all nodes."""
    every = reached(away).nodes()
    return [node_status(node, every) for node in every.values()]


# --- follow ---------------------------------------------------------------------------------------------------------------


def watch(away: Away) -> int:
    """Follow to the end with the live view; then evidence and report come here. Ctrl-C and SIGTERM leave the run alone."""
    console = output.console()

    def say(sentence: str) -> None:
        console.print(sentence)

    ended: Workflow | None = None
    with _interruptible(), _announced(away, say) as tell:
        try:
            with listening.shown(away.folder, console, away.home.where) as show:
                ended = follow.follow(away.home, away.name, tell(show), say)
        except KeyboardInterrupt:
            how = "goes on in the home cluster; follow it again" if ended is None else "has ended; its evidence and report"
            output.lines([f"run {away.name} {how}: bringup watch {away.name}"])
            raise
    return conclude(away, ended)


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends what is in here as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _announced(away: Away, say: follow.Say) -> Iterator[Callable[[listening.Observer], listening.Observer]]:
    """Put an announcer beside an observer, where this machine knows a command that announces approvals of the run."""
    memory = remembered.read(away.folder)
    if memory is None or not memory.telling:
        yield lambda observer: observer
        return
    how = "", announcement.command(away.name, namespace=away.home.namespace)  # to read the evidence takes a pod, and a while
    claim = claims.claim(away.home.where, away.name)
    announcer = announce.Announcer(away.name, memory.telling, claim, lambda _node: how, say)
    try:
        yield announcer.beside
    finally:
        announcer.close()


def conclude(away: Away, ended: Workflow) -> int:
    """Evidence and report of a run that has ended; its exit code: a Workflow that Succeeded without evidence is no success."""
    code, phase = follow.exit_code(ended.status.phase), f"{ended.status.phase} {stop.told(ended)}".rstrip()
    if stop.was_never_begun(ended):
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
    elif code == ExitCode.OK and (proven := _proven(away)) != Status.PASS:
        output.lines(["", f"Argo says {ended.status.phase}, the evidence says {proven}: the evidence decides"])
        code = ExitCode.GATE_FAILED
    output.lines(["", *places(away.folder)])
    return code


def _pulled(away: Away, ended: Workflow) -> None:
    """Bring the evidence here. Raises StepError."""
    patiently(lambda: pull.pull(away.home, ended, away.folder))


T = TypeVar("T")


def patiently(ask: Callable[[], T]) -> T:
    """Ask through an API server that goes away just now. Raises Unreachable when it does not come back."""
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
