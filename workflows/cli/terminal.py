"""A rich console whose reader may close the pipe (`bringup plan | head -1` is no error), and the colours of run states."""

from rich.console import Console

from workflows.cli import streams

STATE_STYLES = {
    **dict.fromkeys(("pass", "reused", "Succeeded", "released"), "green"),
    **dict.fromkeys(("fail", "Failed", "Error", "unreadable"), "red"),
    **dict.fromkeys(("inconclusive", "interrupted"), "yellow"),
    **dict.fromkeys(("running", "Running"), "cyan"),
    **dict.fromkeys(("waiting",), "magenta"),
    **dict.fromkeys(("skipped", "to come", "not run"), "dim"),
}
"""Colours of states of runs, stages and tasks. A word that is no state has none."""


class QuietConsole(Console):
    """A rich console that falls silent when the reader of its pipe is gone; rich itself would exit with 1."""

    def on_broken_pipe(self) -> None:
        """Drop further output; rich calls this method at a broken pipe."""
        self.quiet = True
        streams.drop(self.file)
