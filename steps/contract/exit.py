"""The exit-code table (design §4): how a step or a command tells its caller what happened."""

from enum import IntEnum


class ExitCode(IntEnum):
    """What a process of ours ends with. Never 2: argument parsers of other tools use it."""

    OK = 0
    """The record was written, the gate passed, or there was nothing to do."""
    BUG = 1
    """An error that nobody foresaw."""
    USAGE = 64
    """A bad task, spec or command line (EX_USAGE)."""
    GATE_FAILED = 65
    """A gate failed or was still inconclusive at its deadline (EX_DATAERR)."""
    TEMPORARY = 75
    """Temporary: the same task may pass when it is tried again (EX_TEMPFAIL)."""


RETRY_EXPRESSION = f"asInt(lastRetry.exitCode) == {int(ExitCode.TEMPORARY)}"
"""The retry expression of every rendered template: the error type decided the code, the code decides the retry."""
