"""Listens to a run on Argo for its live view, in a thread: what home is asked for never holds up who follows the run."""

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
from workflows.engines.argo import last_words
from workflows.engines.argo.home import Home, Where
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import News, NodeNews

Observer = Callable[[News], None]


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
        """Take a piece of news. Raises what kept an earlier one from being shown, whatever that was."""
        self._check()
        self._news.put(news)

    def finish(self) -> None:
        """Show what came so far; to ask for it takes `patience` at the most, and as long again for what is under way.

        Raises what kept something from being shown, as `observe` does: the last news of all may be the one.
        """
        self._news.put(None)
        self._thread.join()
        self._check()

    def _check(self) -> None:
        if self._problem is not None:
            raise self._problem

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
        except Exception as error:  # noqa: BLE001 - the edge of a thread: nobody waits for what it ends with, and the view can do without
            self._complain(f"{type(error).__name__}: {error}")

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
    progress = argo_live.progress(folder, where)
    with live.View(progress, console) as view:
        listener = Listener(view, progress, _hearing(where, folder.name))
        try:
            yield listener.observe
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
