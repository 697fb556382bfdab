"""Types of stage stack_test: the observation of its gate is `StackTested`; here is the expectation."""

from typing import Final

from msgspec import Struct

from steps.softwarestack.contract.stack_tests import StackTested

PRODUCT: Final = "softwarestack"
"""Folder of `steps` with the tasks and the report of this stage."""


class StackTestExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expectation of the gate stack_test/tests, read beside the task except `stack`: each of these tests passed exactly once.

    `loads` are the modules that must load, `commands` names of tests, of which `skippable` may say that the package was built
    without what they test, `reframe` are the files with ReFrame tests, each of which must have brought a result named
    `FILE: TEST`.
    """

    stack: str
    loads: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    skippable: tuple[str, ...] = ()
    reframe: tuple[str, ...] = ()


__all__ = ["PRODUCT", "StackTestExpectation", "StackTested"]
