"""What the engine tells others: the result of a run, its status for other processes, and typed news for a live display."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from pathlib import Path
from typing import Any

import msgspec

from workflows.engines.local.journal import reading
from workflows.engines.local.model import Plan
from workflows.engines.local.paths import slug
from workflows.engines.local.record import record as make_record
from workflows.engines.local.state import FAILED, RUNNING, SUCCEEDED, Node, NodeChanged, RunChanged, State


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run."""

    run_dir: Path
    plan: Plan
    state: State
    most_pods: int

    @property
    def phase(self) -> str:
        """Succeeded, Failed or Error."""
        return self.state.phase

    @property
    def message(self) -> str:
        """Why, when the workflow has something to say."""
        return self.state.message

    @property
    def exit_code(self) -> int:
        """0 Succeeded; 65 Failed (a task, a gate or an operator said no); 1 Error (the workflow itself is defective)."""
        return {SUCCEEDED: 0, FAILED: 65}.get(self.state.phase, 1)

    @property
    def span(self) -> float:
        """Seconds from the first start of a node to the last end."""
        nodes = self.state.nodes.values()
        starts = [node.started for node in nodes]
        ends = [node.finished for node in nodes if node.finished is not None]
        return max(ends) - min(starts) if starts and ends else 0.0


def record(result: RunResult) -> dict[str, Any]:
    """The result in the form of the conformance corpus."""
    return make_record(result.plan, result.state, result.most_pods, result.span)


class NodeStatus(msgspec.Struct, frozen=True):
    """One node for people and programs outside of the engine; times are seconds since the epoch (display only)."""

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
        """Where its output goes, relative to the run directory (pods only)."""
        return f"logs/{slug(self.path)}.log"


class RunStatus(msgspec.Struct, frozen=True):
    """A run as its journal shows it now."""

    name: str
    phase: str
    message: str
    suspended: bool
    shutdown: str
    began: float
    alive: bool  # an engine drives it now
    notes: list[str]  # fields of the manifest that only Argo acts on
    nodes: list[NodeStatus]

    @property
    def gates(self) -> list[NodeStatus]:
        """Suspend nodes that wait for a person."""
        return [node for node in self.nodes if node.type == "Suspend" and node.phase == RUNNING]

    @property
    def finished(self) -> bool:
        """Whether the workflow has its final phase."""
        return self.phase not in ("", RUNNING)


def node_status(node: Node, began: float) -> NodeStatus:
    """The public form of a node; `began` is the wall time of the run's start."""
    return NodeStatus(
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
    """A node appeared or changed its phase, message, inputs or outputs."""

    node: NodeStatus
    before: str  # its phase so far, "" when it is new

    @property
    def waits(self) -> bool:
        """A gate opened just now."""
        return self.node.type == "Suspend" and self.node.phase == RUNNING and self.before != RUNNING


@dataclass(frozen=True, slots=True)
class RunNews:
    """The workflow changed its phase, was suspended, or is being shut down."""

    phase: str
    message: str
    suspended: bool
    shutdown: str


@dataclass(frozen=True, slots=True)
class RecordNews:
    """Record number `seq` of the journal is durable."""

    seq: int


@dataclass(frozen=True, slots=True)
class ProcessNews:
    """A pod's process exists; not yet recorded."""

    node: str
    pid: int


News = NodeNews | RunNews | RecordNews | ProcessNews
Observer = Callable[[News], None]


def news_of(action: NodeChanged | RunChanged, before: State, began: float) -> News | None:
    """An action of the machine as news; None when only the graph around a node changed."""
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


def read_status(run_dir: Path) -> RunStatus:
    """The status of a run from its journal; changes nothing.  RunDirectoryError, JournalForeignError."""
    with reading(run_dir) as connection:
        meta = dict(connection.execute("SELECT key, value FROM meta"))
        rows = [msgspec.json.decode(row[0], type=NodeStatus) for row in connection.execute("SELECT body FROM nodes ORDER BY rowid")]
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


def wall_text(moment: float) -> str:
    """A wall time in UTC for people (RFC 3339)."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
