"""The thread that feeds the live view of a run on Argo: slow requests to home never delay the command that follows the run."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from rich.console import Console

from steps import timeouts
from steps.contract.last_word import Said
from steps.errors import StepError
from workflows.cli import output
from workflows.cli.argo import live as argo_live
from workflows.cli.argo.live import AwayProgress
from workflows.cli.runs import live
from workflows.engines.argo import run_pods
from workflows.engines.argo.home import Home, HomeAddress
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import News, NodeNews

Observer = Callable[[News], None]


Hear = Callable[[], Mapping[str, Said]]
"""Function that asks home for the last words of pods. Raises StepError."""


class Listener:
    """A thread that hands news to a view in order, and asks home for the last words of pods that have ended.

    There is one request at a time, for all nodes that ended since the last one. If home does not answer within `patience` seconds,
    the view goes on without.
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
        """Take a piece of news. Raises the error that kept earlier news from being shown."""
        self._check()
        self._news.put(news)

    def finish(self) -> None:
        """Show all news so far, within `patience` seconds for a request under way and as long again for a new one.

        Raises the error that kept news from being shown, as `observe` does: the last news of all may be the one.
        """
        self._news.put(None)
        self._thread.join()
        self._check()

    def _check(self) -> None:
        if self._problem is not None:
            raise self._problem

    def leave(self) -> None:
        """Stop showing news."""
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
                self._take([one for one in batch if one is not None])

    def _take(self, news: Sequence[News]) -> None:
        try:
            self._ask(news)
            self._show(news)
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
            output.note(f"what gates say cannot be read now, bringup report {self._progress.run} tells it: {why}")
        self._complained = True

    def _show(self, news: Iterable[News]) -> None:
        for item in news:
            if self._left:
                return
            self._view.observe(item)


@contextmanager
def shown(folder: RunFolder, console: Console, where: HomeAddress) -> Iterator[Observer]:
    """Show the live view of a run whose tasks are known here, and give its observer. At a normal end all news have been shown."""
    progress = argo_live.progress(folder, where)
    with live.View(progress, console) as view:
        listener = Listener(view, progress, _hearing(where, folder.name))
        try:
            yield listener.observe
            listener.finish()
        finally:
            listener.leave()


def _hearing(where: HomeAddress, run: str) -> Hear:
    """Return a function that asks home with a client of its own, created at first use: a client is not for two threads."""
    clients: list[Home] = []

    def hear() -> Mapping[str, Said]:
        if not clients:
            clients.append(Home(where))
        return run_pods.last_words(clients[0], run)

    return hear
