"""The interface through which use cases print and ask while they work; `workflows/cli/output` implements it for a terminal."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from workflows.app.runs.run_progress import Progress
from workflows.engines.local.result import News


class RunView(AbstractContextManager["RunView"], Protocol):
    """The live view of a run, shown while its context is open; the engine calls `observe`."""

    def say(self, sentence: str) -> None:
        """Print a sentence, above the view while the view is shown."""

    def observe(self, news: News) -> None:
        """Show a piece of the engine's news."""


class StageBoard(AbstractContextManager["StageBoard"], Protocol):
    """A table of stages, drawn anew with each `show` while its context is open; on a terminal only."""

    def show(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Draw the table with these rows of (stage, status, reason)."""


class Screen(Protocol):
    """Output to a person or a script, and the person's answers."""

    def lines(self, rows: Iterable[str]) -> None:
        """Print lines of the command's result."""

    def note(self, message: str) -> None:
        """Print one sentence that is not part of the command's result."""

    def error(self, message: str, hint: str = "") -> None:
        """Print one sentence about what went wrong, and what to do next."""

    def can_ask(self) -> bool:
        """Return True if somebody is there to answer a question."""

    def confirm(self, question: str) -> bool:
        """Ask a yes-or-no question and return True for yes."""

    def view(self, progress: Progress, stopped: Callable[[], object] | None = None) -> RunView:
        """Return the live view of a run. `stopped` is called when the run begins to shut down."""

    def stage_table(self) -> StageBoard:
        """Return an empty table of stages for a person who watches a run."""
