"""The live view of a run on Argo: the same table, fed by what nodes put out, since the store is in the home cluster."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from msgspec import Struct
from rich.console import Console

from steps.clients.store import Store
from steps.contract import announcement, approval
from steps.contract import run as contract
from workflows.cli import live
from workflows.engines.argo.progress import JUDGE, VERDICT
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import News, NodeStatus

__all__ = ["News", "Observer", "interruptible", "shown", "stage_ids"]

_BAD = ("Failed", "Error")

Observer = Callable[[News], None]


class TaskSummary(Struct, frozen=True):
    """A task as `plan.json` names it."""

    name: str


class StageSummary(Struct, frozen=True):
    """A stage as `plan.json` names it."""

    id: str
    tasks: tuple[TaskSummary, ...] = ()


class PlanSummary(Struct, frozen=True):
    """What a view needs of `plan.json`; read here as well as in `running`, which brings Hera along."""

    stages: tuple[StageSummary, ...]


def _summary(folder: RunFolder) -> PlanSummary:
    return msgspec.json.decode((folder.inputs / "tasks" / contract.PLAN_FILE).read_bytes(), type=PlanSummary)


def stage_ids(folder: RunFolder) -> list[str]:
    """The planned stages in running order."""
    return [stage.id for stage in _summary(folder).stages]


@dataclass
class AwayProgress(live.Progress):
    """Where records are not here yet, a node's outputs and message tell."""

    def take(self, node: NodeStatus) -> list[str]:
        """As for a local run."""
        lines = super().take(node)
        if lines or node.finished is None or node.type != "Pod" or node.template not in self.templates:
            return lines
        stage, task = self.templates[node.template]
        row = self.rows[stage]
        if task == JUDGE:
            row.status = node.outputs.get(VERDICT) or "inconclusive"
            return [f"{stage}: {row.status} ({node.finished - row.started:.1f} s)"]
        if task == approval.ANNOUNCE and node.phase in _BAD:
            return [f"{stage}: nobody could be told that it waits for an approval: bringup logs {stage}.{task}"]
        return [f"{stage}: {task} {node.phase}: {node.message}"] if node.phase in _BAD else []


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM ends what is in here as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def shown(folder: RunFolder, console: Console, namespace: str) -> live.View:
    """The live view of a run whose tasks are known here. Its evidence is not: `approve` shows what it is about."""
    stages = _summary(folder).stages
    tasks = {one.id: [task.name for task in one.tasks] for one in stages}
    how = announcement.command(folder.name, namespace=namespace)
    return live.View(AwayProgress(tasks, folder.name, Store(folder.home.store), lambda _node: how), console)
