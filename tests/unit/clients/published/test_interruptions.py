"""Killed at every step, cut off at every point of the stream, read all the while: a tree never shows half a version."""

import hashlib
import itertools
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest

from steps.clients.releases import shell_session, verification
from steps.clients.releases.release_tree import ALL, ReleaseTree
from steps.clients.releases.tree_operations import Claimed, Operation, Put
from steps.errors import Refused, StepError, Temporary
from steps.nodeimage.publishing import external_links, image_kind, image_publication
from steps.nodeimage.publishing.image_kind import local_tree
from tests.unit.clients.published.published_trees import (
    KINDS,
    Meanwhile,
    ended,
    forked,
    image,
    order,
    place,
    published,
    silent,
    state,
    transport,
    wrong,
)


class Stopping:
    """A transport to this machine that ends its process before the n-th step; a file is cut in the middle first."""

    def __init__(self, root: Path, steps: int) -> None:
        self._inner = local_tree(root)
        self._left = steps
        self.where = self._inner.where

    def look(self, image: str, digests: Sequence[str] = ()) -> ReleaseTree:
        return self._inner.look(image, digests)

    def claim(self, folder: str, token: str, holder: bytes, over: int = 0) -> Claimed:
        self._count(lambda: None)
        claimed = self._inner.claim(folder, token, holder, over)
        self._count(lambda: None)
        return claimed

    def perform(self, operations: Iterable[Operation]) -> None:
        for one in operations:
            self._count(partial(self._half, one))
            self._inner.perform([one])

    def close(self) -> None:
        self._inner.close()

    def _half(self, one: Operation) -> None:
        if isinstance(one, Put):
            data = one.source if isinstance(one.source, bytes) else one.source.read_bytes()
            self._inner.perform([Put(one.path, data[: one.size // 2], one.size // 2)])

    def _count(self, last: Callable[[], None]) -> None:
        self._left -= 1
        if self._left < 0:
            last()
            os.kill(os.getpid(), signal.SIGKILL)


def settled(tmp_path: Path) -> Path:
    """A tree with three versions, so that the next publication removes one."""
    root = tmp_path / "tree"
    root.mkdir()
    for text in "abc":
        published(place(root), image(tmp_path / text, text))
    image(tmp_path / "d", "d")
    return root


def assert_readable(root: Path) -> None:
    """Check that the versions, the pointer and the boot entries that nodes can see are complete, whatever step was interrupted."""
    tree = local_tree(root).look("compute", (ALL,))
    assert [
        problem for version in tree.versions for problem in verification.version_problems(image_kind.image_kind(), tree, version)
    ] == []
    assert tree.current in tree.versions
    assert set(external_links.entry_images(tree)) == {"default", "gpu"}


def test_killed_at_every_step_of_a_publication(tmp_path: Path) -> None:
    root = settled(tmp_path)
    shutil.copytree(root, tmp_path / "before", symlinks=True)
    count = 0
    while True:
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root, symlinks=True)
        wanted = order(place(root), tmp_path / "d")
        code = ended(forked(partial(image_publication.publish_through, Stopping(root, count), wanted, silent)))
        if code == 0:
            break
        assert code == -signal.SIGKILL
        assert_readable(root)
        seen = published(place(root), tmp_path / "d")
        assert seen.incoming == (), count
        assert wrong(root) == [], count
        assert len(seen.versions) == 3, (count, seen.versions)
        assert json.loads((root / "compute/history.jsonl").read_text().splitlines()[-1])["to"] == seen.version
        count += 1
    assert count > 40
    assert wrong(root) == []


def test_killed_at_every_step_of_the_first_publication(tmp_path: Path) -> None:
    folder = image(tmp_path / "a", "a")
    count, code = 0, -signal.SIGKILL
    while code:
        root = tmp_path / f"tree{count}"
        root.mkdir()
        wanted = order(place(root), folder)
        code = ended(forked(partial(image_publication.publish_through, Stopping(root, count), wanted, silent)))
        assert published(place(root), folder).version.startswith("0001-")
        assert wrong(root) == [], count
        count += 1
    assert count > 40


@pytest.mark.parametrize("again", ["2", ""], ids=["by_number", "to_the_one_before"])
def test_killed_at_every_step_of_a_rollback(tmp_path: Path, again: str) -> None:
    """A rollback command that is repeated after a kill completes the rollback and does not go back a further version."""
    root = settled(tmp_path)
    shutil.copytree(root, tmp_path / "before", symlinks=True)
    count, code = 0, -signal.SIGKILL
    while code:
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root, symlinks=True)
        code = ended(forked(partial(image_publication.roll_back, Stopping(root, count), "compute", "2", "me")))
        assert_readable(root)
        with transport("local", root) as way:
            tree = way.look("compute")
            if tree.history[-1].rollback and tree.unfinished == ():
                break  # it had come to its end, all but for the lock
            done = image_publication.roll_back(way, "compute", again, "me")
            tree = way.look("compute")
        assert (tree.current, done.to, done.before[:5]) == (done.to, tree.current, "0003-"), count
        assert tree.current.startswith("0002-")
        last = tree.history[-1]
        assert (last.to, last.before[:5], last.rollback, last.by) == (tree.current, "0003-", True, "me"), count
        assert tree.unfinished == (), count
        assert wrong(root) == [], count
        published(place(root), tmp_path / "d")
        assert wrong(root) == [], count
        count += 1
    assert count > 8
    assert wrong(root) == []


def test_killed_at_every_step_a_rollback_is_one_from_its_switch_on(tmp_path: Path) -> None:
    """A rollback that is killed after the pointer was switched counts: the version it left is refused, and its author named."""
    root = settled(tmp_path)
    shutil.copytree(root, tmp_path / "before", symlinks=True)
    count, code, halfway = 0, -signal.SIGKILL, 0
    while code:
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root, symlinks=True)
        code = ended(forked(partial(image_publication.roll_back, Stopping(root, count), "compute", "2", "me")))
        tree = local_tree(root).look("compute")
        if tree.current.startswith("0002-"):
            halfway += tree.last_recorded != tree.current
            with pytest.raises(Refused, match=r"^0003-\w+ was left by a rollback \(by me"):
                published(place(root), tmp_path / "c")
            published(place(root), tmp_path / "b")
        else:
            published(place(root), tmp_path / "c")
        tree = local_tree(root).look("compute")
        last = tree.recorded_history[-1]
        assert (last.to, last.rollback) == (tree.current, tree.current.startswith("0002-")), count
        assert wrong(root) == [], count
        count += 1
    assert count > 8
    assert halfway > 0


class Lost(Meanwhile):
    """A transport that is lost right after the pointer was switched."""

    def perform(self, operations: Iterable[Operation]) -> None:
        for one in operations:
            self.inner.perform([one])
            if getattr(one, "to", "") == "compute/current":
                raise Temporary("the connection is lost")


@pytest.mark.parametrize("kind", KINDS)
def test_by_every_way_a_rollback_is_one_that_was_lost_behind_its_switch(tmp_path: Path, kind: str) -> None:
    root = settled(tmp_path)
    with transport(kind, root) as way:
        with pytest.raises(Temporary):
            image_publication.roll_back(Lost(way, lambda: None), "compute", "", "rollback by ada")
        tree = way.look("compute")
        assert tree.last_recorded[:5] == "0003-" != tree.current[:5]
        assert [one.by for one in tree.history][-2:] == ["run-1", "rollback by ada"]
        with pytest.raises(Refused, match=r"^0003-\w+ was left by a rollback \(by ada"):
            image_publication.publish_through(way, order(place(root), tmp_path / "c"), silent)
    seen = published(place(root), tmp_path / "d", kind)
    found = [(one.to[:4], one.before[:4], one.rollback, one.by) for one in local_tree(root).look("compute").recorded_history][-2:]
    assert found == [("0002", "0003", True, "rollback by ada"), (seen.version[:4], "0002", False, "run-1")]
    assert wrong(root) == []


def test_a_session_that_is_cut_off_at_any_byte(tmp_path: Path) -> None:
    """As when the network goes: the other end sees the end of its input."""
    root = settled(tmp_path)
    shutil.copytree(root, tmp_path / "before", symlinks=True)
    for cut in range(40, 24_000, 1900):
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "before", root, symlinks=True)
        program = tmp_path / "session.sh"
        program.write_text(shell_session.PROGRAM.read_text())
        command = [
            "sh",
            "-c",
            f"exec 3<&0 0</dev/null; dd bs=1 count={cut} status=none <&3 3<&- | sh {program} 3<&- & exec 3<&-; wait",
        ]
        try:
            way = shell_session.ShellTransport(command, str(root), "there", layout=image_kind.LAYOUT)
        except StepError:
            continue
        try:
            image_publication.publish_through(way, order(place(root), tmp_path / "d"), silent)
        except StepError:
            pass
        else:
            break
        finally:
            way.close()
        assert_readable(root)
        assert max((root / "compute/incoming").glob(".lock.*")).read_text() == "", "the other end gives the lock back"
        seen = published(place(root), tmp_path / "d")
        assert (wrong(root), seen.incoming) == ([], ()), cut
    else:
        pytest.fail("no session was long enough to end well: cut further on")


