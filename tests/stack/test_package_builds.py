"""Builds in the real sandbox, with shell scripts in place of a build tool: what a build sees, leaves, and says if it fails."""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from steps.contract.verdict import FailureClass, Status
from steps.errors import BadTask
from steps.softwarestack.builds import package_builds
from steps.softwarestack.builds.builders import log_spack
from steps.softwarestack.builds.builders.package_builder import BuildCommand, CommandVerdict
from steps.softwarestack.builds.package_builds import BuildSite
from steps.softwarestack.builds.package_sandbox import NOBODY
from steps.softwarestack.contract.package_build import BuildFailure, BuildOutcome, PackageBuilt
from steps.softwarestack.contract.stack_input import BuildCacheLocation, StackInput, StackPackage, StackSource
from steps.stages.stack_build import gate
from steps.stages.stack_build.contract import BatchBuilt, BatchExpectation
from tests.stack.shell_builder import GOOD, INSTALL, MODULE, ShellBuilder, site_of, stack_of

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition without a fixed time: a loaded machine is slow."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        os.sched_yield()


def build(site: BuildSite, name: str) -> PackageBuilt:
    package = next(package for package in site.stack.packages if package.name == name)
    return package_builds.build_package(site, package)


def built(folder: Path, script: str, **settings: int) -> PackageBuilt:
    """The result of one package `a` with this recipe."""
    stack = stack_of(folder, "a", **settings)
    return build(site_of(folder, stack, ShellBuilder({"a": script})), "a")


def log_of(folder: Path, result: PackageBuilt) -> str:
    return (folder / "store" / result.log).read_text()


def is_clean(folder: Path) -> bool:
    return not list((folder / "scratch" / "work").iterdir())


def test_a_package_is_built_upon_one_from_the_cache(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, "a", "b")
    needs = f'test "$(cat $PACKAGES/a-1.0-*/bin/file)" = a && grep -q "{stack.root}/small/current" $MODULES/all/Core/a/1.0.lua'
    site = site_of(tmp_path, stack, ShellBuilder({"a": GOOD, "b": f"{needs} && {GOOD}"}))
    first, second = build(site, "a"), build(site, "b")
    assert (first.outcome, second.outcome) == (BuildOutcome.BUILT, BuildOutcome.BUILT), second
    entry = site.cache.entry(second.hash)
    assert entry is not None
    assert (entry.archive, entry.modules, entry.builder) == (second.archive, ("all/Core/b/1.0.lua",), "shell stand-in")
    assert second.reproduce == "sh b.sh"
    assert is_clean(tmp_path)


def test_overhead_beside_the_build_tool_is_small_and_recorded(tmp_path: Path) -> None:
    result = built(tmp_path, f"sleep 0.2 && {GOOD}")
    assert result.tool_seconds >= 0.2
    assert result.seconds == pytest.approx(result.tool_seconds + result.overhead_seconds, abs=0.01)
    assert result.overhead_seconds < 1.0


def test_what_is_cached_is_not_built_again(tmp_path: Path) -> None:
    first = built(tmp_path, GOOD)
    again = built(tmp_path, "exit 1")
    assert (again.outcome, again.archive, again.log) == (BuildOutcome.CACHED, first.archive, "")


def test_equal_builds_have_equal_archives(tmp_path: Path) -> None:
    results = [
        built(tmp_path / name, f"{GOOD} && touch -d @{moment} $PREFIX/bin/file") for name, moment in (("x", 5), ("y", 500_000))
    ]
    assert results[0].archive == results[1].archive


def test_a_package_without_files_has_its_module_alone(tmp_path: Path) -> None:
    result = built(tmp_path, f'mkdir -p "$MODULES/all/Core/$NAME" && {MODULE}')
    assert result.outcome is BuildOutcome.BUILT
    stack = stack_of(tmp_path, "a", "b")
    site = site_of(tmp_path, stack, ShellBuilder({"b": f"test ! -e $PACKAGES/a-1.0-* && {GOOD}"}))
    assert build(site, "b").outcome is BuildOutcome.BUILT


def test_a_missing_dependency_stops_a_build_before_it_starts(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, "a", "b")
    result = build(site_of(tmp_path, stack, ShellBuilder({"b": GOOD})), "b")
    assert (result.outcome, result.failure, result.needs) == (
        BuildOutcome.NOT_STARTED,
        BuildFailure.DEPENDENCY,
        stack.packages[0].hash,
    )
    assert result.lines == ("a@1.0, which it needs, is not in the build cache",)
    assert result.log == ""


