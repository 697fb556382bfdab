"""Gate of stack_publish: users get exactly the stack that was tested, with all its packages, and nothing leads out of the root."""

from collections.abc import Iterator
from typing import Final

from steps.contract import plain_text
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.softwarestack.contract.stack_tests import StackTestOutcome
from steps.stages.shared import gate_releases
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.shared.gate_releases import ReleaseWords, some
from steps.stages.stack_publish.contract import PublishedStack, VersionExpectation

GATE: Final = "stack_publish/version"
_GOOD: Final = (StackTestOutcome.PASS, StackTestOutcome.NOT_TESTED)
"""Outcomes with which gate stack_test/tests lets a stack be published."""
_WORDS: Final = ReleaseWords(
    command="bringup stack", server="the machine with the published folder", detached="nodes must not need the factory"
)


def version(seen: PublishedStack, want: VersionExpectation) -> Verdict:
    """Check that the pointer names a whole version of this stack, whose packages are there, and that nothing leads out."""
    if first := next(_findings(seen, want), None):
        return first.verdict(GATE)
    how = "is current already: nothing was written" if seen.unchanged else "is current"
    was = f", it was {seen.before}" if seen.before and not seen.unchanged else ""
    signed = ", signed" if seen.signature == "good" else ""
    copied = "" if seen.unchanged else f" ({seen.copied} copied)"
    packages = f"{plain_text.count(seen.packages, 'package')}{copied}"
    return passed(GATE, f"{seen.version} {how}{was}: {packages}, {seen.size / 1e6:.1f} MB{signed}")


def _findings(seen: PublishedStack, want: VersionExpectation) -> Iterator[Finding]:
    yield from gate_releases.read_findings(seen, _WORDS)
    yield from _stack(seen, want)
    yield from gate_releases.file_findings(seen, _WORDS)
    yield from _packages(seen, want)
    yield from _tests(seen, want)
    yield from gate_releases.statement_findings(seen)
    yield from gate_releases.signature_findings(seen, signed=want.signed)
    yield from gate_releases.tree_findings(seen, _WORDS, want.keep)


def _stack(seen: PublishedStack, want: VersionExpectation) -> Iterator[Finding]:
    if not (want.name and want.key and want.tree):
        expected = "the stack and the tree that this run tested"
        yield unknown(FailureClass.INPUT, "nobody says which stack was wanted", expected, "render again and submit both together")
    step = "run the whole pipeline again; see who else publishes into this folder"
    if seen.name != want.name:
        yield fail(FailureClass.COMPARISON, f"the version is of stack {seen.name or 'none'}", f"stack {want.name}", step)
    if seen.key != want.key:
        key = f"the version is of the stack {seen.key[:19] or 'of no digest'}"
        yield fail(FailureClass.COMPARISON, key, f"{want.key[:19]}, the digest of this stack", step)
    if seen.tree != want.tree:
        tree = f"the tree {seen.tree[:19] or 'of no digest'} was published"
        yield fail(FailureClass.COMPARISON, tree, f"{want.tree[:19]}, the one that was tested", step)


def _packages(seen: PublishedStack, want: VersionExpectation) -> Iterator[Finding]:
    step = "publish again, which copies missing packages; see who removed them"
    if seen.missing_packages:
        missing = f"packages are missing: {some(seen.missing_packages)}"
        yield fail(FailureClass.APPLY, missing, "all packages that the version names", step)
    if seen.wrong_packages:
        wrong = f"packages differ from the manifest: {some(seen.wrong_packages)}"
        step = "roll back, see who wrote into the published packages; `bringup stack verify` names everything"
        yield fail(FailureClass.COMPARISON, wrong, "the files that the manifest stands for", step)
    if seen.packages != want.packages or not want.packages:
        packages = f"the version names {plain_text.count(seen.packages, 'package')}"
        step = "see the lock and the manifest; run the whole pipeline again"
        yield fail(FailureClass.COMPARISON, packages, f"the {want.packages} of the lock", step)
    if not seen.size:
        yield unknown(FailureClass.INPUT, "the version has packages of 0 bytes", "the bytes of its packages", step)
    if seen.wrong_modules:
        step = "see the module settings of the recipe; module files may lead to packages of the stack and its own modules"
        modules = f"module files lead elsewhere: {some(seen.wrong_modules)}"
        yield fail(FailureClass.COMPARISON, modules, "packages of this version, and modules by way of the pointer", step)


def _tests(seen: PublishedStack, want: VersionExpectation) -> Iterator[Finding]:
    step = "run the whole pipeline again: a stack is published only by the run that tested it"
    if failed := sorted(name for name, outcome in seen.tests.items() if outcome not in _GOOD):
        yield fail(FailureClass.COMPARISON, f"tests of the version did not pass: {some(failed)}", "tests that passed", step)
    lacking = [name for name in want.tests if not any(test == name or test.startswith(f"{name}: ") for test in seen.tests)]
    if lacking:
        yield fail(FailureClass.COMPARISON, f"the version has no result of {some(lacking)}", "a result of each test", step)
    if not seen.tests:
        yield unknown(FailureClass.INPUT, "the version has no result of any test", "results of the run that published it", step)
