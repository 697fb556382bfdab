"""The screen that use cases speak to while they work; `workflows/cli/output` is one, on a terminal."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from workflows.app.runs.run_progress import Progress
from workflows.engines.local.result import News


class RunView(AbstractContextManager["RunView"], Protocol):
    """The live view of a run, shown while its context is open; give `observe` to the engine."""

    def say(self, sentence: str) -> None:
        """Print a sentence, above the view while the view is shown."""

    def observe(self, news: News) -> None:
        """Take a piece of the engine's news."""


class StageBoard(AbstractContextManager["StageBoard"], Protocol):
    """A table of stages that is drawn anew with each `show`, while its context is open. A script's output has none."""

    def show(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Draw rows of stage, status and reason."""


class Screen(Protocol):
    """A person's or a script's output, and the person's answers."""

    def lines(self, rows: Iterable[str]) -> None:
        """Print lines of the answer."""

    def note(self, message: str) -> None:
        """Print one sentence that is no part of the answer."""

    def error(self, message: str, hint: str = "") -> None:
        """Print one sentence about what went wrong, and what to do next."""

    def can_ask(self) -> bool:
        """Return True if somebody is there to answer a question."""

    def confirm(self, question: str) -> bool:
        """Ask a question and return the answer."""

    def view(self, progress: Progress, stopped: Callable[[], object] | None = None) -> RunView:
        """Return the live view of a run. `stopped` is called when the run is ended."""

    def stage_table(self) -> StageBoard:
        """Return the table of stages for a person who watches a run."""
