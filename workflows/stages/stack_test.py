"""Stage stack_test: load every module of the installed tree, and run the tests of the spec in it."""

from __future__ import annotations

from typing import Final

from workflows.stages.stack_site import StackSite, part_step, stack_stage
from workflows.stages.stage import Stage

ID: Final = "stack_test"
GATE: Final = "stack_test/tests"
PART: Final = "test"
MARGIN: Final = 600
"""Seconds beside the tests' own limits."""


def build(site: StackSite) -> Stage:
    """Return stage stack_test: one task that runs all tests."""
    stack, limits = site.stack, site.stack.limits
    seconds = len(stack.installed) * limits.load_seconds + sum(test.timeout_seconds for test in stack.tests)
    seconds += limits.reframe_seconds if stack.reframe else 0
    return stack_stage(ID, "Tests", GATE, part_step(site, ID, PART, GATE, deadline=seconds + MARGIN))
