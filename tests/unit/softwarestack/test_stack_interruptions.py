"""Publications of stacks that are killed before each of their system calls, or that meet others at work in the same root."""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest

from steps.clients.clock import RealClock
from steps.clients.releases import release_lease
from steps.clients.releases.local_transport import LocalTransport
from steps.clients.releases.tree_operations import Operation
from steps.errors import StepError, StoreBusy
from steps.softwarestack.contract.package_files import LISTING
from steps.softwarestack.contract.stack_input import PACKAGES
from steps.softwarestack.publication import stack_publication
from steps.softwarestack.publication.package_checks import named_folders
from steps.softwarestack.publication.package_store import PackageStore
from steps.softwarestack.publication.stack_kind import LAYOUT, local_tree
from tests.unit.clients.published.published_trees import ended, forked
from tests.unit.softwarestack.published_stacks import (
    HPL,
    ZLIB,
    assembled,
    folder_of,
    look,
    packages_in,
    publish,
    published,
    request,
    wrong,
)

EVENTS = frozenset(
    {"open", "os.mkdir", "os.chmod", "os.rename", "os.link", "os.symlink", "os.truncate", "os.utime", "os.remove", "os.rmdir"}
)
"""Python's own names of the system calls that change a folder or a file."""
LAST = {"zlib": "1.4", "HPL": "2.3"}
"""Packages of the version that a killed process publishes: one is new, one is there."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "stacks").mkdir()
    return tmp_path / "stacks"


def killed_at(number: int, root: Path, act: Callable[[], object]) -> bool:
    """Do it in a process that is killed before the n-th change below a root; return False if it came to its end."""

    def stopped() -> None:
        left = [number]

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if event not in EVENTS or (not str(arguments[0]).startswith(str(root)) and not isinstance(arguments[0], int)):
                return
            if event == "open" and not int(str(arguments[2])) & (os.O_WRONLY | os.O_RDWR):
                return
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        act()

    code = ended(forked(stopped))
    assert code in (0, -signal.SIGKILL)
    return code != 0


def assert_usable(root: Path, number: int) -> None:
    """Check that the version that users have is whole, and that every version of every stack has its packages."""
    for name in ("tools", "other"):
        place = root / name / "current"
        assert place.is_dir(), (name, number)
        for path in (place / "modules").rglob("*.lua"):
            package = path.read_text().split('"')[1]
            assert (Path(package) / "bin/run").is_file(), (name, number)
    missing = [folder for folder in named_folders(root) if not (root / "packages" / folder / "lib/libx.so.1").is_file()]
    assert missing == [], number


def test_killed_before_each_change_of_a_publication(root: Path, tmp_path: Path) -> None:
    """Every kill leaves the old or the new version whole; the next publication completes it and leaves nothing behind."""
    published(tmp_path, root, ZLIB, name="other")
    for packages in ({"zlib": "1.2", "HPL": "2.2"}, ZLIB):
        published(tmp_path, root, packages, keep=2)
    wanted = request(assembled(tmp_path / "last", root, LAST), root, keep=2)
    shutil.copytree(root, tmp_path / "before", symlinks=True)
    number = 0
    while killed_at(number, root, partial(publish, wanted)):
        assert_usable(root, number)
        after = publish(wanted)
        assert after.incoming == (), number
        assert wrong(root) == {}, number
        assert sorted(named_folders(root)) == packages_in(root), number
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root, symlinks=True)
        number += 3 if number % 2 else 1
    assert number > 60, "changes of one publication"
    assert wrong(root) == wrong(root, "other") == {}


class Meeting(LocalTransport):
    """A transport on which somebody else acts once, right before an operation on a path that begins so."""

    def __init__(self, root: Path, before: str, act: Callable[[], object]) -> None:
        super().__init__(root, LAYOUT)
        self._before, self._act = before, [act]

    def perform(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if self._act and str(getattr(operation, "to", "")).startswith(self._before):
                self._act.pop()()
            super().perform([operation])


def test_two_publishers_copy_one_package_at_once(root: Path, tmp_path: Path) -> None:
    """The second gives the package its place while the first still copies it: the first compares it and drops its own copy."""
    mine = request(assembled(tmp_path / "mine", root, ZLIB), root)
    meeting = partial(Meeting, before="packages/", act=partial(published, tmp_path, root, ZLIB, "other"))
    assert publish(mine, meeting).incoming == ()
    assert wrong(root) == wrong(root, "other") == {}
    assert packages_in(root) == sorted([folder_of("zlib", "1.3"), folder_of("HPL", "2.3")])


def test_two_publishers_of_one_stack(root: Path, tmp_path: Path) -> None:
    """The second publishes another version of the stack in between; both are there, and the last one is current."""
    mine = request(assembled(tmp_path / "mine", root, ZLIB), root)
    meeting = partial(Meeting, before="packages/", act=partial(published, tmp_path, root, HPL))
    last = publish(mine, meeting)
    assert [version[:4] for version in look(root).versions] == ["0001", "0002"]
    assert last.version == look(root).current
    assert wrong(root) == {}


def test_a_collection_spares_what_a_publication_at_work_has_reserved(root: Path, tmp_path: Path) -> None:
    """Packages have their places, and no version names them yet: a collection right then removes nothing."""
    collected = []

    def collect() -> None:
        collected.append(PackageStore(local_tree(root), root, RealClock()).collect("gc by ada"))

    mine = request(assembled(tmp_path / "mine", root, ZLIB), root)
    publish(mine, partial(Meeting, before="tools/versions/", act=collect))
    assert [(one.removed, one.kept, one.leftovers) for one in collected] == [((), 2, ())]
    assert wrong(root) == {}


def test_a_package_that_vanishes_before_the_switch_stops_the_publication(root: Path, tmp_path: Path) -> None:
    """Somebody removes a package by hand while its version is published: the version is not reported as published."""
    before = published(tmp_path, root, ZLIB)
    mine = request(assembled(tmp_path / "mine", root, HPL), root)
    vanish = partial(shutil.rmtree, root / "packages" / folder_of("HPL", "2.4"))
    after = publish(mine, partial(Meeting, before="tools/versions/", act=vanish))
    assert after.missing_packages == (folder_of("HPL", "2.4"),)
    assert after.before == before.version


def test_what_a_publisher_left_that_was_killed_is_collected(root: Path, tmp_path: Path) -> None:
    published(tmp_path, root, ZLIB)
    mine = request(assembled(tmp_path / "mine", root, HPL), root)
    assert killed_at(25, root, partial(publish, mine))
    store = PackageStore(local_tree(root), root, RealClock())
    planned = store.collect("gc by ada", dry_run=True)
    assert planned.leftovers
    assert store.collect("gc by ada") == planned
    assert store.collect("gc by ada").leftovers == ()
    assert wrong(root) == {}


def test_a_full_disk_is_told_before_anything_is_copied(root: Path, tmp_path: Path) -> None:
    from msgspec.structs import replace

    mine = request(assembled(tmp_path / "mine", root, ZLIB), root)
    stack = mine.release.stack  # type: ignore[attr-defined]
    large = replace(stack, packages=tuple(replace(package, size=1 << 60) for package in stack.packages))
    with pytest.raises(StepError, match="MB of packages are missing"):
        publish(replace(mine, release=replace(mine.release, stack=large)))
    assert packages_in(root) == []


class Full(LocalTransport):
    """A transport to a disk that is full when the list of a package's files is written."""

    def perform(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            if str(getattr(operation, "path", "")).endswith(LISTING):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().perform([operation])


def test_a_disk_that_fills_up_is_tried_again(root: Path, tmp_path: Path) -> None:
    mine = request(assembled(tmp_path / "mine", root, ZLIB), root)
    with pytest.raises(StoreBusy, match="No space left on device") as caught:
        publish(mine, lambda place: Full(place, LAYOUT))
    assert caught.value.hint == "free space or make the tree writable"
    assert packages_in(root) == []
    assert publish(mine).copied == 2


def test_a_publication_waits_for_the_lock_of_packages_that_another_holds(root: Path, tmp_path: Path) -> None:
    """The other process holds the lock until the publication has asked for it once."""
    mine = request(assembled(tmp_path / "mine", root, ZLIB), root)
    lease = release_lease.hold_lease(local_tree(root), PACKAGES, "other", "gc by ada")
    lease.__enter__()
    paused = []

    class Waiting(RealClock):
        def pause(self, seconds: float, deadline: float) -> None:  # the lock is free at once
            if not paused:
                lease.__exit__(None, None, None)
            paused.append(seconds)

    done = stack_publication.publish_through(local_tree(root), mine, Waiting(), lambda _: None)
    assert (done.copied, len(paused)) == (2, 1)
    assert wrong(root) == {}
