"""The command that starts an interrupted rehearsal again: its simulated cluster ended with it, so it cannot be resumed."""

from workflows.engines.folders import RunFolder

RESTART_FILE = "again"
"""File beside the inputs of a rehearsal that holds the command to start it again."""


class CannotResume(ValueError):
    """A rehearsal cannot be resumed, because its simulated cluster ended with its engine. `hint` is the command that starts it
    again.
    """

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


def restart_command(folder: RunFolder) -> str:
    """Return the command that starts a rehearsal again; empty for a run on real hosts."""
    kept = folder.inputs / RESTART_FILE
    return kept.read_text() if kept.exists() else ""


def refuse_resuming(folder: RunFolder) -> None:
    """Raise CannotResume if the run was a rehearsal."""
    if command := restart_command(folder):
        raise CannotResume(f"{folder.name} was a rehearsal; its simulated cluster ended with it", f"start it again: {command}")
