"""The error tree of steps: the type decides the retry, the exit code and the failure class of the record.

StepError               1   runtime      a bug, or a cause that nobody foresaw
├── BadTask            64   input        the task, its environment or its files are wrong
├── Refused            65   permission   a write that must not happen: no right, wrong target, lost lease
│   └── Conflict       65   comparison   another manager owns the field
├── NotUnderstood      65   dependency   a server's answer has a form that this version does not know
└── Temporary          75   runtime      may pass when tried again
    ├── Unreachable    75                network, API server or SSH host does not answer
    │   └── Garbled    75                something answered that does not speak the server's language, as a proxy does
    └── StoreBusy      75                the store could not be written just now
"""

from steps.contract.exit import ExitCode
from steps.contract.verdict import FailureClass


class StepError(Exception):
    """Root of all errors that a step raises on purpose. `hint` says what to do about it."""

    exit_code: ExitCode = ExitCode.BUG
    failure_class: FailureClass = FailureClass.RUNTIME

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class BadTask(StepError):
    """The task file, its arguments, the environment or the fleet are not usable."""

    exit_code = ExitCode.USAGE
    failure_class = FailureClass.INPUT


class Refused(StepError):
    """A write was stopped before it happened."""

    exit_code = ExitCode.GATE_FAILED
    failure_class = FailureClass.PERMISSION


class Conflict(Refused):
    """Somebody else owns what would be changed."""

    failure_class = FailureClass.COMPARISON


class NotUnderstood(StepError):
    """A server answered in a form that is not known here: another version of it, or of a kind. To ask again would not help."""

    exit_code = ExitCode.GATE_FAILED
    failure_class = FailureClass.DEPENDENCY


class Temporary(StepError):
    """The same task may pass later; the engine retries it."""

    exit_code = ExitCode.TEMPORARY


class Unreachable(Temporary):
    """A server or host does not answer, or answers that it is overloaded."""


class Garbled(Unreachable):
    """What came back cannot be the server's own answer: a proxy's page, or one that was cut off."""


class StoreBusy(Temporary):
    """The run store cannot be written now: full, read-only or locked. `lapses`: in so many seconds a lock goes that its holder does
    not renew; 0 for what no waiting frees."""

    lapses: float = 0.0
