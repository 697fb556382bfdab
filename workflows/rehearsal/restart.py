"""The command that starts an interrupted rehearsal again. A rehearsal cannot be resumed: its simulated cluster ended with it."""

from workflows.engines.folders import RunFolder

RESTART_FILE = "again"
"""Name of the file in a rehearsal's input folder that holds the command to start it again."""


class CannotResume(ValueError):
    """Raised on resuming a rehearsal, whose simulated cluster ended with it; `hint` is the command that starts it again."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


def restart_command(folder: RunFolder) -> str:
    """Return the command that starts a rehearsal again; an empty text if the run is on real hosts."""
    kept = folder.inputs / RESTART_FILE
    return kept.read_text() if kept.exists() else ""


def refuse_resuming(folder: RunFolder) -> None:
    """Raise CannotResume if the run is a rehearsal; return otherwise."""
    if command := restart_command(folder):
        raise CannotResume(f"{folder.name} was a rehearsal; its simulated cluster ended with it", f"start it again: {command}")
