"""The error tree of steps. The type of an error decides the retry, the exit code and the failure class of the record.

StepError               1   runtime      a bug, or an unforeseen cause
├── BadTask            64   input        the task, its environment or its files are wrong
├── Refused            65   permission   a write that must not happen: no right, wrong target, lost lease
│   └── Conflict       65   comparison   another manager owns the field
├── NotUnderstood      65   dependency   a server's answer has a form that this version does not know
└── Temporary          75   runtime      the same task may pass when tried again
    ├── Unreachable    75   runtime      network, API server or SSH host does not answer
    │   └── Garbled    75   runtime      an answer that is not in the server's language, such as a proxy's page
    └── StoreBusy      75   runtime      the store could not be written just now
"""

from steps.contract.exit import ExitCode
from steps.contract.verdict import FailureClass


class StepError(Exception):
    """Root of all errors that a step raises on purpose. `hint` says what to do about the error."""

    exit_code: ExitCode = ExitCode.BUG
    failure_class: FailureClass = FailureClass.RUNTIME

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class BadTask(StepError):
    """Raised if the task file, its arguments, the environment or the fleet files are not usable."""

    exit_code = ExitCode.USAGE
    failure_class = FailureClass.INPUT


class Refused(StepError):
    """Raised to stop a write before it happens: the right is missing, the target is wrong, or another run holds it."""

    exit_code = ExitCode.GATE_FAILED
    failure_class = FailureClass.PERMISSION


class Conflict(Refused):
    """Raised if another field manager owns what would be changed."""

    failure_class = FailureClass.COMPARISON


class NotUnderstood(StepError):
    """Raised if a server answers in a form that this version does not know, such as a newer API version. A retry does not help."""

    exit_code = ExitCode.GATE_FAILED
    failure_class = FailureClass.DEPENDENCY


class Temporary(StepError):
    """Raised for a failure after which the same task may pass, so the engine retries the task."""

    exit_code = ExitCode.TEMPORARY


class Unreachable(Temporary):
    """Raised if a server or host does not answer, or answers that it is overloaded."""


class Garbled(Unreachable):
    """Raised if a response cannot be the server's own: it is a proxy's page, or was cut off."""


class StoreBusy(Temporary):
    """Raised if the run store or a release tree cannot be written now: it is full, read-only or locked.

    `lapses` is the number of seconds after which a lock expires if its holder does not renew it; 0 if waiting does not help.
    """

    lapses: float = 0.0
