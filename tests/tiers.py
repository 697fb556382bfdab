"""Runs the test tiers and prints how many tests ran in each, how long that took, and which files took longest.

Tiers run one after another, in two processes each: more of them side by side were slower, and their tests missed deadlines. The
tests of stack, slurm and mpi share one build or cluster, so each of these runs in one process. They and those of cluster wait most
of their time, so they run one after another beside cluster. Those of hosts wait half of their time, so they run in three processes.
Under CI=true a tier or a test that is skipped is a failure, and so is a tier that takes half more than its budget.
"""

import argparse
import contextlib
import functools
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from tests import sampling
from tests.tier_runs import ROOT, Outcome, Tier, run_beside

SLOWEST = 10
"""Files that the summary names."""
PATIENCE = 1.5
"""Budgets that a tier may take under CI before it fails."""


def _nothing() -> str:
    return ""


def _hosts() -> str:
    """Install what real SSH hosts need, and build their roots: a host has no way to a mirror.

    A test whose servers run a real Kubernetes says itself that its parts could not be built.
    """
    return _prepared("tests/hosts/hosts.py", "install") or (_cluster() and "")


@functools.cache
def _parts() -> Future[str]:
    """The building of what a real Kubernetes needs: half an hour with cold caches, in which tiers that do without it run."""
    return ThreadPoolExecutor(1).submit(lambda: _prepared("tests/cluster/cluster.py", "install", "build"))


def _cluster() -> str:
    return _parts().result()


def _boot() -> str:
    """Install what builds and boots node images."""
    return _prepared("tests/boot/boot.py", "install")


def _stack() -> str:
    """Install what builds software stacks, and fetch the sources of one."""
    return _prepared("tests/stack/stack.py", "install")


def _slurm() -> str:
    """Install Debian's Slurm, MariaDB and munge."""
    return _prepared("tests/slurm/slurm.py", "install")


def _mpi() -> str:
    """Install Debian's OpenMPI, sshd and the tools that disturb links."""
    return _prepared("tests/mpi/mpi.py", "install")


_INSTALLING = threading.Lock()
"""Debian's package manager serves one at a time."""


def _prepared(script: str, *commands: str) -> str:
    """Run commands of a tier's own script; the last line of its error output if one fails."""
    for command in commands:
        with _INSTALLING if command == "install" else contextlib.nullcontext():
            words = ["nice", sys.executable, str(ROOT / script), command]
            done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return (done.stderr or done.stdout or f"{script} {command} failed").strip().splitlines()[-1]
    return ""


TWO = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
"""Two processes, each with whole files, in the order in which the files are collected: the longest first."""


def _machines(processes: int) -> tuple[str, ...]:
    """Return the options for processes on machines of their own: all have hosts of the same names and addresses."""
    return ("--tx", f"{processes}*popen//python={ROOT}/tests/hosts/machine.sh {sys.executable}", *TWO[2:])


SAMPLE = "tests/unit/rehearsal/faults/test_quick.py"
"""A sample of the sweeps of faults, for the quick tier alone."""
QUICK = Tier(
    "quick",
    (
        "tests/unit/architecture",
        SAMPLE,
        "tests/conformance",
        "tests/gates",
        "tests/golden",
    ),
    300,
    _nothing,
    TWO,
)
FAST = Tier(
    "fast",
    ("tests/unit", "tests/contract", "tests/golden", "tests/gates", "tests/conformance"),
    1500,
    _nothing,
    (*TWO, f"--ignore={SAMPLE}"),  # the sweeps beside it have its stages and faults
)
HOSTS = Tier("hosts", ("tests/hosts",), 1000, _hosts, _machines(3), long_arguments=())
CLUSTER = Tier("cluster", ("tests/cluster",), 800, _cluster, TWO)
BOOT = Tier("boot", ("tests/boot",), 1400, _boot, TWO)
MACHINE = _machines(1)
"""One process on a machine of its own, for tests that share one cluster."""
STACK = Tier("stack", ("tests/stack",), 500, _stack, beside=CLUSTER.name)
"""In one process: all its tests share the packages of one build, which uses both cores by itself."""
SLURM = Tier("slurm", ("tests/slurm",), 170, _slurm, MACHINE, long_arguments=(), beside=CLUSTER.name)
MPI = Tier("mpi", ("tests/mpi",), 120, _mpi, MACHINE, long_arguments=(), beside=CLUSTER.name)
TIERS = (FAST, BOOT, CLUSTER, STACK, SLURM, MPI, HOSTS)
"""All tiers in running order: first those that need no parts of a real Kubernetes, which are built meanwhile if not cached.
Those that run beside `cluster` begin while it still waits for them.

Budgets are seconds on two busy cores with warm caches, as measured. The aim is fast 720,
stack 300, boot 360, hosts 420 and cluster 300.
"""


