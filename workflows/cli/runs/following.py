"""Access to a local run: read its state, follow it, find its logs, send requests to its engine."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from steps.clients.store import Store
from steps.contract import log
from steps.contract import run as contract
from steps.contract.exit import ExitCode
from steps.contract.verdict import Verdict
from steps.report.model import NOT_RUN, Stage
from steps.report.timeline import stamp
from workflows.cli import output
from workflows.cli.runs import cancelling, planned, reading, reporting
from workflows.engines import open_approvals
from workflows.engines.folders import RunFolder
from workflows.engines.local import inbox
from workflows.engines.local.result import RunNodeStatus, RunStatus, read_status
from workflows.rehearsal.rehearsal_run import restart_command
from workflows.render import names

ANSWER_SECONDS = 30.0
"""Time to wait for an answer: an engine reads its inbox ten times a second, but a busy disk can delay its journal for seconds."""
LOOK_SECONDS = 0.5


class NoEngine(ValueError):
    """Error for a request to a run whose engine is gone or refuses it."""

    def __init__(self, sentence: str, hint: str = "see where it stands with `bringup status`") -> None:
        super().__init__(sentence)
        self.hint = hint


class NoLog(ValueError):
    """Error for a name that no task has; the hint lists those that ran. `ran` are pods of the run."""

    def __init__(self, wanted: str, folder: RunFolder, ran: Iterable[RunNodeStatus]) -> None:
        super().__init__(f"no log of {wanted!r} in run {folder.name}")
        pods = sorted((node for node in ran if node.type == "Pod" and node.started), key=lambda node: node.started)
        stored = (".".join(key.split("/")[3:5]) for key in Store(folder.home.store).keys(log.folder(folder.name)))
        tasks = ", ".join(dict.fromkeys([*(_task(node.template, folder) for node in pods), *stored]))
        self.hint = f"tasks that ran: {tasks}" if tasks else f"none of its tasks has begun: bringup status {folder.name}"
        if wanted in folder.home.runs():
            self.hint = f"{wanted} is a run: bringup logs --run {wanted}"


def _task(template: str, folder: RunFolder) -> str:
    """Return the task of a template, `os-prep-judge` → `os_prep.judge`, if the run's plan is here; else the template's name."""
    stages = [contract.STAGE, *planned.tasks(folder)]
    stage = max((one for one in stages if template.startswith(f"{names.dashed(one)}-")), key=len, default="")
    return f"{stage}.{template[len(stage) + 1 :].replace('-', '_')}" if stage else template


def status(folder: RunFolder) -> dict[str, Any]:
    """Return phase, stages so far, and open waits with their times, from journal and store. The evidence then counts as shown."""
    engine = read_status(folder.engine)
    return {
        "run": folder.name,
        "phase": engine.phase if engine.alive or engine.finished else "interrupted",
        "message": cancelling.told(folder, engine.message),
        "waiting": [_waiting(folder, node.name, node.started) for node in engine.gates],
        "stages": _stages(folder, engine),
    }


def _waiting(folder: RunFolder, node: str, since: float) -> dict[str, str]:
    open_approval = open_approvals.read_approval(folder, node)
    open_approvals.remember(folder, [open_approval])
    return {"stage": open_approval.stage, "since": stamp(since), **open_approval.row()}


def _stages(folder: RunFolder, engine: RunStatus) -> list[dict[str, str]]:
    """Return the stages as in the report; while an engine drives the run, stages without a verdict are still to come."""
    if not (folder.stored / "run.json").exists():
        verdicts = () if engine.alive and not engine.finished else _opening(folder)
        return [{"stage": contract.OPEN, "status": verdict.status.value, "reason": verdict.reason} for verdict in verdicts]
    report = reporting.made(reading.Found(folder))
    begun = {node.template for node in engine.nodes} if engine.alive and not engine.finished else None
    return [_stage(stage, begun) for stage in report.with_opening]


def _opening(folder: RunFolder) -> list[Verdict]:
    """Return the verdicts of the task `open`, which say why a run was not created."""
    records = Store(folder.home.store).records(folder.name, contract.STAGE, contract.OPEN)
    return [record.verdict for record in records if record.verdict]


def _stage(stage: Stage, begun: set[str] | None) -> dict[str, str]:
    """Return the row of one stage; `begun` holds the templates that a living engine has begun, or None without such an engine."""
    if begun is not None and not stage.judged:
        return {"stage": stage.id, "status": "running" if names.dashed(stage.id) in begun else "to come", "reason": ""}
    return {"stage": stage.id, "status": stage.status, "reason": stage.reason}


def follow(folder: RunFolder) -> int:
    """Print changes until the run ends; return its exit code."""
    printed: set[str] = set()
    while True:
        engine = read_status(folder.engine)
        for line in _news(folder, engine):
            if line not in printed:
                output.lines([line])
                printed.add(line)
        if engine.finished or not engine.alive:
            ending = engine.phase if engine.finished else "interrupted: no engine drives it"
            output.lines([f"{folder.name}: {ending} {cancelling.told(folder, engine.message)}".rstrip()])
            return {"Succeeded": ExitCode.OK}.get(engine.phase, ExitCode.GATE_FAILED)
        time.sleep(LOOK_SECONDS)


def _news(folder: RunFolder, engine: RunStatus) -> list[str]:
    rows = [row for row in _stages(folder, engine) if row["status"] not in ("running", "to come", NOT_RUN)]
    lines = [f"{row['stage']}: {row['status']}: {row['reason']}" for row in rows]
    return lines + [
        f"waits for an approval before {open_approvals.read_approval(folder, node.name).stage}" for node in engine.gates
    ]


def log_files(folder: RunFolder, wanted: str) -> list[tuple[str, str]]:
    """Return logs of a run's tasks in the order in which they started: (node or key, text), each text once.

    While a task runs, its log is the engine's. Once the task has stored its log, the stored text replaces it, and the engine's
    other text (attempts that were killed) stays beside it. Stored logs that the engine does not know come last.
    """
    store, texts, shown = Store(folder.home.store), list[tuple[str, str]](), set[str]()
    for node in sorted(read_status(folder.engine).nodes, key=lambda node: node.started):
        path = folder.engine / node.log
        if node.type == "Pod" and path.exists():
            text, keys = _with_stored(store, path.read_text(errors="replace"), log.folder(folder.name))
            shown |= keys
            if _is_wanted(node.template.replace("-", "_"), wanted):
                texts.append((node.path, text.rstrip() or "(it said nothing)"))
    for key in store.keys(log.folder(folder.name)):
        if key not in shown and _is_wanted("_".join(key.split("/")[3:5]), wanted):
            texts.append((key, (store.read(key) or b"").decode(errors="replace").rstrip()))
    return texts


def _is_wanted(named: str, wanted: str) -> bool:
    return wanted.replace(".", "_").replace("-", "_") in named


def _with_stored(store: Store, said: str, folder: str) -> tuple[str, set[str]]:
    """Return the engine's text of a node, with each stored part as in the store, and the keys of those parts."""
    parts = log.KEPT.split(said)
    text, keys = "", set[str]()
    for live, key in zip(parts[::2], parts[1::2], strict=False):
        data = store.read(key) if key.startswith(f"{folder}/") else None
        stored = None if data is None else data.decode(errors="replace")
        text += live if stored is None or stored in live else stored
        keys.add(key)
    return text + parts[-1], keys


