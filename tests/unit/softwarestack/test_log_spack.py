"""Outputs of Spack are read as the recordings of a real one say, and nothing that Spack did not say counts as done."""

import random
import shlex
from typing import Any, Final

import pytest
import yaml

from steps.softwarestack.builds.builders import log_spack
from steps.softwarestack.builds.builders.log_spack import SpackVerdict
from steps.softwarestack.contract.package_build import BuildFailure
from tests.unit.softwarestack.small_locks import DATA

RECORDED = DATA / "real_0.23"
CASES = yaml.safe_load((RECORDED / "INDEX.yaml").read_text())["cases"]
KINDS: Final = {
    "missing_dependency": BuildFailure.DEPENDENCY,
    "cache_miss": BuildFailure.DEPENDENCY,
    "cache_incomplete": BuildFailure.DEPENDENCY,
    "compile": BuildFailure.COMPILE,
    "link": BuildFailure.COMPILE,
    "configure": BuildFailure.COMPILE,
    "install_phase": BuildFailure.COMPILE,
    "checksum": BuildFailure.CHECKSUM,
    "tampered": BuildFailure.TAMPERED,
    "fetch": BuildFailure.FETCH,
    "registry_tls": BuildFailure.FETCH,
    "test": BuildFailure.TEST,
    "disk_full": BuildFailure.DISK_FULL,
    "signature": BuildFailure.UNSIGNED,
    "signing_key": BuildFailure.PERMISSION,
    "relocation": BuildFailure.SANITY,
    "store_lost": BuildFailure.UNKNOWN,
    "unknown_hash": BuildFailure.INPUT,
    "repository": BuildFailure.INPUT,
    "bad_yaml": BuildFailure.INPUT,
    "no_environment": BuildFailure.INPUT,
    "no_lock": BuildFailure.INPUT,
    "unknown_package": BuildFailure.INPUT,
    "unknown_variant": BuildFailure.INPUT,
    "usage": BuildFailure.INPUT,
    "unsat": BuildFailure.INPUT,
}
"""Kinds of the recordings' index. A bad signature is there with those that are missing; here it counts as tampered."""
INSTALL: Final = "spack -e E install -j2 --only-concrete --use-buildcache=package:never,dependencies:only /"


def _command(case: dict[str, Any]) -> str:
    """Return the command of a case; those kept from the run itself name it in their source, without the hash."""
    command = case.get("command", "")
    if command.startswith("spack"):
        return str(command)
    source = case.get("source", "")
    is_install = source.startswith(("spack -e E install", "same command")) and case["file"].endswith(".txt")
    return f"{INSTALL}{'a' * 32}" if is_install else ""


OF_SPACK = [case for case in CASES if case["file"].endswith(".txt") and _command(case)]


def _read(case: dict[str, Any]) -> SpackVerdict:
    command = _command(case).split(" && ")[-1].split(";")[0]
    return log_spack.read(shlex.split(command), case.get("exit", 1), (RECORDED / case["file"]).read_text())


@pytest.mark.parametrize("case", OF_SPACK, ids=lambda case: str(case["file"]))
def test_recorded_outputs_are_read_as_their_index_says(case: dict[str, Any]) -> None:
    verdict, expected = _read(case), case["expected"]
    if expected["verdict"] == "pass":
        assert verdict == SpackVerdict()
        return
    if expected["verdict"] == "inconclusive":  # `buildcache check` cannot tell a package that is there from one that is not
        return
    kind = KINDS[expected["kind"]]
    if expected.get("cause") == "BAD signature":
        kind = BuildFailure.TAMPERED
    assert (verdict.failure, verdict.retry) == (kind, expected.get("retry", False))
    assert verdict.lines
    if named := expected.get("package") or expected.get("failed"):
        assert verdict.package == named


def test_nearly_all_recordings_of_commands_are_read() -> None:
    assert len(OF_SPACK) > 100
    assert sum(case["expected"]["verdict"] == "fail" for case in OF_SPACK) >= 40


def _output(name: str) -> str:
    return (RECORDED / name).read_text()


def test_decisive_lines_of_a_compile_error_are_those_of_the_compiler() -> None:
    verdict = log_spack.read(["spack", "install"], 1, _output("fail_compile_error.txt"))
    assert verdict.phase == "build"
    assert verdict.lines == (
        "ProcessError: Command exited with status 2:",
        ">> 6     main.c:4:20: error: 'undeclared_name' undeclared (first use in this function)",
        ">> 10    make: *** [Makefile:3: prog] Error 1",
    )


def test_decisive_lines_of_a_failed_fetch_are_the_reasons_of_each_server() -> None:
    verdict = log_spack.read(["spack", "install"], 1, _output("fail_fetch_no_source.txt"))
    assert len(verdict.lines) == 4
    assert "Connection refused" in verdict.lines[-1]