def test_a_tampered_dependency_is_told_and_stays(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, "a", "b")
    site = site_of(tmp_path, stack, ShellBuilder({"a": GOOD, "b": GOOD}))
    build(site, "a")
    archive = next(site.cache.folder.glob("*.tar.zst"))
    archive.write_bytes(archive.read_bytes()[:-1] + b"?")
    result = build(site, "b")
    assert (result.outcome, result.failure) == (BuildOutcome.FAILED, BuildFailure.TAMPERED)
    assert archive.name in result.lines[0]
    assert archive.exists()


def test_a_failed_build_leaves_its_log_and_nothing_else(tmp_path: Path) -> None:
    result = built(tmp_path, "echo the password is hunter2; echo decisive >&2; exit 3")
    assert (result.outcome, result.failure, result.phase) == (BuildOutcome.FAILED, BuildFailure.COMPILE, "build")
    assert result.lines[-1] == "decisive"
    assert "ended with 3" in log_of(tmp_path, result)
    assert "hunter2" not in log_of(tmp_path, result) + str(result)
    assert is_clean(tmp_path)
    assert not (tmp_path / "cache").exists()


SEEN = {
    "no network": 'test "$(grep -c : /proc/net/dev)" = 1',
    "no store": 'test -z "$(ls -A {folder} 2>/dev/null)"',
    "no secrets": "! cat {secret} 2>/dev/null",
    "no homes": 'test -z "$(ls -A /root /home 2>/dev/null | grep -v :)"',
    "not root": 'test "$(id -u)" = {user}',
    "no capabilities": "grep -q '^CapEff:.0*$' /proc/self/status",
    "own processes alone": 'test "$(ls -d /proc/[0-9]* | wc -l)" -lt 10',
    "private /tmp": 'test -z "$(ls -A /tmp)" && touch /tmp/x',
    "a root that nobody writes": "! touch /x /usr/x /etc/x 2>/dev/null",
    "the caller's variables": 'test -z "$BRINGUP_CANARY"',
    "a folder of its own": 'test "$PWD" = /build && touch $BUILD/x',
    "no core files": 'test "$(ulimit -c)" = 0',
    "no shadow file": "! cat /etc/shadow 2>/dev/null",
}


@pytest.mark.parametrize("name", SEEN)
def test_a_build_sees_only_its_own(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINGUP_CANARY", "x")
    secret = Path("/opt") / f"bringup-test-{os.getpid()}" / "secret"
    secret.parent.mkdir()
    try:
        secret.write_text("hunter2")
        test = SEEN[name].format(folder=tmp_path, secret=secret, user=NOBODY if os.geteuid() == 0 else os.geteuid())
        stack = stack_of(tmp_path, "a")
        site = site_of(tmp_path, stack, ShellBuilder({"a": f"{test} && {GOOD}"}), (secret.parent,))
        result = build(site, "a")
    finally:
        secret.unlink()
        secret.parent.rmdir()
    assert result.outcome is BuildOutcome.BUILT, result


def test_a_dependency_is_read_only(tmp_path: Path) -> None:
    stack = stack_of(tmp_path, "a", "b")
    attack = "! touch $PACKAGES/a-1.0-*/bin/file 2>/dev/null && ! rm -rf $PACKAGES/a-1.0-*/bin 2>/dev/null"
    site = site_of(tmp_path, stack, ShellBuilder({"a": GOOD, "b": f"{attack} && {GOOD}"}))
    assert [build(site, name).outcome for name in "ab"] == [BuildOutcome.BUILT, BuildOutcome.BUILT]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (INSTALL, "the build wrote no module file"),
        (f"{GOOD} && ln -s /etc/passwd $PREFIX/bin/link", "bin/link links to '/etc/passwd'"),
        (f"{GOOD} && mkfifo $PREFIX/bin/pipe", "bin/pipe is no file, folder or symbolic link"),
        (f"{GOOD} && rm $MODULES/all/Core/a/1.0.lua && ln -s /etc/passwd $MODULES/all/Core/a/1.0.lua", "1.0.lua is no file"),
    ],
)
def test_what_may_not_travel_fails_the_build(script: str, reason: str, tmp_path: Path) -> None:
    result = built(tmp_path, script)
    assert (result.outcome, result.failure) == (BuildOutcome.FAILED, BuildFailure.SANITY)
    assert reason in result.lines[0]
    assert not list((tmp_path / "cache").rglob("*.json"))