def nodes(folder: RunFolder) -> list[RunNodeStatus]:
    """Return all nodes that the engine knows."""
    return read_status(folder.engine).nodes


def open_nodes(folder: RunFolder) -> list[str]:
    """Return the names of suspend nodes that wait for an answer."""
    return [node.name for node in read_status(folder.engine).gates]


def require_engine(folder: RunFolder) -> None:
    """Raise NoEngine if nothing drives the run."""
    engine = read_status(folder.engine)
    if not engine.alive:
        raise _not_driven(folder, finished=engine.finished)


def send(folder: RunFolder, verb: str, node: str, parameters: Mapping[str, str], message: str) -> None:
    """Send the run's engine a request and wait for its answer. Raises NoEngine."""
    require_engine(folder)
    ticket = inbox.send(folder.engine, verb, node=node, parameters=parameters, message=message)
    answer = inbox.wait(folder.engine, ticket, ANSWER_SECONDS)
    if answer is None:
        raise NoEngine(f"the engine of run {folder.name} does not answer")
    if not answer.accepted:
        raise NoEngine(f"run {folder.name}: {answer.error}")


def _not_driven(folder: RunFolder, *, finished: bool) -> NoEngine:
    """Return the error for a run without an engine. An interrupted rehearsal cannot be resumed; another interrupted run can."""
    head, command = f"no engine drives run {folder.name}: it ", restart_command(folder)
    if finished:
        return NoEngine(f"{head}has ended")
    if command:
        return NoEngine(f"{head}was interrupted, and a rehearsal is over then", f"start it again: {command}")
    return NoEngine(f"{head}was interrupted", f"it goes on with `bringup resume {folder.name}`")
