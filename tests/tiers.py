"""Runs the test tiers one after another and prints how many tests ran in each; a tier that cannot run is named with its reason.

Under CI=true a skipped tier, or a skipped test, is a failure.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Tier:
    """One tier: its folders, its budget in seconds on two cores, and what keeps it from running here (empty: nothing)."""

    name: str
    folders: tuple[str, ...]
    budget: int
    prepare: Callable[[], str]
    arguments: tuple[str, ...] = ()


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
    """Install what real SSH hosts need; why the tier cannot run here, if it cannot."""
    return _prepared("tests/hosts/hosts.py", "install")


def _cluster() -> str:
    """Install and build what a real Kubernetes needs: a cold build takes a quarter of an hour."""
    return _prepared("tests/cluster/cluster.py", "install") or _prepared("tests/cluster/cluster.py", "build")


def _prepared(script: str, command: str) -> str:
    """Run one command of a tier's own script; the last line that it said where it fails."""
    done = subprocess.run([sys.executable, str(ROOT / script), command], cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr or done.stdout or f"{script} {command} failed").strip().splitlines()[-1]


TIERS = (
    Tier(
        "fast",
        ("tests/unit", "tests/contract", "tests/golden", "tests/gates", "tests/conformance"),
        480,
        _nothing,
        ("-n", "2", "--dist", "loadfile"),
    ),
    Tier("cluster", ("tests/cluster",), 720, _cluster, ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")),
    Tier("hosts", ("tests/hosts",), 1020, _hosts),  # last: its servers run programs that the tier before has built
)


def main() -> int:
    """Run the tiers; 0 when everything that ran passed (under CI: and nothing was left out)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="also the sweeps that do not fit the tiers' budgets")
    parser.add_argument("--tier", action="append", choices=[tier.name for tier in TIERS], help="only this tier")
    options = parser.parse_args()
    outcomes = [_run(tier, long=options.long) for tier in TIERS if not options.tier or tier.name in options.tier]
    for one in outcomes:
        text = f"not run: {one.reason}" if one.reason else f"{one.passed} passed, {one.failed} failed, {one.skipped} skipped"
        print(f"{one.name:<8} {text} ({one.seconds:.0f} s)")
    passed, failed = sum(one.passed for one in outcomes), sum(one.failed for one in outcomes)
    left_out = [one.name for one in outcomes if one.reason or one.skipped]
    if left_out and os.environ.get("CI") == "true":
        print(f"left out under CI: {', '.join(left_out)}")
        failed += len(left_out)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


def _run(tier: Tier, *, long: bool) -> Outcome:
    began = time.monotonic()
    reason = tier.prepare()
    if reason:
        return Outcome(tier.name, reason=reason, seconds=time.monotonic() - began)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "junit.xml"
        marks = [] if long else ["-m", "not long"]
        command = [
            sys.executable,
            "-m",
            "pytest",
            *tier.folders,
            *tier.arguments,
            *marks,
            f"--junitxml={report}",
            "-rs",
            "--durations=8",
        ]
        print(f"== {tier.name}: {' '.join(command[2:])}", flush=True)
        code = subprocess.run(command, cwd=ROOT, check=False).returncode
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
