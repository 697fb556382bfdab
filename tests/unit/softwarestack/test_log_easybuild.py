"""Outputs of `eb` are read as recordings of a real EasyBuild 5.4.1 say, and nothing that it did not say counts as done."""

import random
from pathlib import Path
from typing import Final

import pytest

from steps.softwarestack.builds.builders import log_easybuild
from steps.softwarestack.builds.builders.package_builder import CommandVerdict
from steps.softwarestack.contract.package_build import BuildFailure

RECORDED = Path(__file__).with_name("easybuild_outputs")
"""A file has the exit code in its first line, then the output of `eb`, then warnings and errors of its log."""
CASES: Final = {
    "checksum": (BuildFailure.CHECKSUM, "fetch", "Checksum verification for /build/sources/p.patch"),
    "fetched_checksum": (BuildFailure.CHECKSUM, "fetch", "Checksum verification for /build/fetched/f/fwrong/fetched-1.0.tar.gz"),
    "fetch": (BuildFailure.FETCH, "fetch", "Couldn't find file nosuch-1.0.tar.gz anywhere"),
    "compile": (BuildFailure.COMPILE, "build", "hello.c:3:1: error: unknown type name"),
    "configure": (BuildFailure.COMPILE, "configure", "./configure: No such file or directory"),
    "disk_full": (BuildFailure.DISK_FULL, "build", "No space left on device"),
    "memory": (BuildFailure.MEMORY, "build", "MemoryError"),
    "killed": (BuildFailure.MEMORY, "build", "failed with exit code -9 in build step"),
    "read_only": (BuildFailure.PERMISSION, "build", "cannot touch '/usr/x': Read-only file system"),
    "test": (BuildFailure.TEST, "test", "No rule to make target 'nosuchtarget'"),
    "sanity": (BuildFailure.SANITY, "sanitycheck", "no file found at 'lib/nosuch.so'"),
    "sanity_command": (BuildFailure.SANITY, "sanitycheck", "nosuchprogram: command not found"),
    "other_compiler": (
        BuildFailure.INPUT,
        "prepare",
        "does not match version reported by compiler (12.2.0)",
    ),
    "syntax": (BuildFailure.INPUT, "", "name 'undefined_name' is not defined (line 9)"),
    "easyblock": (BuildFailure.INPUT, "", "Failed to obtain class for NoSuchBlock easyblock"),
    "system_package": (BuildFailure.DEPENDENCY, "", "OS dependencies were not found: [('nosuchpackage-dev',)]"),
}
"""Recording → failure, step, and a part of the decisive lines."""


def recorded(name: str) -> tuple[int, str]:
    code, _, output = (RECORDED / f"{name}.txt").read_text().partition("\n")
    return int(code), output


def test_a_finished_build_is_done() -> None:
    assert log_easybuild.read(*recorded("built")) == CommandVerdict()


@pytest.mark.parametrize("name", CASES)
def test_failures_are_told_apart(name: str) -> None:
    failure, phase, part = CASES[name]
    verdict = log_easybuild.read(*recorded(name))
    assert (verdict.failure, verdict.phase) == (failure, phase), verdict
    assert any(part in line for line in verdict.lines), verdict.lines
    assert verdict.retry == (failure is BuildFailure.FETCH)
    assert not any("type: module: not found" in line for line in verdict.lines)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"killed"}))
def test_the_text_alone_decides_where_codes_are_other_ones(name: str) -> None:
    """Releases before 5.1 end with 1 for every failure."""
    assert log_easybuild.read(1, recorded(name)[1]).failure is CASES[name][0]


@pytest.mark.parametrize("name", CASES)
def test_exit_code_0_without_a_finished_installation_is_no_success(name: str) -> None:
    assert log_easybuild.read(0, recorded(name)[1]).failure is not None


def test_a_skipped_package_was_not_built() -> None:
    output = "== Core/zlib/1.3 is already installed (module found), skipping\n== No easyconfigs left to be built.\n"
    verdict = log_easybuild.read(0, output)
    assert verdict.failure is BuildFailure.UNKNOWN
    assert "reported no finished installation" in verdict.lines[0]


def test_a_success_that_ends_with_an_error_is_none() -> None:
    assert log_easybuild.read(1, recorded("built")[1]).failure is BuildFailure.UNKNOWN


def test_a_killed_builder_has_a_phase_and_its_last_lines() -> None:
    verdict = log_easybuild.read(*recorded("killed_by_us"))
    assert (verdict.failure, verdict.phase) == (BuildFailure.MEMORY, "build")
    assert verdict.lines


def test_a_lock_of_another_build_is_worth_a_retry() -> None:
    message = "Lock /build/locks/x.lock already exists, aborting!"
    verdict = log_easybuild.read(1, f"== building and installing Core/x/1...\nERROR: Installation of x.eb failed: {message}\n")
    assert (verdict.failure, verdict.retry) == (BuildFailure.LOCK_TIMEOUT, True)


@pytest.mark.parametrize("seed", range(60))
def test_any_output_has_a_bounded_verdict(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    code, output = recorded(chance.choice([*CASES, "built", "killed_by_us"]))
    lines = output.splitlines(keepends=True)
    for _ in range(chance.randint(1, 30)):
        place = chance.randrange(len(lines))
        lines[place] = chance.choice(
            [
                "",
                lines[chance.randrange(len(lines))],
                "x" * chance.randint(0, 5000),
                "\x00\x1b[2J\ufffd",
                lines[place][: chance.randint(0, 40)],
            ]
        )
    verdict = log_easybuild.read(chance.choice([code, 0, 1, 139, -11]), "".join(lines))
    assert len(verdict.lines) <= log_easybuild.LINES
    assert all(len(line) <= log_easybuild.LINE_CHARACTERS for line in verdict.lines)
    assert verdict.failure is None or verdict.lines or not "".join(lines).strip()
    assert len(verdict.phase) <= 30


@pytest.mark.parametrize(
    "part", ["== a...\n", "ERROR: x failed: ", "== 2026-01-01 x WARNING Shell command FAILED (exit code 1)\n", "error:\n"]
)
def test_large_outputs_are_read_in_time(part: str) -> None:
    verdict = log_easybuild.read(1, part * 300_000)
    assert verdict.failure is not None
