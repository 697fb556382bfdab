"""Gate of stack_test: every module loads, every command of the spec succeeds, and every ReFrame file has tests that all passed."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from steps.contract import plain_text
from steps.contract.verdict import FailureClass, Status, Verdict, passed
from steps.softwarestack.contract.stack_tests import PERFORMANCE, StackTestKind, StackTestOutcome, StackTestResult
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.stack_test.contract import StackTested, StackTestExpectation

GATE: Final = "stack_test/tests"
_MOST_NAMED: Final = 5
_SLOWEST: Final = 3
_ENDED: Final = {
    StackTestOutcome.FAIL: "failed",
    StackTestOutcome.TIMEOUT: "did not end within its time",
    StackTestOutcome.ERROR: "could not be run",
    StackTestOutcome.NOT_TESTED: "did not test the package",
}
_TITLES: Final = {
    StackTestKind.LOAD: "loading module {}",
    StackTestKind.COMMAND: "test {}",
    StackTestKind.REFRAME: "ReFrame test {}",
}
_STEPS: Final = {
    StackTestKind.LOAD: "correct the recipe of the module or of what it needs, and build again",
    StackTestKind.COMMAND: "see the test's output in the log; correct the package or the test, and build again",
    StackTestKind.REFRAME: "see the test's output in the log; correct the package or the test, and build again",
}


def tests(seen: StackTested, want: StackTestExpectation) -> Verdict:
    """Check that every wanted test has one result, a pass, in the tree of this stack; each ReFrame file has at least one."""
    wanted = len(want.loads) + len(want.commands) + len(want.reframe)
    if obstacle := next(_obstacles(seen, want, wanted), None):
        return obstacle.verdict(GATE)
    if findings := list(_findings(seen, want)):
        return _summed(findings)
    skipped = [result for result in seen.results if result.outcome is StackTestOutcome.NOT_TESTED]
    counts = Counter(result.kind for result in seen.results if result not in skipped)
    text = f"{plain_text.count(counts[StackTestKind.LOAD], 'module')} loaded"
    text += (
        f", {plain_text.count(counts[StackTestKind.COMMAND], 'command')} and {counts[StackTestKind.REFRAME]} ReFrame tests passed"
    )
    text += f", not tested: {plain_text.some([result.name for result in skipped], _MOST_NAMED)}" if skipped else ""
    text += "".join(f"; the CPU lacks {missing} for {target}" for target, missing in _left_out(seen).items())
    return passed(GATE, text, notes=[*_notes(seen), *(f"not tested: {result.name}: {result.output}" for result in skipped)])


def _obstacles(seen: StackTested, want: StackTestExpectation, wanted: int) -> Iterator[Finding]:
    """Yield the reasons for which the results say nothing about this stack."""
    if seen.problem:
        yield unknown(FailureClass.RUNTIME, f"the tests could not run: {seen.problem}", "results of all tests", "see the log")
    if seen.stack != want.stack:
        step = "render again, and submit all files together"
        yield unknown(FailureClass.INPUT, f"stack {seen.stack or 'unknown'} was tested", f"stack {want.stack}", step)
    if not seen.tree:
        step = "run again; if it stays so, report it as a bug"
        yield unknown(FailureClass.RUNTIME, "the results do not name the tree", "the digest of the tree that was tested", step)
    if not wanted:
        step = "add modules to the stack, or tests to the spec"
        yield unknown(FailureClass.INPUT, "no test is wanted", "at least one test", step)


def _findings(seen: StackTested, want: StackTestExpectation) -> Iterator[tuple[str, Finding]]:
    listed = ((StackTestKind.LOAD, want.loads), (StackTestKind.COMMAND, want.commands), (StackTestKind.REFRAME, seen.listed))
    for kind, names in listed:
        for name in names:
            number = sum(result.kind is kind and result.name == name for result in seen.results)
            if number != 1:
                sentence = f"{_TITLES[kind].format(name)} has {number or 'no'} result{'s' if number > 1 else ''}"
                yield name, unknown(FailureClass.RUNTIME, sentence, "one result of every test", "run again")
    unlisted = {result.name for result in seen.results if _lacks_cpu(seen, result)}
    for file in want.reframe:
        if file not in unlisted and not any(name.startswith(f"{file}: ") and len(name) > len(file) + 2 for name in seen.listed):
            step = "see why ReFrame selects no test of it: its systems, environments and features"
            yield file, unknown(FailureClass.RUNTIME, f"ReFrame ran no test of {file}", "at least one test of every file", step)
    for result in seen.results:
        if result.kind is StackTestKind.REFRAME and result.name not in seen.listed and result.name not in want.reframe:
            sentence = f"ReFrame test {result.name} has a result and was not listed before"
            yield result.name, unknown(FailureClass.RUNTIME, sentence, "results of the listed tests", "run again")
        is_skipped = result.outcome is StackTestOutcome.NOT_TESTED and result.name in want.skippable
        is_skipped = is_skipped or _lacks_cpu(seen, result)
        if result.outcome is not StackTestOutcome.PASS and not is_skipped:
            yield result.name, _of(result)

    if without_cpu := [result for result in seen.results if _lacks_cpu(seen, result)]:
        # a shipped test that skips itself has not run the package's code either
        runnable = [result for result in seen.results if result.kind is not StackTestKind.LOAD]
        if all(result.outcome is StackTestOutcome.NOT_TESTED for result in runnable):
            yield without_cpu[0].name, _nothing_ran(without_cpu[0], seen)


def _lacks_cpu(seen: StackTested, result: StackTestResult) -> bool:
    """Return True for a test that runs code, and was not run for a CPU target of which this machine's CPU lacks a feature."""
    runs_code = result.kind is not StackTestKind.LOAD
    return runs_code and result.outcome is StackTestOutcome.NOT_TESTED and bool(seen.lacking.get(result.target))


