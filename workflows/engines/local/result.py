"""Reports of the engine: the finished run, the status of a run for other processes, news for a live display, and a record."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from pathlib import Path
from typing import Any

import msgspec

from workflows.engines.local.journal import reading
from workflows.engines.local.model import WorkflowPlan
from workflows.engines.local.run_settings import slug
from workflows.engines.local.run_state import FAILED, RUNNING, SUCCEEDED, NodeChanged, RunChanged, RunNode, RunState


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run, as the local engine returns it."""

    run_dir: Path
    plan: WorkflowPlan
    state: RunState
    most_pods: int

    @property
    def phase(self) -> str:
        """Return the run's final phase: Succeeded, Failed or Error."""
        return self.state.phase

    @property
    def message(self) -> str:
        """Return the message of the workflow, or "" if it has none."""
        return self.state.message

    @property
    def exit_code(self) -> int:
        """Return the exit code: 0 Succeeded, 65 Failed (a task, gate or operator said no), 1 Error (a defective workflow)."""
        return {SUCCEEDED: 0, FAILED: 65}.get(self.state.phase, 1)

    @property
    def span(self) -> float:
        """Return the number of seconds from the first start of a node to the last end of one; 0 if no node ended."""
        nodes = self.state.nodes.values()
        starts = [node.started for node in nodes]
        ends = [node.finished for node in nodes if node.finished is not None]
        return max(ends) - min(starts) if starts and ends else 0.0


class RunNodeStatus(msgspec.Struct, frozen=True):
    """A node of a run in the form for other programs; times are seconds since the epoch, for display only."""

    path: str
    name: str
    type: str
    phase: str
    message: str
    template: str
    boundary: str
    inputs: dict[str, str]
    outputs: dict[str, str | None]
    exit_code: int | None
    started: float
    finished: float | None
    children: list[str]

    @property
    def log(self) -> str:
        """Return the path of the pod's log, relative to the run directory."""
        return f"logs/{slug(self.path)}.log"


class RunStatus(msgspec.Struct, frozen=True):
    """The current status of a run, as `read_status` reads it from the journal."""

    name: str
    phase: str
    message: str
    suspended: bool
    shutdown: str
    began: float
    alive: bool  # an engine drives it now
    notes: list[str]  # fields of the manifest that only Argo acts on
    nodes: list[RunNodeStatus]

    @property
    def gates(self) -> list[RunNodeStatus]:
        """Return the suspend nodes that still wait for a person."""
        return [node for node in self.nodes if node.type == "Suspend" and node.phase == RUNNING]

    @property
    def finished(self) -> bool:
        """Return True if the workflow's phase is final: Succeeded, Failed or Error."""
        return self.phase not in ("", RUNNING)


def node_status(node: RunNode, began: float) -> RunNodeStatus:
    """Return a node in the form for other programs; `began` is when the run started, in seconds since the epoch."""
    return RunNodeStatus(
        node.path,
        node.name,
        node.type,
        node.phase,
        node.message,
        node.template_name,
        node.boundary,
        dict(node.inputs),
        dict(node.outputs.parameters),
        node.outputs.exit_code,
        round(began + node.started, 3),
        None if node.finished is None else round(began + node.finished, 3),
        list(node.children),
    )


@dataclass(frozen=True, slots=True)
class NodeNews:
    """News: a node appeared, or changed its phase, message, inputs or outputs."""

    node: RunNodeStatus
    before: str  # its phase so far, "" when it is new

    @property
    def waits(self) -> bool:
        """Return True if this news is that a gate has just opened."""
        return self.node.type == "Suspend" and self.node.phase == RUNNING and self.before != RUNNING


@dataclass(frozen=True, slots=True)
class RunNews:
    """News: the workflow changed its phase or message, was suspended, or is being shut down."""

    phase: str
    message: str
    suspended: bool
    shutdown: str


