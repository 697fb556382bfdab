"""Tests of a root without booting it: a good root passes, each fault is caught by the test that is there for it."""

import os
import re
from pathlib import Path

import msgspec
import pytest

from steps.nodeimage.contract.image_tests import ExpectedTest, ImageTest, ImageTestOutcome, Where
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.layer import layer_cache
from steps.nodeimage.sandbox import sandbox_tests as sandbox
from steps.stages.image_sandbox import gate as image_sandbox
from steps.stages.image_sandbox.contract import SandboxExpectation
from tests.boot.builder import disturbing, shipped
from tests.boot.builder.disturbing import Fault
from tests.boot.builder.started import running
from tests.hosts.hostlab.waiting import until

SECONDS = 30.0
"""For tests of a busy machine: their own seconds are those of an idle one."""


@pytest.fixture(scope="session")
def compute(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recipe]:
    images, recipe = shipped.store(tmp_path_factory.getbasetemp(), "compute")
    slower = [msgspec.structs.replace(test, seconds=max(test.seconds, SECONDS)) for test in recipe.tests]
    return images, msgspec.structs.replace(recipe, tests=tuple(slower))


def script(name: str, run: str, seconds: float = SECONDS) -> ImageTest:
    return ImageTest(name=name, incident="none", run=run, seconds=seconds)


def test_a_good_root_passes_all_tests(compute: tuple[Path, Recipe]) -> None:
    images, recipe = compute
    seen = sandbox.run(images, recipe, shipped.quiet)
    wanted = tuple(ExpectedTest(name=test.name) for test in recipe.tests if test.where is not Where.BOOT)
    verdict = image_sandbox.tests(seen, SandboxExpectation(key=seen.key, tests=wanted))
    assert verdict.is_pass, verdict.reason
    assert len(wanted) >= 12


@pytest.mark.parametrize("fault", disturbing.faults(), ids=lambda fault: fault.name)
def test_a_fault_is_caught(fault: Fault, compute: tuple[Path, Recipe], tmp_path: Path) -> None:
    images, recipe = compute
    test = next(test for test in recipe.tests if test.name == fault.caught_by)
    stack = layer_cache.stack(images, recipe)
    upper = shipped.upper(tmp_path / "upper")
    disturbing.disturb(fault, stack, upper)
    seen = sandbox.run_on((upper, *stack), (test,), "key")
    assert not seen.problem
    assert seen.results[0].outcome is ImageTestOutcome.FAIL, seen.results
    assert re.search(fault.says, seen.results[0].output), seen.results[0].output
    assert test.incident
    verdict = image_sandbox.tests(
        seen, SandboxExpectation(key="key", tests=(ExpectedTest(name=test.name, incident=test.incident),))
    )
    assert fault.caught_by in verdict.reason
    assert test.incident.rstrip(".") in verdict.reason


def test_a_script_sees_the_root_and_nothing_else(compute: tuple[Path, Recipe]) -> None:
    stack = layer_cache.stack(*compute)
    tests = (
        script("cannot_write", "touch /usr/x"),
        script("may_write_in_tmp", "touch /tmp/x /run/x /var/tmp/x"),
        script("tmp_is_empty", 'test -z "$(ls /tmp)" && test -z "$(ls /run)"'),
        script(
            "no_network",
            'test "$(ls /sys/class/net 2>/dev/null)" = "" && test "$(cut -d: -f1 -s /proc/net/dev | tr -d \' \')" = lo',
        ),
        script("is_root", 'test "$(id -u)" = 0 && su -s /bin/sh nobody -c true'),
        script("no_power_over_the_machine", "mount -t tmpfs none /mnt || hostname other"),
        script("clean_environment", 'test -z "$PYTHONPATH" && test "$HOME" = /root'),
    )
    found = {result.name: result.outcome for result in sandbox.run_on(stack, tests, "key").results}
    refused = {"cannot_write", "no_power_over_the_machine"}
    assert found == {test.name: ImageTestOutcome.FAIL if test.name in refused else ImageTestOutcome.PASS for test in tests}