def _nothing_ran(result: StackTestResult, seen: StackTested) -> Finding:
    """Return the finding about a stack of which no code ran at all: nobody knows then if any of it does."""
    sentence = f"no test ran any code of the stack: the CPU of this machine lacks {seen.lacking[result.target]} for {result.target}"
    step = "build on a machine with such a CPU, add a target that this one runs, or leave all tests that run code out"
    return unknown(FailureClass.HARDWARE, sentence, "tests that ran", step)


def _left_out(seen: StackTested) -> dict[str, str]:
    """Return the CPU targets of which tests were not run, each with what the CPU lacks."""
    targets = {result.target for result in seen.results if _lacks_cpu(seen, result)}
    return {target: missing for target, missing in seen.lacking.items() if target in targets}


def _of(result: StackTestResult) -> Finding:
    sentence = f"{_TITLES[result.kind].format(result.name)} {_ENDED.get(result.outcome, result.outcome.value)}"
    sentence += f": {result.output}" if result.output else ""
    sentence += f" (tested because of this incident: {result.incident})" if result.incident else ""
    if result.output.startswith(PERFORMANCE):
        step = "see whether the machine is busy or the library slow; correct the reference only for another machine"
        return fail(FailureClass.PERFORMANCE, sentence, "a result within its reference", step)
    kind = FailureClass.RUNTIME if result.outcome is StackTestOutcome.ERROR else FailureClass.HEALTH
    return fail(kind, sentence, "a pass", _STEPS[result.kind])


def _summed(findings: list[tuple[str, Finding]]) -> Verdict:
    """Return the first finding of the worst kind as the gate's verdict, followed by the names of the other tests."""
    name, first = min(findings, key=lambda pair: _rank(pair[1]))
    others = sorted({other for other, _ in findings if other != name})
    tail = f"; also {plain_text.some(others, _MOST_NAMED)}" if others else ""
    return replace(first, seen=f"{plain_text.count(len(others) + 1, 'test')} did not pass: {first.seen}{tail}").verdict(GATE)


def _rank(finding: Finding) -> int:
    """Return 0 for a failed test, 1 for one that could not be run, which may be a consequence, 2 for one without a result."""
    if finding.status is not Status.FAIL:
        return 2
    return 1 if finding.failure_class is FailureClass.RUNTIME else 0


def _notes(seen: StackTested) -> list[str]:
    """Return notes on the slowest tests."""
    slowest = sorted(seen.results, key=lambda result: (-result.seconds, result.name))[:_SLOWEST]
    return [f"{_TITLES[result.kind].format(result.name)}: {result.seconds:.2f} s" for result in slowest]
