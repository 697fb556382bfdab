"""Runs an image's tests on its merged root, in a namespace: scripts in bubblewrap, side by side, and checks on its listing."""

import os
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from steps import timeouts
from steps.clients.image.contained import bubblewrap
from steps.clients.image.sandbox import scanning
from steps.contract import plain
from steps.contract.image import soundness
from steps.contract.image.rooted import Root
from steps.contract.image.testing import ImageTest, Outcome, Result, Where
from steps.errors import StepError

KEPT: Final = 400
"""Characters of a test's output that are kept: its end, where the reason stands."""
_READ: Final = 64 * 1024


class Play(Struct, frozen=True, kw_only=True):
    """The tests to run, so many at once (0: one a processor)."""

    tests: tuple[ImageTest, ...]
    at_once: int = 0


class Played(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Their results in the order of the tests; `problem`: why no script could be run, in one sentence."""

    results: tuple[Result, ...] = ()
    problem: str = ""


def play(root: Path, told: Play) -> Played:
    """Run all tests on the root."""
    scripts = [test for test in told.tests if test.run]
    if scripts:
        try:
            bubblewrap.require(root, timeouts.IMAGE_SANDBOX)
        except StepError as error:
            return Played(problem=f"{error}; {error.hint}" if error.hint else str(error))
    listing = scanning.read(root)
    processors = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(max_workers=told.at_once or processors) as beside:
        return Played(results=tuple(beside.map(lambda test: _result(root, listing, test), told.tests)))


def _result(root: Path, listing: Root, test: ImageTest) -> Result:
    begun = time.monotonic()
    if test.run and not test.check:
        outcome, said = _script(root, test)
    elif test.check and not test.run:
        outcome, said = _check(listing, test)
    else:
        outcome, said = Outcome.ERROR, "a test has either `run` or `check`"
    return Result(name=test.name, outcome=outcome, seconds=round(time.monotonic() - begun, 3), output=said)


def _check(listing: Root, test: ImageTest) -> tuple[Outcome, str]:
    try:
        problems = soundness.judge(test.check, test.arguments, listing)
    except soundness.UnknownCheck as error:
        return Outcome.ERROR, _end(str(error))
    return (Outcome.FAIL, _start(soundness.told(problems))) if problems else (Outcome.PASS, "")


def _script(root: Path, test: ImageTest) -> tuple[Outcome, str]:
    """A script in its own sandbox, which the kernel ends with bubblewrap's first process, whatever the script has started."""
    line = bubblewrap.command(root, ["/bin/sh", "-e", "-c", test.run, test.name, *test.arguments])
    with (
        subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child,
        ThreadPoolExecutor(max_workers=1) as beside,
    ):
        assert child.stdout
        said = beside.submit(_last, child.stdout)
        try:
            code = child.wait(test.seconds)
        except subprocess.TimeoutExpired:
            child.kill()
            return Outcome.TIMEOUT, _end(f"{_text(said.result())} (ended after {test.seconds:g} s)")
        return (Outcome.PASS if code == 0 else Outcome.FAIL), _ended(_text(said.result()), code)


def _last(stream: IO[bytes]) -> bytes:
    """The end of what a program says, however much that is."""
    kept = b""
    while part := stream.read(_READ):
        kept = (kept + part)[-_READ:]
    return kept


def _ended(said: str, code: int) -> str:
    return _end(said if said.strip() or code == 0 else f"it ended with {code} and said nothing")


def _text(said: bytes) -> str:
    return said.decode(errors="replace")


def _end(text: str) -> str:
    line = plain.line(" ".join(text.split()))
    return line if len(line) <= KEPT else f"…{line[1 - KEPT :]}"


def _start(text: str) -> str:
    line = plain.line(" ".join(text.split()))
    return line if len(line) <= KEPT else f"{line[: KEPT - 1]}…"


def wanted(tests: Sequence[ImageTest]) -> tuple[ImageTest, ...]:
    """Those that run in a sandbox."""
    return tuple(test for test in tests if test.where is not Where.BOOT)