def test_what_a_test_leaves_running_ends_with_it(compute: tuple[Path, Recipe]) -> None:
    stack = layer_cache.stack(*compute)
    mark = f"{os.getpid()}.5"
    tests = (
        script("slow", f"sleep 100{mark} & sleep 200{mark}", 0.3),
        script("loud", "seq 1000 >&2; exit 3"),
        script("silent", "exit 4"),
        script("long", "head -c 200000000 /dev/zero | tr '\\0' 'x'; echo the end; exit 5"),
    )
    slow, loud, silent, long = sandbox.run_on(stack, tests, "key").results
    assert slow.outcome is ImageTestOutcome.TIMEOUT
    assert slow.seconds < SECONDS
    assert loud.outcome is ImageTestOutcome.FAIL
    assert len(loud.output) == 400
    assert loud.output.startswith("…")
    assert loud.output.endswith("999 1000")
    assert "ended with 4" in silent.output
    assert (long.outcome, len(long.output)) == (ImageTestOutcome.FAIL, 400)
    assert long.output.endswith("xxxthe end")
    assert until(lambda: not running(f"100{mark}") and not running(f"200{mark}"), SECONDS)


HELD = "held() { ! flock --nonblock $1 true; }"
FIRST = f"{HELD}; exec 8</etc/passwd; flock 8; until held /etc/group; do sleep 0.01; done"
"""Holds one file until the other one is held."""
SECOND = f"{HELD}; until held /etc/passwd; do sleep 0.01; done; flock /etc/group sh -c '{HELD}; while held /etc/passwd; do :; done'"
"""Holds the other one from when the first is held until it is free."""


def test_tests_run_at_the_same_time_and_one_that_hangs_is_ended_after_a_second(compute: tuple[Path, Recipe]) -> None:
    """Two wait for each other by locks on files of the root that all sandboxes share: one after the other, neither would end."""
    hangs = ImageTest(name="hangs", incident="A test waited for a card that was not there.", run="sleep 1000")
    tests = (script("first", FIRST), script("second", SECOND), hangs, script("after", "true"))
    seen = sandbox.run_on(layer_cache.stack(*compute), tests, "key")
    assert [one.outcome for one in seen.results] == [
        ImageTestOutcome.PASS,
        ImageTestOutcome.PASS,
        ImageTestOutcome.TIMEOUT,
        ImageTestOutcome.PASS,
    ], seen.results
    assert seen.results[2].output.endswith("(ended after 1 s)")
    cases = tuple(ExpectedTest(name=test.name, incident=test.incident) for test in tests)
    verdict = image_sandbox.tests(seen, SandboxExpectation(key="key", tests=cases))
    assert not verdict.is_pass
    assert "hangs" in verdict.reason
    assert "ended after 1 s" in verdict.reason


def test_without_bubblewrap_one_sentence_says_so(
    compute: tuple[Path, Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = sandbox.run_on(layer_cache.stack(*compute), (script("any", "true"),), "key")
    assert not seen.results
    assert seen.problem == "tests of an image run in bubblewrap, which is not installed; install package bubblewrap"


def test_a_root_in_which_nothing_runs_is_told(compute: tuple[Path, Recipe], tmp_path: Path) -> None:
    stack, bare = layer_cache.stack(*compute), shipped.upper(tmp_path / "upper")
    disturbing.disturb(Fault(name="no_shell", why="", caught_by="", says="", removed=("/usr/bin/sh",)), stack, bare)
    seen = sandbox.run_on((bare, *stack), (script("any", "true"),), "key")
    assert not seen.results
    assert re.search(r"nothing runs in this root: .*/bin/sh", seen.problem), seen.problem


def test_a_check_needs_no_sandbox_and_an_unknown_one_is_no_pass(compute: tuple[Path, Recipe]) -> None:
    stack = layer_cache.stack(*compute)
    tests = (ImageTest(name="odd", incident="none", check="colour"), ImageTest(name="neither", incident="none"))
    odd, neither = sandbox.run_on(stack, tests, "key").results
    assert (odd.outcome, neither.outcome) == (ImageTestOutcome.ERROR, ImageTestOutcome.ERROR)
    assert "links_resolve" in odd.output
