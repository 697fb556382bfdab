"""A console whose reader may leave: `bringup plan | head -1` is no error."""

from rich.console import Console

from workflows.cli import output


class Quiet(Console):
    """Falls silent when the reader of its pipe is gone, where rich would end the whole program with 1."""

    def on_broken_pipe(self) -> None:
        """What rich calls then."""
        self.quiet = True
        output.drop(self.file)
