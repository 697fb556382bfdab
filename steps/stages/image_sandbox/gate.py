"""Gate of image_sandbox: every test of the image ran in the image's root file system and passed."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from steps.contract import plain_text
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.nodeimage.contract.image_tests import SANDBOX_SECONDS, ExpectedTest, ImageTestOutcome, ImageTestResult
from steps.stages.image_sandbox.contract import Sandboxed, SandboxExpectation
from steps.stages.shared.finding import Finding, fail, unknown

GATE: Final = "image_sandbox/tests"
_MOST_NAMED: Final = 5
_SLOWEST: Final = 3
_STEP: Final = "correct the layer that brings it, and build again"
_ENDED: Final = {
    ImageTestOutcome.FAIL: "failed",
    ImageTestOutcome.TIMEOUT: "did not end within its time",
    ImageTestOutcome.ERROR: "could not be run",
}


def tests(seen: Sandboxed, want: SandboxExpectation) -> Verdict:
    """Check that every wanted test has one result, a pass; a failure is reported with the incident behind the test."""
    if seen.problem:
        return unknown(FailureClass.RUNTIME, seen.problem, "a sandbox to test the root in", "see the hint in the log").verdict(GATE)
    if seen.key != want.key:
        sentence = f"the image of {seen.key[:12] or 'no key'} was tested"
        step = "build with the recipe that was planned"
        return fail(FailureClass.COMPARISON, sentence, f"that of {want.key[:12]}", step).verdict(GATE, final=True)
    if not want.tests:
        no_tests = unknown(FailureClass.INPUT, "no test is asked for", "at least one test", "give the recipe tests")
        return no_tests.verdict(GATE)
    if findings := list(_findings(seen, want)):
        return _summed(findings, len(want.tests))
    return passed(GATE, f"{len(want.tests)} tests passed in {seen.seconds:.1f} s", notes=_notes(seen))


def _findings(seen: Sandboxed, want: SandboxExpectation) -> Iterator[tuple[str, Finding]]:
    results: dict[str, list[ImageTestResult]] = {}
    for result in seen.results:
        results.setdefault(result.name, []).append(result)
    for case in want.tests:
        own = results.get(case.name, [])
        if len(own) != 1:
            number = f"{case.name} has {len(own) or 'no'} result{'s' if own else ''}"
            yield case.name, unknown(FailureClass.RUNTIME, number, "one result of every test", "build again")
        for result in own:
            if result.outcome is not ImageTestOutcome.PASS:
                yield case.name, _of(case, result)
    wanted = {case.name for case in want.tests}
    for result in seen.results:
        if result.name not in wanted and result.outcome is not ImageTestOutcome.PASS:
            yield result.name, _of(ExpectedTest(name=result.name), result)


def _of(case: ExpectedTest, result: ImageTestResult) -> Finding:
    sentence = f"{case.name} {_ENDED.get(result.outcome, result.outcome.value)}"
    sentence += f": {result.output}" if result.output else ""
    expected = f"a pass, since {case.incident.rstrip('.')}" if case.incident else "a pass"
    kind = FailureClass.RUNTIME if result.outcome is ImageTestOutcome.ERROR else FailureClass.HEALTH
    return fail(kind, sentence, expected, case.next_step or _STEP)


def _summed(findings: list[tuple[str, Finding]], tests_wanted: int) -> Verdict:
    """Return the first failed finding, else the first finding, as the gate's verdict, followed by the names of the other tests."""
    name, first = next((pair for pair in findings if pair[1].status == "fail"), findings[0])
    others = sorted({other for other, _ in findings if other != name})
    tail = f"; also {plain_text.some(others, _MOST_NAMED)}" if others else ""
    whole = f"{len(others) + 1} of {tests_wanted} tests did not pass: {first.seen}{tail}"
    return replace(first, seen=whole).verdict(GATE)


def _notes(seen: Sandboxed) -> list[str]:
    """Return notes on the slowest tests, and on each that took longer than `SANDBOX_SECONDS`."""
    slowest = sorted(seen.results, key=lambda result: (-result.seconds, result.name))
    over = sum(result.seconds > SANDBOX_SECONDS for result in slowest)
    marks = [f", over {SANDBOX_SECONDS:g} s"] * over + [""] * _SLOWEST
    shown = slowest[: max(over, _SLOWEST)]
    return [f"{result.name}: {result.seconds:.2f} s{mark}" for result, mark in zip(shown, marks, strict=False)]
