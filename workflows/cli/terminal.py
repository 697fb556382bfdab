"""A rich console whose reader may close the pipe (`bringup plan | head -1` is no error), and the colours of run states."""

import re

from rich.console import Console
from rich.text import Text

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

_SEVERITY_STYLES = {"error": "red", "warning": "yellow"}
_STATE = re.compile(rf"(?:(?<=  )|(?<=: ))(?:{'|'.join(STATE_STYLES)})(?=  |:|$)", re.MULTILINE)
"""A state as a column or after a colon: the same word within a sentence has no colour."""
_SEVERITY = re.compile(r"^ {0,2}(?:error|warning)(?= )", re.MULTILINE)


def with_colours(text: str) -> Text:
    """Return lines with their states, and with `error` and `warning` at the beginning of a line, in colour."""
    coloured = Text(text)
    for pattern, styles in ((_STATE, STATE_STYLES), (_SEVERITY, _SEVERITY_STYLES)):
        for match in pattern.finditer(text):
            coloured.stylize(styles[match[0].strip()], *match.span())
    return coloured


class QuietConsole(Console):
    """A rich console that falls silent when the reader of its pipe is gone; rich itself would exit with 1."""

    def on_broken_pipe(self) -> None:
        """Drop further output; rich calls this method at a broken pipe."""
        self.quiet = True
        streams.drop(self.file)
