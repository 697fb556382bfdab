"""Runs the test tiers and prints how many tests ran in each; a tier that cannot run is named with its reason.

Hosts wait for each other half of the time: the fast tier runs beside them, and gives way. Under CI=true a skipped tier, or a
skipped test, is a failure.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Tier:
    """One tier: its folders, its budget in seconds on two cores, what keeps it from running here (empty: nothing), and whether it
    gives way to the one beside it."""

    name: str
    folders: tuple[str, ...]
    budget: int
    prepare: Callable[[], str]
    arguments: tuple[str, ...] = ()
    yields: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a tier ended."""

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reason: str = ""


def _nothing() -> str:
    return ""


def _hosts() -> str:
    """Install what real SSH hosts need; why the tier cannot run here, if it cannot. A test whose servers run a real Kubernetes says
    itself that its parts could not be built."""
    return _prepared("tests/hosts/hosts.py", "install") or (_cluster() and "")


def _cluster() -> str:
    """Install and build what a real Kubernetes needs: a cold build takes a quarter of an hour."""
    return _prepared("tests/cluster/cluster.py", "install") or _prepared("tests/cluster/cluster.py", "build")


def _boot() -> str:
    """Install what builds and boots node images."""
    return _prepared("tests/boot/boot.py", "install")


def _prepared(script: str, command: str) -> str:
    """Run one command of a tier's own script; the last line that it said where it fails."""
    done = subprocess.run([sys.executable, str(ROOT / script), command], cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr or done.stdout or f"{script} {command} failed").strip().splitlines()[-1]


CLUSTER = Tier("cluster", ("tests/cluster",), 720, _cluster, ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"))
FAST = Tier(
    "fast",
    ("tests/unit", "tests/contract", "tests/golden", "tests/gates", "tests/conformance"),
    1080,
    _nothing,
    ("-n", "2", "--dist", "loadfile"),
    yields=True,
)
HOSTS = Tier("hosts", ("tests/hosts",), 1020, _hosts)
BOOT = Tier("boot", ("tests/boot",), 900, _boot, ("-n", "2", "--dist", "loadfile"))
ROUNDS = ((FAST, HOSTS), (CLUSTER,), (BOOT,))
"""One after another, each with its tiers side by side."""

TEST_SECONDS, LONG_TEST_SECONDS = 1200, 3600
"""A test that takes longer hangs: its stack is printed and the tier's process ends, before CI ends everything without a word."""


def main() -> int:
    """Run the tiers; 0 when everything that ran passed (under CI: and nothing was left out)."""
    tiers = {tier.name: tier for tiers in ROUNDS for tier in tiers}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="also the sweeps that do not fit the tiers' budgets")
    parser.add_argument("--tier", action="append", choices=list(tiers), help="only this tier")
    options = parser.parse_args()
    began = time.monotonic()
    outcomes: list[Outcome] = []
    for beside in ROUNDS:
        chosen = [tier for tier in beside if not options.tier or tier.name in options.tier]
        outcomes += _side_by_side(chosen, long=options.long)
    for one in outcomes:
        text = f"not run: {one.reason}" if one.reason else f"{one.passed} passed, {one.failed} failed, {one.skipped} skipped"
        print(f"{one.name:<8} {text} ({one.seconds:.0f} s)")
    passed, failed = sum(one.passed for one in outcomes), sum(one.failed for one in outcomes)
    left_out = [one.name for one in outcomes if one.reason or one.skipped]
    if left_out and os.environ.get("CI") == "true":
        print(f"left out under CI: {', '.join(left_out)}")
        failed += len(left_out)
    print(f"{passed} passed, {failed} failed ({time.monotonic() - began:.0f} s)")
    return 1 if failed or not passed else 0


def _side_by_side(tiers: list[Tier], *, long: bool) -> list[Outcome]:
    """Run tiers at the same time; the first one's output is seen as it comes, that of the others when all have ended."""
    if not tiers:
        return []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(tiers)) as pool:
        outputs = [None, *(Path(folder) / tier.name for tier in tiers[1:])]
        running = [pool.submit(_run, tier, long=long, output=output) for tier, output in zip(tiers, outputs, strict=True)]
        try:
            return [one.result() for one in running]
        finally:
            for output in outputs:
                if output is not None and output.exists():
                    print(output.read_text(), end="", flush=True)


def _run(tier: Tier, *, long: bool, output: Path | None) -> Outcome:
    began = time.monotonic()
    reason = tier.prepare()
    if reason:
        return Outcome(tier.name, reason=reason, seconds=time.monotonic() - began)
    with tempfile.TemporaryDirectory() as folder:
        report, temporary = Path(folder) / "junit.xml", Path(folder) / "tmp"
        temporary.mkdir()
        marks = [] if long else ["-m", "not long"]
        ends = [
            "-o",
            f"faulthandler_timeout={LONG_TEST_SECONDS if long else TEST_SECONDS}",
            "-o",
            "faulthandler_exit_on_timeout=true",
        ]
        words = ["-m", "pytest", *tier.folders, *tier.arguments, *marks, *ends, f"--junitxml={report}", "-rs", "--durations=8"]
        print(f"== {tier.name}: {' '.join(words[1:])}", flush=True)
        # its own place for temporary files: the tier beside it counts what it leaves in the common one
        settings = {**os.environ, "TMPDIR": str(temporary)} if tier.yields else None
        command = [*(["nice", "-n", "5"] if tier.yields else []), sys.executable, *words]
        with output.open("w") if output else contextlib.nullcontext() as stream:
            code = subprocess.run(command, cwd=ROOT, check=False, env=settings, stdout=stream, stderr=stream).returncode
        counted = _count(report)
    seconds = time.monotonic() - began
    broken = counted[1] or (1 if code else 0)
    if seconds > tier.budget:
        print(f"note: tier {tier.name} took {seconds:.0f} s, its budget is {tier.budget} s")
    return Outcome(tier.name, counted[0], broken, counted[2], seconds)


def _count(report: Path) -> tuple[int, int, int]:
    """Passed, failed and skipped tests of a JUnit file."""
    if not report.exists():
        return 0, 1, 0
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    numbers = {name: sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")}
    failed = numbers["failures"] + numbers["errors"]
    return numbers["tests"] - failed - numbers["skipped"], failed, numbers["skipped"]


if __name__ == "__main__":
    sys.exit(main())
