"""What the commands about an existing run share: read its state, follow it, find its logs, send its engine something."""

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
from workflows.engines import approvals
from workflows.engines.folders import RunFolder
from workflows.engines.local import inbox
from workflows.engines.local.result import NodeStatus, RunStatus, read_status
from workflows.rehearsal.rehearse import again
from workflows.render import names

ANSWER_SECONDS = 30.0
"""An engine looks into its inbox ten times a second, and is held up where a busy disk takes seconds for its journal."""
LOOK_SECONDS = 0.5


class NoEngine(ValueError):
    """The run has no engine that could do what was asked."""

    def __init__(self, sentence: str, hint: str = "see where it stands with `bringup status`") -> None:
        super().__init__(sentence)
        self.hint = hint


class NoLog(ValueError):
    """No task that ran has the name: it is a run's, or the hint lists those that did. `ran` are pods of the run."""

    def __init__(self, wanted: str, folder: RunFolder, ran: Iterable[NodeStatus]) -> None:
        super().__init__(f"no log of {wanted!r} in run {folder.name}")
        pods = sorted((node for node in ran if node.type == "Pod" and node.started), key=lambda node: node.started)
        kept = (".".join(key.split("/")[3:5]) for key in Store(folder.home.store).keys(log.folder(folder.name)))
        tasks = ", ".join(dict.fromkeys([*(_task(node.template, folder) for node in pods), *kept]))
        self.hint = f"tasks that ran: {tasks}" if tasks else f"none of its tasks has begun: bringup status {folder.name}"
        if wanted in folder.home.runs():
            self.hint = f"{wanted} is a run: bringup logs --run {wanted}"


def _task(template: str, folder: RunFolder) -> str:
    """`os-prep-judge` → `os_prep.judge`, where the plan of the run is here."""
    stages = [contract.STAGE, *planned.tasks(folder)]
    stage = max((one for one in stages if template.startswith(f"{names.dashed(one)}-")), key=len, default="")
    return f"{stage}.{template[len(stage) + 1 :].replace('-', '_')}" if stage else template


def status(folder: RunFolder) -> dict[str, Any]:
    """Phase, stages so far, and what is waited for since when; from the journal and the store. The evidence counts as shown."""
    engine = read_status(folder.engine)
    return {
        "run": folder.name,
        "phase": engine.phase if engine.alive or engine.finished else "interrupted",
        "message": cancelling.told(folder, engine.message),
        "waiting": [_waiting(folder, node.name, node.started) for node in engine.gates],
        "stages": _stages(folder, engine),
    }


def _waiting(folder: RunFolder, node: str, since: float) -> dict[str, str]:
    one = approvals.read(folder, node)
    approvals.remember(folder, [one])
    return {"stage": one.stage, "since": stamp(since), **one.row()}


def _stages(folder: RunFolder, engine: RunStatus) -> list[dict[str, str]]:
    """Stages as the report has them; while an engine drives the run, those without a verdict are still to come."""
    if not (folder.stored / "run.json").exists():
        told = () if engine.alive and not engine.finished else _opening(folder)
        return [{"stage": contract.OPEN, "status": one.status.value, "reason": one.reason} for one in told]
    report = reporting.made(reading.Found(folder))
    begun = {node.template for node in engine.nodes} if engine.alive and not engine.finished else None
    return [_stage(stage, begun) for stage in report.with_opening]


def _opening(folder: RunFolder) -> list[Verdict]:
    """Why a run was not even created, where its first task left that much."""
    every = Store(folder.home.store).records(folder.name, contract.STAGE, contract.OPEN)
    return [one.verdict for one in every if one.verdict]


def _stage(stage: Stage, begun: set[str] | None) -> dict[str, str]:
    """One stage; `begun` holds the templates that a living engine has begun, None where there is no such engine."""
    if begun is not None and not stage.judged:
        return {"stage": stage.id, "status": "running" if names.dashed(stage.id) in begun else "to come", "reason": ""}
    return {"stage": stage.id, "status": stage.status, "reason": stage.reason}


