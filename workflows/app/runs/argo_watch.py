"""Follow a run on Argo with a live view, and print its report at the end.

A thread feeds the view, so that slow requests to the home cluster never delay the command. The lines are those of a local run, but
they come from pods' last words (termination messages, `steps.contract.runs.last_word`), since the store is in the home cluster.
"""

import functools
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import tenacity

from steps import timeouts
from steps.clients.store import Store
from steps.contract.exit import ExitCode
from steps.contract.runs import approval, last_word, run_seal
from steps.contract.runs.last_word import Said
from steps.errors import StepError, Unreachable
from steps.report import verify
from workflows.app.runs.argo_runs import NEVER_BEGUN, ArgoRun, objection
from workflows.app.runs.run_progress import Progress, planned_graphs, planned_tasks
from workflows.app.runs.screen import RunView, Screen
from workflows.engines import approval_announcer
from workflows.engines.argo import approval_patches, cancellation, follower, pull, run_memory, run_pods
from workflows.engines.argo.follower import JUDGE, VERDICT
from workflows.engines.argo.home import Home, NoWorkflow
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.argo.workflow_objects import Workflow
from workflows.engines.folders import RunFolder, result_paths
from workflows.engines.local.result import News, NodeNews, RunNodeStatus

Observer = Callable[[News], None]
Hear = Callable[[], Mapping[str, Said]]
"""Function that asks the home cluster for the last words of a run's pods, by full node name. Raises StepError."""


_BAD = ("Failed", "Error")


@dataclass
class AwayProgress(Progress):
    """State of the view of a run on Argo, from records on this machine, last words of pods, and nodes' outputs and messages."""

    words: dict[str, Said] = field(default_factory=dict)
    """Last words of pods that ended well, by the full name of their node."""
    _heard: dict[tuple[str, str], dict[int, Said]] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)
    """Line that was printed for each node that failed without a last word; Argo updates such a node again while its pod ends."""

    def is_told_by_its_pod(self, node: RunNodeStatus) -> bool:
        """Return True if the node's pod ended well and its last word was not read yet."""
        ended = node.type == "Pod" and node.phase == "Succeeded"
        return ended and node.template in self.templates and node.path not in self.words

    def told(self, stage: str, task: str) -> Mapping[int, Said]:
        """Return the last words of a task by shard number; those read from pods replace older ones from records."""
        return {**super().told(stage, task), **self._heard.get((stage, task), {})}

    def word_of(self, stage: str, task: str, shard: int) -> Said | None:
        """Return the last word of one shard, from its pod or from a record that was read before."""
        return self._heard.get((stage, task), {}).get(shard) or super().word_of(stage, task, shard)

    def of_opening(self, node: RunNodeStatus) -> Said | None:
        """Return the last word of the task `open`, from its pod or from a record that was read before."""
        return last_word.of_node(node.message) or super().of_opening(node)

    def take(self, node: RunNodeStatus) -> list[str]:
        """Update the state by a node's news and return the lines to print for it."""
        word = last_word.of_node(node.message) or self.words.get(node.path)
        if word and node.template in self.templates:
            self._heard.setdefault(self.templates[node.template], {})[int(node.inputs.get("shard") or 0)] = word
        lines = super().take(node)
        if lines or node.finished is None or node.type != "Pod" or node.template not in self.templates:
            return lines
        # the pod left no last word, so outputs and message of the node must do
        stage, task = self.templates[node.template]
        row = self.rows[stage]
        if (stage, task) in self.graphs:
            return []
        if task == JUDGE:
            row.status = node.outputs.get(VERDICT) or "inconclusive"
            why = "" if row.status in ("pass", "skipped") else f"; why: bringup report {self.run}"
            return [f"{stage}: {row.status} ({node.finished - row.started:.1f} s){why}"]
        if task == approval.ANNOUNCE and node.phase in _BAD:
            return [f"{stage}: nobody could be told that it waits for an approval: bringup logs {stage}.{task}"]
        line = f"{stage}: {task} {node.phase}: {node.message}"
        if node.phase not in _BAD or self._failed.get(node.path) == line:
            return []
        self._failed[node.path] = line
        return [line]


