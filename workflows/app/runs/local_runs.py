"""Access to a run of this machine: read its state, follow it, find its logs, send requests to its engine."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.exit import ExitCode
from steps.contract.runs import log_keys
from steps.report.model import NOT_RUN
from steps.report.timeline import stamp
from workflows.app.runs import cancel_records, report_assembly, run_progress
from workflows.app.runs.screen import Screen
from workflows.engines import open_approvals
from workflows.engines.folders import RunFolder
from workflows.engines.local import inbox
from workflows.engines.local.result import RunNodeStatus, RunStatus, read_status
from workflows.rehearsal.restart import restart_command
from workflows.render import names

ANSWER_SECONDS = 30.0
"""Seconds to wait for an answer: an engine reads its inbox ten times a second, but a busy disk can delay its journal by seconds."""
LOOK_SECONDS = 0.5


class NoEngine(ValueError):
    """Error for a request to a run whose engine is gone or refuses it."""

    def __init__(self, sentence: str, hint: str = "see where it stands with `bringup status`") -> None:
        super().__init__(sentence)
        self.hint = hint


class NoLog(ValueError):
    """Error for a name that no task of a run has; the hint lists the tasks that ran, taken from the nodes `ran` and stored logs."""

    def __init__(self, task: str, folder: RunFolder, ran: Iterable[RunNodeStatus]) -> None:
        super().__init__(f"no log of {task!r} in run {folder.name}")
        pods = sorted((node for node in ran if node.type == "Pod" and node.started), key=lambda node: node.started)
        stored = (".".join(key.split("/")[3:5]) for key in Store(folder.home.store).keys(log_keys.folder(folder.name)))
        tasks = ", ".join(dict.fromkeys([*(_task(node.template, folder) for node in pods), *stored]))
        self.hint = f"tasks that ran: {tasks}" if tasks else f"none of its tasks has begun: bringup status {folder.name}"
        if task in folder.home.runs():
            self.hint = f"{task} is a run: bringup logs --run {task}"


def _task(template: str, folder: RunFolder) -> str:
    """Return the task that a template runs, `os-prep-judge` → `os_prep.judge`; without the run's plan here, the template's name."""
    stages = [run_records.STAGE, *run_progress.planned_tasks(folder)]
    stage = max((name for name in stages if template.startswith(f"{names.dashed(name)}-")), key=len, default="")
    return f"{stage}.{template[len(stage) + 1 :].replace('-', '_')}" if stage else template


def status(folder: RunFolder) -> dict[str, Any]:
    """Return phase, stages so far, and open approvals with their start, from journal and store.

    Their evidence counts as shown then.
    """
    engine = read_status(folder.engine)
    return {
        "run": folder.name,
        "phase": engine.phase if engine.alive or engine.finished else "interrupted",
        "message": cancel_records.told(folder, engine.message),
        "progress": run_progress.progress(folder, engine.nodes),
        "problems": _problems(folder, engine),
        "waiting": [_waiting(folder, node.name, node.started) for node in engine.gates],
        "stages": _stages(folder, engine),
    }


def _problems(folder: RunFolder, engine: RunStatus) -> list[str]:
    """Return what keeps the run from going on, and how its files differ from its seal, as sentences."""
    if engine.finished:
        differences = report_assembly.seal_differences(folder)
        more = f" and {len(differences) - 1} more" if len(differences) > 1 else ""
        see = f"see: bringup verify {folder.name}"
        return [f"the run's files are not what was sealed ({first}{more}); {see}" for first in differences[:1]]
    if engine.alive:
        return []
    if command := restart_command(folder):
        return [f"no engine drives the run, and a rehearsal is over then; start it again: {command}"]
    return [f"no engine drives the run; go on: bringup resume {folder.name}"]


def _waiting(folder: RunFolder, node: str, since: float) -> dict[str, str]:
    open_approval = open_approvals.read_approval(folder, node)
    open_approvals.remember(folder, [open_approval])
    return {"stage": open_approval.stage, "since": stamp(since), **open_approval.row()}


def _stages(folder: RunFolder, engine: RunStatus) -> list[dict[str, str]]:
    """Return stage, status and reason of each stage as in the report; while a run goes on, unjudged ones are running or to come."""
    is_driven = engine.alive and not engine.finished
    if not (folder.stored / "run.json").exists():
        # the verdicts of the task `open` say why a run was not created
        records = () if is_driven else Store(folder.home.store).records(folder.name, run_records.STAGE, run_records.OPEN)
        verdicts = [record.verdict for record in records if record.verdict]
        return [{"stage": run_records.OPEN, "status": verdict.status.value, "reason": verdict.reason} for verdict in verdicts]
    report = report_assembly.assemble(report_assembly.RunEvidence(folder))
    begun = {node.template for node in engine.nodes}
    return [
        {"stage": stage.id, "status": "running" if names.dashed(stage.id) in begun else "to come", "reason": ""}
        if is_driven and not stage.judged
        else {"stage": stage.id, "status": stage.status, "reason": stage.reason}
        for stage in report.with_opening
    ]


def follow(screen: Screen, folder: RunFolder) -> int:
    """Print changes until the run ends, with a table of its stages on a terminal; return the run's exit code.

    Ctrl-C stops the following but not the run, and a line says so.
    """
    printed: set[str] = set()
    try:
        with screen.stage_table() as table:
            while True:
                engine = read_status(folder.engine)
                rows = _stages(folder, engine)
                table.show([(row["stage"], row["status"], row["reason"]) for row in rows])
                for line in _news(folder, engine, rows):
                    if line not in printed:
                        screen.lines([line])
                        printed.add(line)
                if engine.finished or not engine.alive:
                    break
                time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        screen.lines([left_running(folder.name)])
        raise
    ending = engine.phase if engine.finished else "interrupted: no engine drives it"
    screen.lines([f"{folder.name}: {ending} {cancel_records.told(folder, engine.message)}".rstrip()])
    return {"Succeeded": ExitCode.OK, "Error": ExitCode.BUG}.get(engine.phase, ExitCode.GATE_FAILED)


def left_running(run: str) -> str:
    """Return the sentence that a run goes on unfollowed, with the commands that see it and end it."""
    return f"run {run} goes on; see it with `bringup watch {run}`, end it with `bringup cancel {run}`"


def follow_logs(
    screen: Screen, run: str, read: Callable[[], list[tuple[str, str]]], is_over: Callable[[], bool], pause: float = LOOK_SECONDS
) -> int:
    """Print the logs that `read` returns, then what is added to them, until `is_over` returns True; return 0.

    `pause` is the time in seconds between two readings. A heading precedes the text of another task. A task that has written
    nothing is shown at the end only. If a task's stored log replaces its live one, only text that was not yet printed is printed.
    Ctrl-C stops the following but not the run.
    """
    printed, last = dict[str, str](), ""
    try:
        while True:
            was_over = is_over()  # asked first: what was written before the end is read after it
            for name, text in read():
                if text == log_keys.SILENT and not was_over:
                    continue
                # of a text that was written anew, all is new
                if news := text.removeprefix(printed.get(name, "")).strip("\n"):
                    screen.lines([*([f"==> {name} <=="] if name != last else []), news])
                    printed[name], last = text, name
            if was_over:
                return ExitCode.OK
            time.sleep(pause)
    except KeyboardInterrupt:
        screen.lines([left_running(run)])
        raise


def is_over(folder: RunFolder) -> bool:
    """Return True if no engine drives the run any more: it has ended or was interrupted."""
    engine = read_status(folder.engine)
    return bool(engine.finished) or not engine.alive


def _news(folder: RunFolder, engine: RunStatus, rows: list[dict[str, str]]) -> list[str]:
    judged = [row for row in rows if row["status"] not in ("running", "to come", NOT_RUN)]
    lines = [f"{row['stage']}: {row['status']}: {row['reason']}" for row in judged]
    return lines + [
        f"waits for an approval before {open_approvals.read_approval(folder, node.name).stage}" for node in engine.gates
    ]


def log_files(folder: RunFolder, task: str) -> list[tuple[str, str]]:
    """Return (node or store key, text) of the logs of tasks named like `task`, in the order of their starts, each text once.

    While a task runs, its log is the engine's. Once the task has stored its log, the stored text replaces it, and the engine's
    other text (attempts that were killed) stays beside it. Stored logs that the engine does not know come last.
    """
    store, texts, shown = Store(folder.home.store), list[tuple[str, str]](), set[str]()
    for node in sorted(read_status(folder.engine).nodes, key=lambda node: node.started):
        path = folder.engine / node.log
        if node.type == "Pod" and path.exists():
            text, keys = _with_stored(store, path.read_text(errors="replace"), log_keys.folder(folder.name))
            shown |= keys
            if _is_wanted(node.template.replace("-", "_"), task):
                texts.append((node.path, text.rstrip() or log_keys.SILENT))
    for key in store.keys(log_keys.folder(folder.name)):
        if key not in shown and _is_wanted("_".join(key.split("/")[3:5]), task):
            texts.append((key, (store.read(key) or b"").decode(errors="replace").rstrip()))
    return texts


def _is_wanted(named: str, task: str) -> bool:
    return task.replace(".", "_").replace("-", "_") in named


def _with_stored(store: Store, log: str, folder: str) -> tuple[str, set[str]]:
    """Return the engine's log of a node with live parts replaced by the stored logs that it names, and the store keys of those."""
    parts = log_keys.KEPT.split(log)
    text, keys = "", set[str]()
    for live, key in zip(parts[::2], parts[1::2], strict=False):
        data = store.read(key) if key.startswith(f"{folder}/") else None
        stored = None if data is None else data.decode(errors="replace")
        text += live if stored is None or stored in live else stored
        keys.add(key)
    return text + parts[-1], keys


