"""Notes of the sandbox gate beside its verdict: the slowest tests, and each that took longer than a test should."""

import pytest

from steps.nodeimage.contract.image_tests import ExpectedTest, ImageTestOutcome, ImageTestResult
from steps.stages.image_sandbox import gate as image_sandbox
from steps.stages.image_sandbox.contract import Sandboxed, SandboxExpectation


@pytest.mark.parametrize(
    ("seconds", "notes"),
    [
        ((0.2, 0.1, 0.3, 1.0), ["d: 1.00 s", "c: 0.30 s", "a: 0.20 s"]),
        ((2.0, 0.1, 0.3, 0.2), ["a: 2.00 s, over 1 s", "c: 0.30 s", "d: 0.20 s"]),
        ((2.0, 1.5, 3.0, 1.1), ["c: 3.00 s, over 1 s", "a: 2.00 s, over 1 s", "b: 1.50 s, over 1 s", "d: 1.10 s, over 1 s"]),
    ],
    ids=["none is slow", "one is", "all are"],
)
def test_slow_tests_are_noted_and_fail_nothing(seconds: tuple[float, ...], notes: list[str]) -> None:
    results = tuple(
        ImageTestResult(name=name, outcome=ImageTestOutcome.PASS, seconds=took) for name, took in zip("abcd", seconds, strict=True)
    )
    verdict = image_sandbox.tests(
        Sandboxed(key="k", results=results, seconds=sum(seconds)),
        SandboxExpectation(key="k", tests=tuple(ExpectedTest(name=name) for name in "abcd")),
    )
    assert verdict.is_pass
    assert list(verdict.notes) == notes
