"""Runs tiers as pytest processes side by side, and reads what became of them."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
TEST_SECONDS, LONG_TEST_SECONDS = 1200, 3600
"""A test that takes longer hangs: its stack is printed and the tier's process ends, before CI ends everything without a word."""


@dataclass(frozen=True)
class Tier:
    """One tier: its folders and files, its budget in seconds, and what prepares it (returns why it cannot run here, or nothing).

    `arguments` go to pytest; `long_arguments` take their place for the long sweeps. A tier that `yields` gives way to the one
    beside it.
    """

    name: str
    folders: tuple[str, ...]
    budget: int
    prepare: Callable[[], str]
    arguments: tuple[str, ...] = ()
    long_arguments: tuple[str, ...] | None = None
    yields: bool = False

    def command(self, report: Path, *, long: bool) -> list[str]:
        """The words that run it; `report` gets its JUnit file."""
        arguments = self.arguments if not long or self.long_arguments is None else self.long_arguments
        hang = LONG_TEST_SECONDS if long else TEST_SECONDS
        ends = ("-o", f"faulthandler_timeout={hang}", "-o", "faulthandler_exit_on_timeout=true")
        marks = () if long else ("-m", "not long")
        return ["-m", "pytest", *self.folders, *arguments, *marks, *ends, f"--junitxml={report}", "-rs"]


@dataclass(frozen=True)
class Outcome:
    """How a tier ended. `reason` is why it did not run, `files` the seconds of each test file.

    `prepared` and `seconds` are wall time, `processor` is CPU time of the tests and of every process that they waited for.
    """

    tier: Tier
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    prepared: float = 0.0
    seconds: float = 0.0
    processor: float = 0.0
    reason: str = ""
    files: dict[str, float] = field(default_factory=dict)


def run_tracks(tracks: list[list[Tier]], *, long: bool) -> list[Outcome]:
    """Run tracks side by side, and the tiers of a track one after another.

    The output of the first track is seen as it comes, that of another when its tier has ended.
    """
    with ThreadPoolExecutor(len(tracks)) as pool:
        running = [pool.submit(_track, track, long=long, quiet=number > 0) for number, track in enumerate(tracks)]
        return [outcome for track in running for outcome in track.result()]


def _track(tiers: list[Tier], *, long: bool, quiet: bool) -> list[Outcome]:
    outcomes = []
    for tier in tiers:
        with tempfile.TemporaryFile("w+") if quiet else contextlib.nullcontext() as output:
            outcomes.append(_run(tier, long=long, output=output))
            if output is not None:
                output.seek(0)
                print(output.read(), end="", flush=True)
    return outcomes


def _run(tier: Tier, *, long: bool, output: IO[str] | None) -> Outcome:
    began = time.monotonic()
    reason = tier.prepare()
    prepared = time.monotonic() - began
    if reason:
        return Outcome(tier, reason=reason, prepared=prepared)
    with tempfile.TemporaryDirectory() as folder:
        report, temporary = Path(folder) / "junit.xml", Path(folder) / "tmp"
        temporary.mkdir()
        words = tier.command(report, long=long)
        print(f"== {tier.name}: {' '.join(words[1:])}", flush=True)
        # its own place for temporary files: the tier beside it counts what it leaves in the common one
        settings = {**os.environ, "TMPDIR": str(temporary)} if tier.yields else None
        command = [*(["nice", "-n", "5"] if tier.yields else []), sys.executable, *words]
        process = subprocess.Popen(command, cwd=ROOT, env=settings, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        passed, failed, skipped = _count(report)
        return Outcome(
            tier,
            passed,
            failed or (1 if process.returncode else 0),
            skipped,
            prepared,
            time.monotonic() - began - prepared,
            usage.ru_utime + usage.ru_stime,
            files=_seconds(report),
        )


def _count(report: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped tests of a JUnit file."""
    if not report.exists():
        return 0, 1, 0
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    numbers = {name: sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")}
    failed = numbers["failures"] + numbers["errors"]
    return numbers["tests"] - failed - numbers["skipped"], failed, numbers["skipped"]


def _seconds(report: Path) -> dict[str, float]:
    """The wall time of each test file in a JUnit file, set-up included."""
    found: defaultdict[str, float] = defaultdict(float)
    if report.exists():
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            found[case.get("classname", "").replace(".", "/") + ".py"] += float(case.get("time", 0))
    return dict(found)