def nodes(folder: RunFolder) -> list[RunNodeStatus]:
    """Return the state of all nodes (steps, waits and groups of them) that the run's engine knows."""
    return read_status(folder.engine).nodes


def require_engine(folder: RunFolder) -> None:
    """Raise NoEngine if no engine drives the run; the hint says how to resume it or, for a rehearsal, how to start it again."""
    engine = read_status(folder.engine)
    if engine.alive:
        return
    head = f"no engine drives run {folder.name}: it "
    if engine.finished:
        raise NoEngine(f"{head}has ended")
    if command := restart_command(folder):
        raise NoEngine(f"{head}was interrupted, and a rehearsal is over then", f"start it again: {command}")
    raise NoEngine(f"{head}was interrupted", f"it goes on with `bringup resume {folder.name}`")


def cancel(folder: RunFolder, *, now: bool) -> None:
    """Cancel the run and record who did; with `now` what runs is killed, the exit handler included. Raises NoEngine."""
    is_first = cancel_records.by_command(folder)  # written before the engine stops, so that its report can name the person
    try:
        send(folder, "terminate" if now else "stop", "", {}, "cancelled by an operator")
    except NoEngine:
        if is_first:
            cancel_records.take_back(folder)
        raise


def send(folder: RunFolder, verb: str, node: str, parameters: Mapping[str, str], message: str) -> None:
    """Send the run's engine a request (`verb`) and wait up to ANSWER_SECONDS until it is accepted. Raises NoEngine."""
    require_engine(folder)
    ticket = inbox.send(folder.engine, verb, node=node, parameters=parameters, message=message)
    answer = inbox.wait(folder.engine, ticket, ANSWER_SECONDS)
    if answer is None:
        raise NoEngine(f"the engine of run {folder.name} does not answer")
    if not answer.accepted:
        raise NoEngine(f"run {folder.name}: {answer.error}")
