"""Types of stage image_sandbox: results of the tests in the image's root, and the expectation of its gate."""

from typing import Final

from msgspec import Struct

from steps.nodeimage.contract.image_tests import ExpectedTest, ImageTestResult

PRODUCT: Final = "nodeimage"
"""Folder of `steps` with the tasks and the report of this stage."""


class Sandboxed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Results of the tests in the root of one image. `problem` is the reason for which no sandbox could be started."""

    key: str
    results: tuple[ImageTestResult, ...] = ()
    seconds: float = 0.0
    problem: str = ""


class SandboxExpectation(Struct, frozen=True, kw_only=True):
    """The image's key and all its tests."""

    key: str
    tests: tuple[ExpectedTest, ...]