def test_a_reader_never_sees_half_a_version(tmp_path: Path) -> None:
    """A node takes the pointer's script, and then whatever that names, while forty versions follow each other."""
    root = tmp_path / "tree"
    root.mkdir()
    sources = [image(tmp_path / f"{number}", f"{number}") for number in range(25)]
    published(place(root), sources[0])
    stop, odd, seen = threading.Event(), list[str](), set[str]()
    reader = threading.Thread(target=lambda: _read_until(stop, root, odd, seen))
    reader.start()
    try:
        for number in itertools.count(1):
            published(place(root, keep=20), sources[number % 25])  # as many may follow while the reader waits for its turn
            if number >= 40 and (len(seen) > 10 or not reader.is_alive()):
                break
    finally:
        stop.set()
        reader.join()
    assert odd == []
    assert len(seen) > 10
    assert wrong(root) == []


def _read_until(stop: threading.Event, root: Path, odd: list[str], seen: set[str]) -> None:
    while not stop.is_set():
        script = (root / "compute/current/boot/gpu.ipxe").read_text()
        version = external_links.named_version(script, "compute")
        folder = root / "compute/versions" / version
        if not version:
            odd.append(f"a script that names no version: {script!r}")
            continue
        for line in (folder / "SHA256SUMS").read_text().splitlines():
            digest, name = line.split("  ", 1)
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                odd.append(f"{version}/{name}")
        seen.add(version)


def test_reading_writes_nothing(tmp_path: Path) -> None:
    root = settled(tmp_path)
    was = state(root)
    wrong(root)
    wrong(root, kind="shell")
    assert state(root) == was
