"""Tests of an installed stack, as data: each module loads, commands of the spec succeed, ReFrame tests pass."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

PERFORMANCE: Final = "performance: "
"""Beginning of the output of a test that ran well and missed its performance reference."""


class StackTestKind(StrEnum):
    """Kind of a test: a module is loaded, a command runs, or ReFrame runs a test."""

    LOAD = "load"
    COMMAND = "command"
    REFRAME = "reframe"


class StackTestOutcome(StrEnum):
    """Outcome of a test. `timeout`: it did not end within its time limit; `error`: it could not be run at all.

    `not_tested`: a shipped test says that the package was built without what it tests.
    """

    PASS = "pass"
    FAIL = "fail"
    TIMEOUT = "timeout"
    ERROR = "error"
    NOT_TESTED = "not_tested"


class StackTestResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one test; `output` is the end of its output, in one line of at most 400 characters.

    `value` is the figure that was compared with the test's reference, `incident` what went wrong where nobody tested this.
    """

    name: str
    kind: StackTestKind
    outcome: StackTestOutcome
    seconds: float = 0.0
    output: str = ""
    value: float | None = None
    incident: str = ""


class StackTested(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate stack_test/tests: results of the tests in the tree with this digest, of the stack with this digest.

    `listed` are the ReFrame tests that were to run, as ReFrame listed them before: `FILE: TEST`.
    """

    stack: str
    tree: str = ""
    listed: tuple[str, ...] = ()
    results: tuple[StackTestResult, ...] = ()
    problem: str = ""
