"""Runs tiers as pytest processes and reads what became of them."""

import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
TEST_SECONDS, LONG_TEST_SECONDS = 1200, 3600
"""A test that takes longer hangs: its stack is printed and the tier's process ends, before CI ends everything without a word."""


@dataclass(frozen=True)
class Tier:
    """One tier: its folders and files, its budget in seconds, and what prepares it (returns why it cannot run here, or nothing).

    `arguments` go to pytest; `long_arguments` take their place for the long sweeps. `beside` is the tier during which it runs: one
    that uses a single process.
    """

    name: str
    folders: tuple[str, ...]
    budget: int
    prepare: Callable[[], str]
    arguments: tuple[str, ...] = ()
    long_arguments: tuple[str, ...] | None = None
    beside: str = ""

    def command(self, report: Path, *, long: bool) -> list[str]:
        """The words that run it; `report` gets its JUnit file."""
        arguments = self.arguments if not long or self.long_arguments is None else self.long_arguments
        hang = LONG_TEST_SECONDS if long else TEST_SECONDS
        ends = ("-o", f"faulthandler_timeout={hang}", "-o", "faulthandler_exit_on_timeout=true")
        marks = () if long else ("-m", "not long")
        return ["-m", "pytest", *self.folders, *arguments, *marks, *ends, f"--junitxml={report}", "-rs"]


@dataclass(frozen=True)
class Outcome:
    """Result of a tier: `reason` says why it did not run, and `files` holds the seconds of each test file.

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


def run_tier(tier: Tier, *, long: bool, live: bool = True) -> Outcome:
    """Prepare and run a tier, and return how it ended. The output of pytest is printed as it comes, or at the end if not `live`."""
    began = time.monotonic()
    reason = tier.prepare()
    prepared = time.monotonic() - began
    if reason:
        return Outcome(tier, reason=reason, prepared=prepared)
    with tempfile.TemporaryDirectory() as folder:
        report, output = Path(folder) / "junit.xml", Path(folder) / "output"
        words = tier.command(report, long=long)
        headline = f"== {tier.name}: {' '.join(words[1:])}"
        if live:
            print(headline, flush=True)
        with output.open("wb") as stream:
            both = {} if live else {"stdout": stream, "stderr": subprocess.STDOUT}
            process = subprocess.Popen([sys.executable, *words], cwd=ROOT, **both)
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if not live:
            print(f"\n{headline}\n{output.read_text(errors='replace')}", flush=True)
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


def run_beside(tier: Tier, others: Iterable[Tier], *, long: bool) -> list[Outcome]:
    """Run a tier, and others one after another beside it, whose output comes in one piece; return how all of them ended."""
    with ThreadPoolExecutor(1) as pool:
        waiting = [pool.submit(run_tier, other, long=long, live=False) for other in others]
        return [run_tier(tier, long=long), *(outcome.result() for outcome in waiting)]


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
