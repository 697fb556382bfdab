"""Tests of an installed stack, as data: each module loads, commands of the spec succeed, ReFrame tests pass."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from steps.softwarestack.contract.stack_input import BEST, StackInput, choice_module

PERFORMANCE: Final = "performance: "
"""Beginning of the output of a test that ran well and missed its performance reference."""


def name_for(name: str, target: str) -> str:
    """Return the name of a test that runs once for each CPU target of a stack; without a target it has its own name."""
    return f"{name} for {target}" if target else name


def load_names(stack: StackInput) -> list[str]:
    """Return the names of the tests that load a module: one for each, and one for the choice of a CPU target."""
    modules = [stack.module_title(package) for package in stack.installed if package.module]
    return [*modules, choice_name(stack)] if stack.targets else modules


def choice_name(stack: StackInput) -> str:
    """Return the name of the test of the module that chooses the CPU target of a node."""
    return f"{BEST}/{choice_module(stack.name)}"


def reframe_names(stack: StackInput) -> list[str]:
    """Return the names of the ReFrame files of a stack, once for each of several CPU targets."""
    return [name_for(file.path, target) for target in stack.targets or ("",) for file in stack.reframe]


class StackTestKind(StrEnum):
    """Kind of a test: a module is loaded, a command runs, or ReFrame runs a test."""

    LOAD = "load"
    COMMAND = "command"
    REFRAME = "reframe"


class StackTestOutcome(StrEnum):
    """Outcome of a test. `timeout`: it did not end within its time limit; `error`: it could not be run at all.

    `not_tested`: a shipped test says that the package was built without what it tests, or the CPU of the machine lacks what the
    code of the packages needs.
    """

    PASS = "pass"
    FAIL = "fail"
    TIMEOUT = "timeout"
    ERROR = "error"
    NOT_TESTED = "not_tested"


class StackTestResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one test; `output` is the end of its output, in one line of at most 400 characters.

    `value` is the figure that was compared with the test's reference, `incident` what went wrong where nobody tested this. `target`
    is the CPU target because of which it was not run.
    """

    name: str
    kind: StackTestKind
    outcome: StackTestOutcome
    seconds: float = 0.0
    output: str = ""
    value: float | None = None
    incident: str = ""
    target: str = ""


class StackTested(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate stack_test/tests: results of the tests in the tree with this digest, of the stack with this digest.

    `listed` are the ReFrame tests that were to run, as ReFrame listed them before: `FILE: TEST`. `lacking` has the CPU targets of
    packages that the machine's CPU does not run, each with the features that it lacks.
    """

    stack: str
    tree: str = ""
    listed: tuple[str, ...] = ()
    results: tuple[StackTestResult, ...] = ()
    lacking: dict[str, str] = {}
    problem: str = ""
