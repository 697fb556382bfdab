"""Types of stage image_sandbox: results of the tests in the image's root, and the expectation of its gate."""

from typing import Final

from msgspec import Struct

from steps.nodeimage.contract.image_tests import ExpectedTest, ImageTestResult

PRODUCT: Final = "nodeimage"
"""Folder of `steps` with the tasks and the report of this stage."""


class Sandboxed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate image_sandbox/tests: results of the tests that ran in the root of one image, without a boot.

    `problem` is the reason for which no sandbox could be started.
    """

    key: str
    results: tuple[ImageTestResult, ...] = ()
    seconds: float = 0.0
    problem: str = ""


class SandboxExpectation(Struct, frozen=True, kw_only=True):
    """Expectation of the gate image_sandbox/tests: the image's key and the names of its tests."""

    key: str
    tests: tuple[ExpectedTest, ...]