def follow(folder: RunFolder) -> int:
    """Print what changes until the run ends; its exit code."""
    said: set[str] = set()
    while True:
        engine = read_status(folder.engine)
        for line in _news(folder, engine):
            if line not in said:
                output.lines([line])
                said.add(line)
        if engine.finished or not engine.alive:
            ending = engine.phase if engine.finished else "interrupted: no engine drives it"
            output.lines([f"{folder.name}: {ending} {cancelling.told(folder, engine.message)}".rstrip()])
            return {"Succeeded": ExitCode.OK}.get(engine.phase, ExitCode.GATE_FAILED)
        time.sleep(LOOK_SECONDS)


def _news(folder: RunFolder, engine: RunStatus) -> list[str]:
    said = [row for row in _stages(folder, engine) if row["status"] not in ("running", "to come", NOT_RUN)]
    lines = [f"{row['stage']}: {row['status']}: {row['reason']}" for row in said]
    return lines + [f"waits for an approval before {approvals.read(folder, node.name).stage}" for node in engine.gates]


def log_files(folder: RunFolder, wanted: str) -> list[tuple[str, str]]:
    """Logs of a run's tasks in the order in which they started: (node or key, text), each text once.

    What a task says while it runs is the engine's; once the task has stored its log, that is shown in its place, and what the
    engine has beside it: attempts that were killed. Stored logs that the engine does not know come last.
    """
    store, found, shown = Store(folder.home.store), list[tuple[str, str]](), set[str]()
    for node in sorted(read_status(folder.engine).nodes, key=lambda node: node.started):
        path = folder.engine / node.log
        if node.type == "Pod" and path.exists():
            said, keys = _with_stored(store, path.read_text(errors="replace"), log.folder(folder.name))
            shown |= keys
            if _is_wanted(node.template.replace("-", "_"), wanted):
                found.append((node.path, said.rstrip() or "(it said nothing)"))
    for key in store.keys(log.folder(folder.name)):
        if key not in shown and _is_wanted("_".join(key.split("/")[3:5]), wanted):
            found.append((key, (store.read(key) or b"").decode(errors="replace").rstrip()))
    return found


def _is_wanted(named: str, wanted: str) -> bool:
    return wanted.replace(".", "_").replace("-", "_") in named


def _with_stored(store: Store, said: str, folder: str) -> tuple[str, set[str]]:
    """What an engine has of a node, with each part that was stored as it is in the store; and the keys of those."""
    parts = log.KEPT.split(said)
    text, keys = "", set[str]()
    for live, key in zip(parts[::2], parts[1::2], strict=False):
        data = store.read(key) if key.startswith(f"{folder}/") else None
        stored = None if data is None else data.decode(errors="replace")
        text += live if stored is None or stored in live else stored
        keys.add(key)
    return text + parts[-1], keys


def nodes(folder: RunFolder) -> list[NodeStatus]:
    """What the engine knows of all nodes."""
    return read_status(folder.engine).nodes


def open_nodes(folder: RunFolder) -> list[str]:
    """Suspend nodes that wait for an answer."""
    return [node.name for node in read_status(folder.engine).gates]


def require_engine(folder: RunFolder) -> None:
    """Raise NoEngine where nothing drives the run."""
    engine = read_status(folder.engine)
    if not engine.alive:
        raise _not_driven(folder, finished=engine.finished)


def send(folder: RunFolder, verb: str, node: str, parameters: Mapping[str, str], message: str) -> None:
    """Ask the run's engine for something and wait for its answer. Raises NoEngine."""
    require_engine(folder)
    ticket = inbox.send(folder.engine, verb, node=node, parameters=parameters, message=message)
    answer = inbox.wait(folder.engine, ticket, ANSWER_SECONDS)
    if answer is None:
        raise NoEngine(f"the engine of run {folder.name} does not answer")
    if not answer.accepted:
        raise NoEngine(f"run {folder.name}: {answer.error}")


def _not_driven(folder: RunFolder, *, finished: bool) -> NoEngine:
    """What is said of a run without an engine: an interrupted rehearsal is over, another interrupted run can go on."""
    head, command = f"no engine drives run {folder.name}: it ", again(folder)
    if finished:
        return NoEngine(f"{head}has ended")
    if command:
        return NoEngine(f"{head}was interrupted, and a rehearsal is over then", f"start it again: {command}")
    return NoEngine(f"{head}was interrupted", f"it goes on with `bringup resume {folder.name}`")
