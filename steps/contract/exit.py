"""Exit codes: how a step or a command tells its caller what happened."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of a bringup process. Never 2, which argument parsers of other tools use."""

    OK = 0
    """The record was written, the gate passed, or there was nothing to do."""
    BUG = 1
    """An unforeseen error."""
    USAGE = 64
    """A bad task, spec or command line (EX_USAGE)."""
    GATE_FAILED = 65
    """A gate failed or was still inconclusive at its deadline (EX_DATAERR)."""
    TEMPORARY = 75
    """A temporary failure: the same task may pass when it is retried (EX_TEMPFAIL)."""


RETRY_EXPRESSION = f"asInt(lastRetry.exitCode) == {int(ExitCode.TEMPORARY)}"
"""Retry expression of every rendered template: the error type decides the exit code, and the exit code decides the retry."""
