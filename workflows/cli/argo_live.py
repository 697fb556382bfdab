"""The live view of a run on Argo: the same lines, fed by what its pods said last, since the store is in the home cluster."""

import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
from msgspec import Struct
from rich.console import Console

from steps import timeouts
from steps.clients.store import Store
from steps.contract import announcement, approval
from steps.contract import run as contract
from steps.contract.last_word import Said
from steps.errors import StepError
from workflows.cli import live, output
from workflows.engines.argo import last_words
from workflows.engines.argo.home import Home, Where
from workflows.engines.argo.progress import JUDGE, VERDICT
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import News, NodeNews, NodeStatus

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
    """Where records are not here yet, what pods said last tells, else a node's outputs and message."""

    words: dict[str, Said] = field(default_factory=dict)
    """What pods that ended well said last, by the full name of their node."""
    _heard: dict[tuple[str, str], dict[int, Said]] = field(default_factory=dict)

    def is_told_by_its_pod(self, node: NodeStatus) -> bool:
        """Whether a line of the view is in the node's pod, and has not been heard."""
        ended = node.type == "Pod" and node.phase == "Succeeded"
        return ended and node.template in self.templates and node.path not in self.words

    def told(self, stage: str, task: str) -> Mapping[int, Said]:
        """What was heard just now is newer than what was read here before."""
        return {**super().told(stage, task), **self._heard.get((stage, task), {})}

    def take(self, node: NodeStatus) -> list[str]:
        """As for a local run."""
        said = last_words.of_node(node) or self.words.get(node.path)
        if said and node.template in self.templates:
            self._heard.setdefault(self.templates[node.template], {})[int(node.inputs.get("shard") or 0)] = said
        lines = super().take(node)
        if lines or node.finished is None or node.type != "Pod" or node.template not in self.templates:
            return lines
        stage, task = self.templates[node.template]
        row = self.rows[stage]
        if task == JUDGE:
            row.status = node.outputs.get(VERDICT) or "inconclusive"
            why = "" if row.status in ("pass", "skipped") else f"; why: bringup report {self.run}"
            return [f"{stage}: {row.status} ({node.finished - row.started:.1f} s){why}"]
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


Hear = Callable[[], Mapping[str, Said]]
"""Asks home what pods said last. Raises StepError."""


class Listener:
    """Hands news on to a view in their order, in a thread: what is asked of home in between never holds up who follows.

    One request at a time, for all nodes that ended since the last one. Where home does not tell within `patience` seconds, the view
    goes on without.
    """

    def __init__(self, view: live.View, progress: AwayProgress, hear: Hear, patience: float = timeouts.LAST_WORDS) -> None:
        self._view, self._progress, self._hear, self._patience = view, progress, hear, patience
        self._asking = threading.Thread()
        self._news = queue.SimpleQueue[News | None]()
        self._asked: set[str] = set()
        self._complained = self._left = False
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._listen, name="live view", daemon=True)
        self._thread.start()

    def observe(self, news: News) -> None:
        """Take a piece of news. Raises what kept an earlier one from being shown: OSError, StepError, MsgspecError."""
        if self._problem is not None:
            raise self._problem
        self._news.put(news)

    def finish(self) -> None:
        """Show what came so far; to ask for it takes `patience` at the most, and as long again for what is under way."""
        self._news.put(None)
        self._thread.join()

    def leave(self) -> None:
        """Show nothing more."""
        self._left = True
        self._news.put(None)

    def _listen(self) -> None:
        more = True
        while more and not self._left:
            batch = [self._news.get()]
            while not self._news.empty():
                batch.append(self._news.get())
            news, more = [one for one in batch if one is not None], None not in batch
            self._ask(news)
            try:
                self._show(news)
            except (OSError, StepError, msgspec.MsgspecError) as problem:
                self._problem = problem

    def _ask(self, news: Iterable[News]) -> None:
        ended = {one.node.path for one in news if isinstance(one, NodeNews) and self._progress.is_told_by_its_pod(one.node)}
        if not ended - self._asked or self._asking.is_alive():
            return
        self._asked |= ended
        self._asking = threading.Thread(target=self._listen_to_home, name="last words", daemon=True)
        self._asking.start()
        self._asking.join(self._patience)
        if self._asking.is_alive():
            self._complain(f"home has not answered in {self._patience:g} s")

    def _listen_to_home(self) -> None:
        try:
            self._progress.words.update(self._hear())
        except StepError as error:
            self._complain(str(error))

    def _complain(self, why: str) -> None:
        """Once: whoever follows a run for hours need not be told each time."""
        if not self._complained and not self._left:
            output.note(f"what gates say cannot be read now, bringup report {self._progress.run} tells it: {why}")
        self._complained = True

    def _show(self, news: Iterable[News]) -> None:
        for one in news:
            if self._left:
                return
            self._view.observe(one)


@contextmanager
def shown(folder: RunFolder, console: Console, where: Where) -> Iterator[Observer]:
    """The live view of a run whose tasks are known here: its observer. Where this ends well, all that was told is shown."""
    tasks = {one.id: [task.name for task in one.tasks] for one in _summary(folder).stages}
    how = announcement.command(folder.name, namespace=where.namespace)  # of the evidence nothing is known here: `approve` shows it
    progress = AwayProgress(tasks, folder.name, Store(folder.home.store), lambda _node: how)
    with live.View(progress, console) as view:
        listener = Listener(view, progress, _hearing(where, folder.name))
        try:
            yield listener.observe
            with interruptible():
                listener.finish()
        finally:
            listener.leave()


def _hearing(where: Where, run: str) -> Hear:
    """With a client of its own, made when it is needed: a client is not for two threads."""
    made: list[Home] = []

    def hear() -> Mapping[str, Said]:
        if not made:
            made.append(Home(where))
        return last_words.heard(made[0], run)

    return hear
