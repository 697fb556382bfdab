"""Parts of a stack: the function of each, what its gate expects, and which exit code its result means."""

from collections.abc import Callable
from typing import Any, Final

from steps.contract.exit import ExitCode
from steps.runtime.context import Context
from steps.softwarestack import tree_parts
from steps.softwarestack.builds import package_builds
from steps.softwarestack.contract.stack_tests import StackTested, load_names, reframe_names
from steps.softwarestack.contract.tree_check import TreeObservation
from steps.softwarestack.task_input import PACKAGE, TEST, TREE, StackBuildInput
from steps.stages.stack_build.contract import BatchBuilt

StackSeen = BatchBuilt | TreeObservation | StackTested
PARTS: Final[dict[str, Callable[[Context, StackBuildInput], StackSeen]]] = {
    PACKAGE: package_builds.build,
    TREE: tree_parts.assemble_tree,
    TEST: tree_parts.test_tree,
}
"""Name of each part → its function, in running order."""


def gate_expectation(context: Context, build: StackBuildInput) -> dict[str, Any]:
    """Return the task's expectation for the gate, with what only the stack beside the task knows."""
    expectation, stack = dict(context.task.expectations), build.stack
    if build.wanted.part == PACKAGE:
        expectation["packages"] = build.batch.packages
    elif build.wanted.part == TREE:
        modules = sum(bool(package.module) for package in stack.installed)
        expectation |= {"key": stack.key, "packages": len(stack.installed), "modules": modules}
        expectation |= {"largest": stack.limits.tree_bytes, "view": stack.view is not None}
    elif build.wanted.part == TEST:
        expectation |= {
            "loads": load_names(stack),
            "commands": [test.name for test in stack.tests],
            "skippable": [test.name for test in stack.tests if test.may_skip],
            "reframe": reframe_names(stack),
        }
    return expectation


def exit_code(seen: StackSeen) -> ExitCode:
    """Return the exit code of a part's task: OK once its record is written, except for batches that nothing can be built upon.

    A batch of which nothing is available ends with GATE_FAILED, so that engines leave out the builds that need it; a failure that
    another attempt may not have ends with TEMPORARY.
    """
    if not isinstance(seen, BatchBuilt):
        return ExitCode.OK
    if any(package.retry for package in seen.packages):
        return ExitCode.TEMPORARY
    return ExitCode.OK if any(package.is_available for package in seen.packages) else ExitCode.GATE_FAILED
