"""Gate of stack_build: each package of a batch is in the build cache, built now or found there."""

from collections.abc import Iterator
from typing import Final

from steps.contract import plain_text
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.softwarestack.contract.package_build import BuildFailure, BuildOutcome, PackageBuilt
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.stack_build.contract import BatchBuilt, BatchExpectation

GATE: Final = "stack_build/batch"
_MOST_NAMED: Final = 3
_LONGEST_LINES: Final = 400
_RECIPE: Final = "correct its easyconfig or recipe, lock again, and build"
_CAUSES: Final = {
    BuildFailure.FETCH: (FailureClass.DEPENDENCY, "put the archive into a folder of sources, or see the proxy and the mirror"),
    BuildFailure.CHECKSUM: (FailureClass.COMPARISON, "see who changed the archive; if it is right, lock its checksum"),
    BuildFailure.INPUT: (FailureClass.INPUT, "correct what it names, lock again, and build"),
    BuildFailure.DEPENDENCY: (FailureClass.DEPENDENCY, "add what is missing as a dependency, lock again, and build"),
    BuildFailure.COMPILE: (FailureClass.RUNTIME, _RECIPE),
    BuildFailure.TEST: (FailureClass.RUNTIME, _RECIPE),
    BuildFailure.SANITY: (FailureClass.HEALTH, _RECIPE),
    BuildFailure.DISK_FULL: (FailureClass.DEPENDENCY, "make room where packages are built and cached, and build again"),
    BuildFailure.LOCK_TIMEOUT: (FailureClass.RUNTIME, "see which build holds the lock, and build again"),
    BuildFailure.MEMORY: (FailureClass.RUNTIME, "give its size class more memory or fewer jobs, and build again"),
    BuildFailure.PERMISSION: (FailureClass.PERMISSION, "give the builder that file, folder or repository, and build again"),
    BuildFailure.TAMPERED: (
        FailureClass.COMPARISON,
        "see who wrote into the build cache; remove the entry by hand, and build again",
    ),
    BuildFailure.UNSIGNED: (FailureClass.PERMISSION, "remove the entry from the cache, or trust its key: package_signing.signers"),
    BuildFailure.REGISTRY: (FailureClass.DEPENDENCY, "see that the registry is up and reachable from where packages are built"),
    BuildFailure.TIME: (FailureClass.RUNTIME, "raise limits.build, or see in the log what it waits for"),
    BuildFailure.UNKNOWN: (FailureClass.RUNTIME, "read the log of the build"),
}
"""Cause of a failed build → failure class and next step."""


def batch(seen: BatchBuilt, want: BatchExpectation) -> Verdict:
    """Check that every package of the batch is in the build cache; the finding names the failure that stopped the others."""
    if first := next(_findings(seen, want), None):
        return first.verdict(GATE)
    built = [package for package in seen.packages if package.outcome is BuildOutcome.BUILT]
    titles = plain_text.some([package.title for package in seen.packages], _MOST_NAMED)
    if not built:
        return passed(GATE, f"{titles}: in the cache already")
    seconds, size = sum(package.seconds for package in built), sum(package.size for package in built)
    return passed(GATE, f"{titles}: {plain_text.count(len(built), 'package')} built in {seconds:.0f} s, {size / 1e6:.1f} MB packed")


def _findings(seen: BatchBuilt, want: BatchExpectation) -> Iterator[Finding]:
    if seen.stack != want.stack:
        step = "render again, and submit all files together"
        yield unknown(FailureClass.INPUT, f"a batch of stack {seen.stack or 'unknown'} was built", f"stack {want.stack}", step)
    failed = [package for package in seen.packages if package.outcome is BuildOutcome.FAILED]
    stopped = [package for package in seen.packages if package.outcome is BuildOutcome.NOT_STARTED]
    if failed:
        yield _failure(failed[0], len(failed) - 1, len(stopped))
    if stopped:
        first = stopped[0]
        lacks = (
            f"{plain_text.some([package.title for package in stopped], _MOST_NAMED)} not built: {first.needs[:12] or 'a package'}"
        )
        step = "see the package that failed first"
        yield fail(FailureClass.DEPENDENCY, f"{lacks}, which is needed, is not in the cache", "all dependencies in the cache", step)
    if not want.packages:
        yield unknown(FailureClass.INPUT, "the batch has no package", "at least one", "render again")
    if (hashes := [package.hash for package in seen.packages]) != list(want.packages):
        built = f"{len(set(hashes))} of {len(want.packages)} packages of the batch have a result"
        yield unknown(FailureClass.RUNTIME, built, "one result for each package, in order", "run again; else report it as a bug")
    for package in seen.packages:
        if not package.archive or not package.title:
            step = "run again; if it stays so, see the entry in the build cache"
            yield unknown(FailureClass.RUNTIME, f"{package.title or package.hash} has no archive", "its digest", step)


def _failure(package: PackageBuilt, others: int, stopped: int) -> Finding:
    failure_class, step = _CAUSES[package.failure or BuildFailure.UNKNOWN]
    phase = f" in {package.phase}" if package.phase else ""
    lines = plain_text.truncate(plain_text.line(" | ".join(package.lines)), _LONGEST_LINES)
    more = f"; {plain_text.count(others, 'other package')} of the batch failed too" if others else ""
    more += f"; {plain_text.count(stopped, 'package')} of the batch wait for it" if stopped else ""
    problem = f"{package.title} failed{phase} ({package.failure or BuildFailure.UNKNOWN}): {lines or 'it wrote no reason'}{more}"
    by_hand = f"; by hand: {package.reproduce}" if package.reproduce else ""
    return fail(failure_class, problem, "a finished build", f"{step}{by_hand}")