@pytest.mark.parametrize("folder", ["$BUILD/modules", "$BUILD/packages", "$BUILD/fetched", "$BUILD/packages/a-1.0-*"])
def test_a_link_in_place_of_a_folder_leads_nobody_out(folder: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("hunter2")
    result = built(tmp_path, f"{GOOD} && set -- {folder} && mv $1 $BUILD/moved && ln -s {tmp_path}/outside $1")
    assert (result.outcome, result.failure) == (BuildOutcome.FAILED, BuildFailure.SANITY)
    assert "replaced the folder" in result.lines[0]
    assert (tmp_path / "outside" / "secret").exists()


def test_rights_are_made_equal_for_all_readers(tmp_path: Path) -> None:
    result = built(tmp_path, f"{GOOD} && chmod 4700 $PREFIX/bin/file && chmod 700 $PREFIX/bin")
    assert result.outcome is BuildOutcome.BUILT
    stack = stack_of(tmp_path, "a", "b")
    test = 'test "$(stat -c %a $PACKAGES/a-1.0-*/bin/file)" = 755'
    assert build(site_of(tmp_path, stack, ShellBuilder({"b": f"{test} && {GOOD}"})), "b").outcome is BuildOutcome.BUILT


def test_a_build_ends_with_its_time_and_leaves_no_process(tmp_path: Path) -> None:
    marker = f"77{os.getpid()}"
    result = built(tmp_path, f"(setsid sleep {marker} &); sleep {marker}", seconds=1)
    assert (result.failure, result.lines[0]) == (BuildFailure.TIME, "build did not end within 1 s")
    until(lambda: not processes(marker), "processes of the build go on")
    assert is_clean(tmp_path)


def test_a_build_has_its_memory_and_no_more(tmp_path: Path) -> None:
    hungry = 'x=0123456789; while :; do x="$x$x"; done'
    result = built(tmp_path, hungry, memory_mib=64)
    assert result.failure is BuildFailure.COMPILE  # the stand-in knows no other failure
    assert "Out of space" in result.lines[-1]  # as dash has it; its heap, not a disk


def processes(marker: str) -> list[str]:
    """Ids of processes that have this word in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if marker.encode() in entry.read_bytes().split(b"\0"):
                found.append(entry.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_killed_builder_takes_its_build_with_it_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    marker = f"88{os.getpid()}"
    (tmp_path / "SCRIPT").write_text(f"(setsid sleep {marker} &); sleep {marker}")
    words = [sys.executable, "-P", "-m", "tests.stack.shell_builder", str(tmp_path), "a"]
    with subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL) as builder:
        until(lambda: len(processes(marker)) >= 2, "the build did not start")
        builder.send_signal(signal.SIGKILL)
    until(lambda: not processes(marker), "processes of the build go on")
    assert not is_clean(tmp_path)
    assert built(tmp_path, GOOD).outcome is BuildOutcome.BUILT
    assert is_clean(tmp_path)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of this size in memory."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("place", ["cache", "scratch"])
def test_a_full_disk_is_told_apart(place: str, tmp_path: Path) -> None:
    fill = "dd if=/dev/urandom of=$PREFIX/bin/large bs=64k count=64 2>/dev/null"
    with small_disk(tmp_path / place, "1m"):
        if place == "scratch":  # and dd keeps silent about it
            with contextlib.suppress(OSError):
                (tmp_path / place / "rest").write_bytes(bytes(1 << 20))
        result = built(tmp_path, f"{GOOD} && {fill}")
        assert (result.outcome, result.failure) == (BuildOutcome.FAILED, BuildFailure.DISK_FULL), result


class SpackReader(ShellBuilder):
    """The stand-in with the reader of Spack's output."""

    def read(self, package: StackPackage, command: BuildCommand, code: int, output: str) -> CommandVerdict:
        verdict = log_spack.read(["spack", "install", f"/{package.hash}"], code, output)
        return CommandVerdict(failure=verdict.failure, phase=verdict.phase, retry=verdict.retry, lines=verdict.lines)


def test_a_lock_that_stays_held_is_told_and_tried_again(tmp_path: Path) -> None:
    script = 'echo "==> Error: Timed out waiting for a write lock after 3.0s."; exit 1'
    stack = stack_of(tmp_path, "a")
    result = build(site_of(tmp_path, stack, SpackReader({"a": script})), "a")
    assert (result.outcome, result.failure, result.retry) == (BuildOutcome.FAILED, BuildFailure.LOCK_TIMEOUT, True)
    seen = BatchBuilt(stack=stack.digest, batch=0, packages=(result,))
    verdict = gate.batch(seen, BatchExpectation(stack=stack.digest, packages=(result.hash,)))
    assert (verdict.status, verdict.failure_class) == (Status.FAIL, FailureClass.RUNTIME)
    assert "a@1.0 failed" in verdict.reason
    assert "(lock_timeout)" in verdict.reason


def fetching(folder: Path, data: str) -> tuple[StackInput, ShellBuilder]:
    source = StackSource(name="a.txt", sha256=hashlib.sha256(b"content\n").hexdigest())
    uses = 'test "$(cat $BUILD/sources/a.txt)" = content && ! touch $BUILD/sources/a.txt 2>/dev/null'
    builder = ShellBuilder({"a": f"{uses} && {GOOD}"}, {"a": f"echo {data} > $BUILD/fetched/a.txt; echo begun | tr b B"})
    return stack_of(folder, "a", sources=(source,)), builder


def test_sources_are_fetched_once_with_network(tmp_path: Path) -> None:
    stack, builder = fetching(tmp_path, "content")
    result = build(site_of(tmp_path, stack, builder), "a")
    assert result.outcome is BuildOutcome.BUILT, result
    assert log_of(tmp_path, result).count("Begun") == 1
    for path in (tmp_path / "cache").rglob("*.json"):
        path.unlink()
    again = build(site_of(tmp_path, stack, builder), "a")
    assert again.outcome is BuildOutcome.BUILT
    assert "Begun" not in log_of(tmp_path, again)


def test_a_fetched_source_with_another_digest_fails_the_build(tmp_path: Path) -> None:
    stack, builder = fetching(tmp_path, "other")
    result = build(site_of(tmp_path, stack, builder), "a")
    assert (result.outcome, result.failure, result.phase) == (BuildOutcome.FAILED, BuildFailure.CHECKSUM, "fetch")


def test_a_wrong_source_of_the_site_fails_the_build_without_a_fetch(tmp_path: Path) -> None:
    stack, builder = fetching(tmp_path, "content")
    (tmp_path / "site").mkdir()
    (tmp_path / "site/a.txt").write_text("other")
    stack = msgspec.structs.replace(stack, sources=(str(tmp_path / "site"),))
    result = build(site_of(tmp_path, stack, builder), "a")
    assert (result.failure, result.log) == (BuildFailure.CHECKSUM, "")


def test_entries_are_signed_and_dependencies_must_be(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    stack = stack_of(tmp_path, "a", "b")
    location = BuildCacheLocation(folder=stack.cache.folder, signers=((tmp_path / "key.pub").read_text(),))
    unsigned = site_of(tmp_path, stack, ShellBuilder({"a": GOOD}))
    assert build(unsigned, "a").outcome is BuildOutcome.BUILT
    site = site_of(tmp_path, msgspec.structs.replace(stack, cache=location), ShellBuilder({"a": GOOD, "b": GOOD}))
    signing = msgspec.structs.replace(site, key=tmp_path / "key")
    refused = build(signing, "b")
    assert (refused.outcome, refused.failure) == (BuildOutcome.FAILED, BuildFailure.UNSIGNED)
    assert build(signing, "a").failure is BuildFailure.UNSIGNED, "an entry that is not trusted was built over"
    for path in site.cache.folder.iterdir():
        path.unlink()
    assert [build(signing, name).outcome for name in "ab"] == [BuildOutcome.BUILT, BuildOutcome.BUILT]


def test_a_machine_without_a_sandbox_is_no_failure_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadTask, match="bwrap, which is not installed"):
        built(tmp_path, GOOD)


def test_an_ordinary_user_builds_too(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("the other tests run as an ordinary user already")
    folder = Path("/var/tmp") / f"bringup-user-{os.getpid()}"
    folder.mkdir(mode=0o755)
    (folder / "SCRIPT").write_text(
        f'test "$(id -u)" = {NOBODY} && {GOOD} && mkdir $BUILD/x && touch $BUILD/x/y && chmod 500 $BUILD/x'
    )
    os.chown(folder, NOBODY, NOBODY)
    try:
        program = f"import sys; sys.path[:0] = {sys.path!r}; from pathlib import Path; from tests.stack import shell_builder as s; "
        python = "/usr/bin/python3.11"  # Debian's: this one may lie in a home of root
        words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", python, "-I", "-c"]
        done = subprocess.run([*words, f"{program}s.main(Path({str(folder)!r}), 'a')"], cwd="/", capture_output=True, text=True)
        assert "built" in done.stdout, done.stdout + done.stderr
        assert is_clean(folder)
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