def progress_on_argo(folder: RunFolder, where: HomeAddress) -> AwayProgress:
    """Return the initial state of the view of a run whose tasks are on this machine.

    The line about an open approval names no evidence, which is in the home cluster; `bringup approve` shows it.
    """
    how = approval.command(folder.name, namespace=where.namespace)
    store, graphs = Store(folder.home.store), planned_graphs(folder)
    return AwayProgress(planned_tasks(folder), folder.name, store, lambda _node: how, graphs=graphs)


class Listener:
    """A thread that hands news to a view in order, and asks the home cluster for the last words of pods that have ended.

    There is one request at a time, for all nodes that ended since the last one. If the home cluster does not answer within
    `patience` seconds, the view goes on without the words.
    """

    def __init__(
        self, screen: Screen, view: RunView, progress: AwayProgress, hear: Hear, patience: float = timeouts.LAST_WORDS
    ) -> None:
        self._screen, self._view, self._progress = screen, view, progress
        self._hear, self._patience = hear, patience
        self._asking = threading.Thread()
        self._news = queue.SimpleQueue[News | None]()
        self._asked: set[str] = set()
        self._complained = self._left = False
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._listen, name="live view", daemon=True)
        self._thread.start()

    def observe(self, news: News) -> None:
        """Queue a piece of news for the thread. Raises the error that kept earlier news from being shown."""
        self._check()
        self._news.put(news)

    def finish(self) -> None:
        """Show all queued news and end the thread, within `patience` seconds for a running request and as long again for a new one.

        Raises the error that kept news from being shown, which may be the last news of the run.
        """
        self._news.put(None)
        self._thread.join()
        self._check()

    def _check(self) -> None:
        if self._problem is not None:
            raise self._problem

    def leave(self) -> None:
        """Tell the thread to end without showing what is queued; return at once."""
        self._left = True
        self._news.put(None)

    def _listen(self) -> None:
        more = True
        while more and not self._left:
            batch = [self._news.get()]
            # take everything that is queued, so that one request to home serves all of it
            while not self._news.empty():
                batch.append(self._news.get())
            more = None not in batch
            if self._problem is None:
                self._take([news for news in batch if news is not None])

    def _take(self, news: Sequence[News]) -> None:
        try:
            self._ask(news)
            for item in news:
                if not self._left:
                    self._view.observe(item)
        except Exception as problem:  # noqa: BLE001 - the edge of a thread: it is raised where news are handed in
            self._problem = problem

    def _ask(self, news: Iterable[News]) -> None:
        ended = {item.node.path for item in news if isinstance(item, NodeNews) and self._progress.is_told_by_its_pod(item.node)}
        if not ended - self._asked or self._asking.is_alive():
            return
        self._asked |= ended
        self._asking = threading.Thread(target=self._listen_to_home, name="last words", daemon=True)
        self._asking.start()
        # a request that hangs is left behind, and the view goes on without its answer
        self._asking.join(self._patience)
        if self._asking.is_alive():
            self._complain(f"home has not answered in {self._patience:g} s")

    def _listen_to_home(self) -> None:
        try:
            self._progress.words.update(self._hear())
        except StepError as error:
            self._complain(str(error))
        except Exception as error:  # noqa: BLE001 - the edge of a thread: nobody waits for what it ends with, and the view can do without
            self._complain(f"{type(error).__name__}: {error}")

    def _complain(self, why: str) -> None:
        """Print a note once: a person who follows a run for hours needs no repetition."""
        if not self._complained and not self._left:
            self._screen.note(f"what gates say cannot be read now, bringup report {self._progress.run} tells it: {why}")
        self._complained = True


