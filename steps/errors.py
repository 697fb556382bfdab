"""The error tree of steps: the type decides the retry and the exit code.

StepError                       1   a bug, or a cause that nobody foresaw
├── BadTask                    64   the task, its environment or its files are wrong
├── GateFailed                 65   a gate failed or stayed inconclusive; the record is written
├── Refused                    65   a write that must not happen: wrong target, lost lease, foreign field owner
└── Temporary                  75   may pass when tried again
    ├── Unreachable            75   network, API server or SSH host does not answer
    └── StoreBusy              75   the store could not be written just now
"""

from steps.contract.exit import ExitCode


class StepError(Exception):
    """Root of all errors that a step raises on purpose. `hint` says what to do about it."""

    exit_code: ExitCode = ExitCode.BUG

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class BadTask(StepError):
    """The task file, its arguments, the environment or the fleet are not usable."""

    exit_code = ExitCode.USAGE


class GateFailed(StepError):
    """A gate did not pass; its evidence is stored."""

    exit_code = ExitCode.GATE_FAILED


class Refused(StepError):
    """A write was stopped before it happened."""

    exit_code = ExitCode.GATE_FAILED


class Temporary(StepError):
    """The same task may pass later; the engine retries it."""

    exit_code = ExitCode.TEMPORARY


class Unreachable(Temporary):
    """A server or host does not answer, or answers that it is overloaded."""


class StoreBusy(Temporary):
    """The run store cannot be written now: full, read-only or locked."""