def test_a_source_that_every_server_lacks_is_not_fetched_again() -> None:
    lines = _output("fail_fetch_no_source.txt").splitlines()
    gone = [line for line in lines if "Name or service" not in line and "Connection refused" not in line]
    assert log_spack.read(["spack", "install"], 1, "\n".join(gone)).retry is False
    gone.append(
        "    https://example.org/nosource-1.0.tar.gz: DetailedHTTPError: GET https://example.org/x errored with HTTP Error 503"
    )
    assert log_spack.read(["spack", "install"], 1, "\n".join(gone)).retry is True


def test_words_that_spack_broke_at_the_width_of_its_excerpt_are_joined() -> None:
    text = _output("fail_disk_full_store.txt").replace("==> Error: [Errno 28] No space left on device", "")
    verdict = log_spack.read(["spack", "install"], 1, text)
    assert verdict.failure is BuildFailure.DISK_FULL
    assert any(line.endswith("big.dat': No space left on device") for line in verdict.lines)


def test_a_package_is_installed_under_the_short_name_of_a_publish_root_too() -> None:
    hash_ = "qndxdja" + "e" * 25
    line = f"[+] /srv/stacks/packages/zlib-1.2.13-{hash_[:12]}"
    assert log_spack.read(["spack", "install", f"/{hash_}"], 0, line).is_done
    assert not log_spack.read(["spack", "install", f"/{hash_}"], 0, line[:-1]).is_done


PASSED = [
    case
    for case in OF_SPACK
    if case["expected"]["verdict"] == "pass" and " install " in _command(case) and "--only=dependencies" not in _command(case)
]


@pytest.mark.parametrize("case", PASSED, ids=lambda case: str(case["file"]))
def test_an_install_without_its_last_line_is_not_done(case: dict[str, Any]) -> None:
    """Exit code 0 alone is no evidence: the line with the prefix of the package itself must be there."""
    command = shlex.split(_command(case).split(" && ")[0].split(";")[0])
    if not command[-1].startswith("/"):
        command.append(f"/{'b' * 32}")
    kept = [line for line in _output(case["file"]).splitlines() if not line.endswith(command[-1][1:])]
    assert log_spack.read(command, 0, "\n".join(kept)).failure is BuildFailure.UNKNOWN
    assert not log_spack.is_installed(command[-1][1:], "\n".join(kept))


FAILED = [case for case in OF_SPACK if case["expected"]["verdict"] == "fail" and " install " in _command(case)]


@pytest.mark.parametrize("case", FAILED, ids=lambda case: str(case["file"]))
def test_a_failed_install_that_ends_with_0_is_not_done(case: dict[str, Any]) -> None:
    command = shlex.split(_command(case))
    assert not log_spack.read(command, 0, _output(case["file"])).is_done


SYNTHETIC: Final = {
    "==> Error: Timed out waiting for a write lock after 3.0s.\n    Made 2 attempts on file: /s/.spack-db/lock": (
        BuildFailure.LOCK_TIMEOUT,
        True,
    ),
    "x86_64-linux-gnu-gcc: fatal error: Killed signal terminated program cc1plus\n": (BuildFailure.MEMORY, False),
    "==> Error: [Errno 13] Permission denied: '/site/store/.spack-db/lock'": (BuildFailure.PERMISSION, False),
    "==> Error: <urlopen error timed out>": (BuildFailure.FETCH, True),
    "": (BuildFailure.UNKNOWN, False),
}


@pytest.mark.parametrize("text", SYNTHETIC, ids=["lock", "memory", "permission", "server", "nothing"])
def test_failures_without_a_recording_are_read_by_spacks_own_words(text: str) -> None:
    verdict = log_spack.read(["spack", "install", f"/{'c' * 32}"], 1, text)
    assert (verdict.failure, verdict.retry) == SYNTHETIC[text]


def test_a_killed_command_may_be_repeated() -> None:
    assert log_spack.read(["spack", "install"], -9, "").retry


def test_garbage_is_neither_done_nor_a_crash() -> None:
    """Outputs cut, shuffled and mixed with noise never count as a finished install of a package that they do not name."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    source = random.Random(seed)
    texts = [_output(case["file"]) for case in OF_SPACK]
    command = ["spack", "-e", "E", "install", f"/{'d' * 32}"]
    for _ in range(300):
        text = source.choice(texts)
        lines = text.split("\n")
        source.shuffle(lines)
        mixed = "\n".join(lines[: source.randrange(len(lines) + 1)]) + "".join(map(chr, source.choices(range(1, 0x2FF), k=200)))
        for code in (0, 1, 2, 3, -9):
            verdict = log_spack.read(command, code, mixed)
            assert not verdict.is_done
            assert len(verdict.lines) <= log_spack.LINES
            assert all(len(line) <= log_spack.LINE_CHARACTERS for line in verdict.lines)


def test_a_huge_output_is_read_at_its_ends() -> None:
    text = _output("fail_compile_error.txt")
    huge = text.replace("==> Error: ProcessError", "noise of a build\n" * 400_000 + "==> Error: ProcessError")
    assert log_spack.read(["spack", "install"], 1, huge).failure is BuildFailure.COMPILE


def test_stand_alone_test_results_that_failed_are_not_done() -> None:
    assert not log_spack.read(["spack", "test", "results", "t1"], 0, _output("spack_test_results.txt")).is_done