@contextmanager
def listening(screen: Screen, view: RunView, progress: AwayProgress, where: HomeAddress) -> Iterator[Observer]:
    """Show the live view of a run in this context and yield its observer. At a normal end all news have been shown."""

    @functools.cache
    def home() -> Home:
        return Home(where)  # a client of its own, made at first use: a client is not for two threads

    with view:
        listener = Listener(screen, view, progress, lambda: run_pods.last_words(home(), progress.run))
        try:
            yield listener.observe
            listener.finish()
        finally:
            listener.leave()


def watch(screen: Screen, away: ArgoRun) -> int:
    """Follow a run to its end, fetch its evidence and print its report; return the exit code.

    Ctrl-C and SIGTERM do not stop the run.
    """
    progress = progress_on_argo(away.folder, away.home.where)
    view = screen.view(progress)
    ended: Workflow | None = None
    with _interruptible(), _announced(away, view.say) as announcing:
        try:
            with listening(screen, view, progress, away.home.where) as show:
                ended = follower.follow(away.home, away.name, announcing(show), view.say)
        except KeyboardInterrupt:
            ending = "goes on in the home cluster; follow it again" if ended is None else "has ended; its evidence and report"
            screen.lines([f"run {away.name} {ending}: bringup watch {away.name}"])
            raise
    return conclude(screen, away, ended)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Handle SIGTERM in this context like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _announced(away: ArgoRun, say: follower.Say) -> Iterator[Callable[[Observer], Observer]]:
    """Yield a function that puts an announcer of approvals beside an observer, or changes nothing if no command announces here."""
    memory = run_memory.read(away.folder)
    if memory is None or not memory.telling:
        yield lambda observer: observer
        return
    # reading the evidence would take a pod and a while, so its digest is left out
    answer = "", approval.command(away.name, namespace=away.home.namespace)
    claim = approval_patches.claim(away.home.where, away.name)
    announcer = approval_announcer.Announcer(away.name, memory.telling, claim, lambda _node: answer, say)
    with closing(announcer):
        yield announcer.beside


def conclude(screen: Screen, away: ArgoRun, ended: Workflow) -> int:
    """Fetch an ended run's evidence, print its report and return the exit code: 0 only if the sealed evidence passed, too."""
    code, phase = follower.exit_code(ended.status.phase), f"{ended.status.phase} {cancellation.end_message(ended)}".rstrip()
    if cancellation.was_never_begun(ended):
        screen.lines(["", f"{NEVER_BEGUN}: {phase}"])
        return code or ExitCode.GATE_FAILED
    try:
        patiently(lambda: pull.pull(away.home, ended, away.folder))
    except (StepError, NoWorkflow) as error:
        screen.lines([f"it ended as {phase}, its evidence could not be read: {error}", *([error.hint] if error.hint else [])])
        screen.lines([f"try again: bringup watch {away.name}"])
        return code or ExitCode.TEMPORARY
    report, sealed = away.folder.stored / "report/report.txt", away.folder.stored / run_seal.FILE
    screen.lines(["", report.read_text().rstrip() if report.exists() else f"no report was written: {phase}"])
    if not sealed.exists():
        screen.lines(["", f"its exit handler did not finish, so nothing is sealed: bringup sweep {away.name}"])
        code = code or ExitCode.GATE_FAILED
    elif broken := verify.problems(away.folder.stored):
        screen.lines(["", f"its evidence is not what was sealed ({'; '.join(broken[:3])}): bringup verify {away.folder.stored}"])
        code = code or ExitCode.GATE_FAILED
    elif code == ExitCode.OK and (problem := objection(away, ended)):
        screen.lines(["", f"Argo says {ended.status.phase}, but {problem}"])
        code = ExitCode.GATE_FAILED
    screen.lines(["", *result_paths(away.folder)])
    return code


T = TypeVar("T")


def patiently(ask: Callable[[], T]) -> T:
    """Return what `ask` returns, calling it again while the API server is away.

    Raises Unreachable if it stays away for too long.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Unreachable),
        stop=tenacity.stop_after_delay(timeouts.CREDENTIAL_RENEWAL),
        wait=tenacity.wait_exponential(timeouts.WATCH_FIRST, max=timeouts.WATCH_MAX),
        reraise=True,
    )
    return retrying(ask)