@dataclass(frozen=True, slots=True)
class RecordNews:
    """News: record number `seq` of the journal is durable."""

    seq: int


@dataclass(frozen=True, slots=True)
class ProcessNews:
    """News: a pod's process exists, but the journal does not record it yet."""

    node: str
    pid: int


News = NodeNews | RunNews | RecordNews | ProcessNews
Observer = Callable[[News], None]


def news_of(action: NodeChanged | RunChanged, before: RunState, began: float) -> News | None:
    """Return the news in an action of the state machine; None if only the graph's edges changed."""
    if isinstance(action, RunChanged):
        return RunNews(action.phase, action.message, action.suspended, action.shutdown)
    old = before.nodes.get(action.node.path)
    if old is not None and node_status(old, began) == msgspec.structs.replace(
        node_status(action.node, began), children=list(old.children)
    ):
        return None
    return NodeNews(node_status(action.node, began), old.phase if old else "")


def _is_driven(run_dir: Path) -> bool:
    try:
        lock = os.open(run_dir / "engine.lock", os.O_RDONLY)
    except OSError:
        return False
    try:
        flock(lock, LOCK_EX | LOCK_NB)
        flock(lock, LOCK_UN)
        return False
    except OSError:
        return True
    finally:
        os.close(lock)


def read_status(run_dir: Path, *, is_verified: bool = True) -> RunStatus:
    """Return the status of a run from its journal, without changing the run. Raises RunDirectoryError, JournalForeignError.

    Without `is_verified`, lost or altered records of the journal may go unnoticed.
    """
    with reading(run_dir, is_verified=is_verified) as connection:
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        rows = [
            msgspec.json.decode(row[0], type=RunNodeStatus) for row in connection.execute("SELECT body FROM nodes ORDER BY rowid")
        ]
        return RunStatus(
            meta.get("name", ""),
            meta.get("phase", ""),
            meta.get("message", ""),
            meta.get("suspended") == "true",
            meta.get("shutdown", ""),
            float(meta.get("began", "0")),
            _is_driven(run_dir),
            msgspec.json.decode(meta.get("notes", "[]"), type=list[str]),
            rows,
        )


def _node(state: RunState, node: RunNode, rank: int) -> dict[str, Any]:
    children = [state.nodes[path] for path in node.children]
    outputs: dict[str, Any] = {"parameters": dict(node.outputs.parameters)}
    outputs |= {} if node.outputs.exit_code is None else {"exitCode": str(node.outputs.exit_code)}
    outputs |= {} if node.outputs.result is None else {"result": node.outputs.result}
    row: dict[str, Any] = {
        "name": node.name,
        "path": node.path,
        "type": node.type,
        "phase": node.phase,
        "message": node.message,
        "templateName": node.template_name,
        "inputs": {"parameters": dict(node.inputs)},
        "outputs": outputs,
        "rank": rank,
        "boundary": state.nodes[node.boundary].name if node.boundary else "",
        "children": sorted(child.name for child in children),
        "childPaths": sorted(child.path for child in children),
    }
    flags = {key: True for key, is_set in (("hooked", node.hooked), ("retried", node.retried)) if is_set}
    return {**row, "nodeFlag": flags} if flags else row


def record(result: RunResult) -> dict[str, Any]:
    """Return the record of a run in the form of the conformance corpus.

    It has all nodes, sorted by display name, with phases, inputs, outputs and children.
    """
    state = result.state
    starts = sorted({math.floor(node.started) for node in state.nodes.values()})
    rows = [
        _node(state, node, starts.index(math.floor(node.started)))
        for node in sorted(state.nodes.values(), key=lambda node: (node.name, node.path))
    ]
    return {
        "case": result.plan.name,
        "phase": state.phase or RUNNING,
        "message": state.message,
        "outputs": {"parameters": dict(state.outputs)},
        "nodes": rows,
        "maxRunningPods": result.most_pods,
        "spanSeconds": round(result.span, 3),
    }