def main() -> int:
    """Run the tiers; 0 when everything that ran passed (under CI: in time, and with nothing left out)."""
    tiers = {tier.name: tier for tier in TIERS}
    parser = argparse.ArgumentParser(prog="tests/run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="what to run after each change: a sample that takes five minutes")
    parser.add_argument("--long", action="store_true", help="also the sweeps that do not fit the tiers' budgets")
    parser.add_argument("--tier", action="append", choices=list(tiers), help="only this tier")
    options = parser.parse_args()
    if options.quick and (options.long or options.tier):
        parser.error("--quick is a sample of its own: it goes with neither --long nor --tier")
    chosen = [QUICK] if options.quick else [tier for tier in TIERS if not options.tier or tier.name in options.tier]
    if not options.long:
        os.environ[sampling.SEED] = seed = sampling.seed()
        print(f"samples by seed {seed}: {sampling.SEED} repeats them, --long takes all", flush=True)
    began = time.monotonic()
    if {HOSTS, CLUSTER} & set(chosen):
        _parts()
    outcomes = []
    for tier, others in group_tiers(chosen, long=options.long):
        for outcome in run_beside(tier, others, long=options.long):
            outcomes.append(outcome)
            if len(chosen) > 1:
                print_slowest([outcome])
    ci = os.environ.get("CI") == "true"
    failed = summary(outcomes, ci=ci, long=options.long)
    passed = sum(outcome.passed for outcome in outcomes)
    print(f"{passed} passed, {failed} failed ({time.monotonic() - began:.0f} s)")
    return 1 if failed or not passed else 0


def group_tiers(chosen: list[Tier], *, long: bool) -> list[tuple[Tier, list[Tier]]]:
    """Return the tiers in running order, each with those that run beside it.

    Long sweeps of tiers have no machines of their own, so each runs alone.
    """
    if long:
        return [(tier, []) for tier in chosen]
    names = {tier.name for tier in chosen}
    return [(tier, [other for other in chosen if other.beside == tier.name]) for tier in chosen if tier.beside not in names]


def print_slowest(outcomes: list[Outcome]) -> None:
    """Print the files that took longest: after each tier, so that a run that is ended from outside tells it too."""
    slowest = sorted((row for outcome in outcomes for row in outcome.files.items()), key=lambda row: -row[1])[:SLOWEST]
    print(f"slowest files of {', '.join(outcome.tier.name for outcome in outcomes)}:")
    for file, seconds in slowest:
        print(f"{seconds:6.0f} s  {file}", flush=True)


def summary(outcomes: list[Outcome], *, ci: bool, long: bool) -> int:
    """Print what became of each tier, and the slowest files; returns how much failed."""
    print_slowest(outcomes)
    failed = 0
    for outcome in outcomes:
        tier = outcome.tier
        counts = f"{outcome.passed} passed, {outcome.failed} failed, {outcome.skipped} skipped"
        times = (
            f"{outcome.seconds:.0f} s of {tier.budget} s, {outcome.processor:.0f} s of CPU, prepared in {outcome.prepared:.0f} s"
        )
        print(f"{tier.name:<8} {f'not run: {outcome.reason}' if outcome.reason else f'{counts} ({times})'}")
        failed += outcome.failed
        if ci and (outcome.reason or outcome.skipped):
            print(f"{tier.name:<8} FAILED: under CI nothing may be left out")
            failed += 1
        if ci and not long and outcome.seconds > PATIENCE * tier.budget:
            print(f"{tier.name:<8} FAILED: it took more than {PATIENCE:g} times its budget: make its slowest files quicker")
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
