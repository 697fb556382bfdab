"""A console whose reader may close the pipe: `bringup plan | head -1` is no error."""

from rich.console import Console

from workflows.cli import output


class Quiet(Console):
    """A rich console that falls silent when the reader of its pipe is gone; rich itself would exit with 1."""

    def on_broken_pipe(self) -> None:
        """Drop further output; rich calls this method at a broken pipe."""
        self.quiet = True
        output.drop(self.file)
