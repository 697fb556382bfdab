"""Tests of an image on its merged root in a namespace: scripts in parallel, each in bubblewrap, and checks on a listing."""

import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from steps import timeouts
from steps.contract import plain_text
from steps.errors import StepError, Temporary
from steps.nodeimage.containment import bubblewrap, namespace
from steps.nodeimage.contract import build_keys, root_checks
from steps.nodeimage.contract.image_tests import ImageTest, ImageTestOutcome, ImageTestResult, Where
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.contract.root_listing import RootListing
from steps.nodeimage.layer import layer_cache
from steps.nodeimage.sandbox import root_scan
from steps.stages.image_sandbox.contract import Sandboxed

KEPT: Final = 400
"""Characters of a test's output that are kept: its end, which has the reason of a failure."""
_READ: Final = 64 * 1024


class Play(Struct, frozen=True, kw_only=True):
    """Order to run tests on a root: the tests, and how many at once (0: one a processor)."""

    tests: tuple[ImageTest, ...]
    at_once: int = 0


class SandboxResults(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Results of tests run on a root, in the order of the tests; `problem` says why no script could be run, in one sentence."""

    results: tuple[ImageTestResult, ...] = ()
    problem: str = ""


def play(root: Path, order: Play) -> SandboxResults:
    """Run all tests on the root and return their results; called in the namespace."""
    if any(test.run for test in order.tests):
        try:
            bubblewrap.require(root, timeouts.IMAGE_SANDBOX)
        except StepError as error:
            return SandboxResults(problem=f"{error}; {error.hint}" if error.hint else str(error))
    listing = root_scan.read(root)
    processors = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(max_workers=order.at_once or processors) as beside:
        return SandboxResults(results=tuple(beside.map(lambda test: _result(root, listing, test), order.tests)))


def _result(root: Path, listing: RootListing, test: ImageTest) -> ImageTestResult:
    begun = time.monotonic()
    if test.run and not test.check:
        outcome, output = _script(root, test)
    elif test.check and not test.run:
        outcome, output = _check(listing, test)
    else:
        outcome, output = ImageTestOutcome.ERROR, "a test has either `run` or `check`"
    return ImageTestResult(name=test.name, outcome=outcome, seconds=round(time.monotonic() - begun, 3), output=output)


def _check(listing: RootListing, test: ImageTest) -> tuple[ImageTestOutcome, str]:
    try:
        problems = root_checks.judge(test.check, test.arguments, listing)
    except root_checks.UnknownCheck as error:
        return ImageTestOutcome.ERROR, _end(str(error))
    line = plain_text.line(" ".join(root_checks.summarise_problems(problems).split()))
    line = line if len(line) <= KEPT else f"{line[: KEPT - 1]}…"
    return (ImageTestOutcome.FAIL if problems else ImageTestOutcome.PASS), line


def _script(root: Path, test: ImageTest) -> tuple[ImageTestOutcome, str]:
    """Run a test's script in a sandbox of its own and return outcome and output; all its processes end with the sandbox."""
    line = bubblewrap.command(root, ["/bin/sh", "-e", "-c", test.run, test.name, *test.arguments])
    with (
        subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child,
        ThreadPoolExecutor(max_workers=1) as beside,
    ):
        assert child.stdout
        reading = beside.submit(_last, child.stdout)
        try:
            code = child.wait(test.seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            return ImageTestOutcome.TIMEOUT, _end(f"{reading.result()} (ended after {test.seconds:g} s)")
        output = reading.result()
        if code == 0:
            return ImageTestOutcome.PASS, _end(output)
        return ImageTestOutcome.FAIL, _end(output if output.strip() else f"it ended with {code} and said nothing")


def _last(stream: IO[bytes]) -> str:
    """Return the last 64 KiB of a program's output, which is read to its end."""
    kept = b""
    while part := stream.read(_READ):
        kept = (kept + part)[-_READ:]
    return kept.decode(errors="replace")


def _end(text: str) -> str:
    line = plain_text.line(" ".join(text.split()))
    return line if len(line) <= KEPT else f"…{line[1 - KEPT :]}"


def run(images: Path, recipe: Recipe, say: Callable[[str], None]) -> Sandboxed:
    """Run the sandbox tests of a recipe's image and return their results.

    Raises BadTask if a layer is missing, Temporary if too slow.
    """
    stack = layer_cache.stack(images, recipe)
    tests = tuple(test for test in recipe.tests if test.where is not Where.BOOT)
    tested = run_on(stack, tests, build_keys.image(recipe))
    passed = sum(result.outcome is ImageTestOutcome.PASS for result in tested.results)
    say(f"tested {recipe.name}: {passed} of {len(tested.results)} tests passed in {tested.seconds:.1f} s")
    return tested


def run_on(stack: tuple[Path, ...], tests: tuple[ImageTest, ...], key: str) -> Sandboxed:
    """Run tests on the root made of the layers `stack` (uppermost first), and return the results for the image `key`."""
    begun = time.monotonic()
    longest = timeouts.IMAGE_SANDBOX + sum(test.seconds for test in tests)
    try:
        played = namespace.call(stack, f"{__name__}:play", Play(tests=tests), SandboxResults, seconds=longest)
    except Temporary:
        raise
    except StepError as error:
        return Sandboxed(key=key, problem=f"{error}; {error.hint}" if error.hint else str(error))
    return Sandboxed(key=key, results=played.results, seconds=round(time.monotonic() - begun, 3), problem=played.problem)
