"""Publishing on mounts of a stand-in for a network file system: what it says no to may have been done, and handles go stale."""

import errno
import os
import threading
from functools import partial
from pathlib import Path

import pytest

from steps.contract.canonical import digest_bytes
from steps.errors import StoreBusy
from steps.nodeimage.publishing.image_kind import local_tree
from tests.boot.published.clients import booted, publish_all, turns
from tests.boot.published.nfs_mounts import SILLY, Odd, mounted
from tests.unit.clients.published.published_trees import KINDS, ended, forked, image, place, published, wrong

STALE = 1.0
"""A moment for which names are believed; NFS takes up to a minute of its own."""
LOCK, VERSION, POINTER = "/incoming/.lock.", "/compute/versions/0002-", " /compute/current"
ASKED_TWICE = {
    "the lock": Odd("link", LOCK, errno.EEXIST, done=True),
    "a folder": Odd("mkdir", "/incoming/", errno.EEXIST, done=True),
    "a version's name": Odd("rename", VERSION, errno.ENOENT, done=True),
    "a link": Odd("symlink", "/incoming/", errno.EEXIST, done=True),
    "the pointer": Odd("rename", POINTER, errno.ENOENT, done=True),
    "the history": Odd("rename", " /compute/history.jsonl", errno.ENOENT, done=True),
    "removing a file": Odd("unlink", "/incoming/", errno.ENOENT, done=True),
    "removing a folder": Odd("rmdir", "/incoming/", errno.ENOENT, done=True),
    "removing a folder with a file that is still open": Odd("rmdir", "/incoming/", errno.ENOTEMPTY),
    "giving the lock back": Odd("truncate", LOCK, errno.ENOENT, done=True),
    "no folder is flushed": Odd("fsyncdir", "/", errno.EINVAL, times=1000),
}
"""Step of a publication → an odd answer of NFS: mostly the call was done, its answer was lost and the client asked again."""
OPENED = ("giving the lock back", "shell")
"""A shell empties a file by opening it."""
CLEARED = {
    "looked at": Odd("open", "/incoming/left/", errno.ENOENT),
    "read": Odd("read", "/incoming/left/", errno.ESTALE, removed=True, times=2),
    "listed": Odd("readdir", "/incoming/left", errno.ESTALE, removed=True),
    "claimed": Odd("chmod", "/incoming/.claim.", errno.ESTALE),
}
PART = "/version/root.squashfs"
STALE_HANDLES = {
    "of a file that is written": Odd("write", PART, errno.ESTALE),
    "of a file that is flushed": Odd("fsync", PART, errno.ESTALE),
    "of a file that is read again": Odd("read", PART, errno.ESTALE, times=2),
    "of a folder that is flushed": Odd("fsyncdir", "/compute/versions", errno.ESTALE),
    "where a version gets its name": Odd("rename", VERSION, errno.ESTALE, times=2),
    "where the pointer is set": Odd("rename", POINTER, errno.ESTALE, times=2),
    "of the folder that has the lock": Odd("opendir", "/incoming", errno.ESTALE, times=2),
}
"""Once; for a name and for what is read ahead the kernel itself asks a second time."""


@pytest.fixture
def server(able: None, tmp_path: Path) -> Path:
    """The folder that the mounts are of, with one version, and another image beside."""
    if not Path("/dev/fuse").exists():
        pytest.skip("this kernel has no FUSE: there is no /dev/fuse")
    root = tmp_path / "server"
    root.mkdir()
    published(place(root), image(tmp_path / "a", "a"))
    image(tmp_path / "b", "b")
    return root


def test_the_stand_in_passes_all_on(server: Path, tmp_path: Path) -> None:
    with mounted(server, tmp_path / "mount") as mount:
        seen = published(place(mount.path), tmp_path / "b")
        assert (seen.incoming, mount.odd(), wrong(mount.path)) == ((), [], [])
    assert os.listdir(tmp_path / "mount") == [], "it is gone from there"
    assert (local_tree(server).look("compute").current, wrong(server)) == (seen.version, [])


@pytest.mark.sampled_rows(3)
@pytest.mark.parametrize(("twice", "kind"), [(twice, kind) for twice in ASKED_TWICE for kind in KINDS if (twice, kind) != OPENED])
def test_what_was_done_is_no_failure_whatever_the_answer(server: Path, tmp_path: Path, twice: str, kind: str) -> None:
    with mounted(server, tmp_path / "mount", ASKED_TWICE[twice], stale=STALE) as mount:
        seen = published(place(mount.path), tmp_path / "b", kind)
        assert mount.odd(), "it was asked"
    assert (seen.incoming, wrong(server)) == ((), [])
    assert (local_tree(server).look("compute").current, seen.version[:5], len(seen.versions)) == (seen.version, "0002-", 2)
    assert [one.to for one in local_tree(server).look("compute").history] == list(seen.versions)


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("of", STALE_HANDLES)
def test_a_stale_handle_may_pass_and_nothing_is_half_published(server: Path, tmp_path: Path, of: str) -> None:
    with mounted(server, tmp_path / "mount", STALE_HANDLES[of], stale=STALE) as mount:
        with pytest.raises(StoreBusy, match="Stale file handle") as caught:
            published(place(mount.path), tmp_path / "b")
        assert "its mount went away" in caught.value.hint
        assert mount.odd(), "it was asked"
        booted(server)
        seen = published(place(mount.path), tmp_path / "b")
    assert (seen.incoming, wrong(server)) == ((), [])
    assert [one.to for one in local_tree(server).look("compute").history] == list(seen.versions)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mount_whose_folder_went_away_is_stale_and_not_called_missing(server: Path, tmp_path: Path, kind: str) -> None:
    with mounted(server, tmp_path / "mount") as mount:
        server.rename(tmp_path / "gone")
        with pytest.raises(StoreBusy, match="Stale file handle") as caught:
            published(place(mount.path), tmp_path / "b", kind)
        assert "its mount went away" in caught.value.hint
    assert wrong(tmp_path / "gone") == []


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("call", CLEARED)
def test_what_another_publisher_clears_away_is_no_failure(server: Path, tmp_path: Path, call: str) -> None:
    """Publishing succeeds if the holder of the lock meanwhile removes its own files, leftovers, and the claims of newcomers."""
    (server / "compute/incoming/left").mkdir()
    (server / "compute/incoming/left/gpu.ipxe").write_text("#!ipxe\n")
    with mounted(server, tmp_path / "mount", CLEARED[call]) as mount:
        seen = published(place(mount.path), tmp_path / "b")
        assert mount.odd(), "it was asked"
    assert (seen.incoming, wrong(server)) == ((), [])


@pytest.mark.parametrize("kind", KINDS)
def test_a_removed_version_that_is_still_read_goes_when_it_is_not(server: Path, tmp_path: Path, kind: str) -> None:
    """A server on the same machine sends it to a node just then."""
    with mounted(server, tmp_path / "mount") as mount:
        keep = partial(place, mount.path, keep=2)
        (old,) = published(keep(), tmp_path / "a").versions
        published(keep(), tmp_path / "b")
        with (mount.path / f"compute/versions/{old}/root.squashfs").open("rb") as reader:
            with pytest.raises(StoreBusy, match="is still open") as caught:
                published(keep(), image(tmp_path / "c", "c"), kind)
            assert "publish again" in caught.value.hint
            assert list((server / "compute/incoming").rglob(f"{SILLY}*")), "it has another name as long as it is open"
            assert digest_bytes(reader.read()) == digest_bytes((tmp_path / "a/root.squashfs").read_bytes())
        booted(server)
        seen = published(keep(), tmp_path / "c", kind)
    assert (seen.incoming, wrong(server), seen.version[:5], old in seen.versions) == ((), [], "0003-", False)


def test_two_clients_take_turns(server: Path, tmp_path: Path) -> None:
    """Each sees what the other changed a moment late, and is told now and then that a link was not made that was."""
    sources = {who: [image(tmp_path / f"{who}{number}", f"{who}{number}") for number in range(4)] for who in ("one", "two")}
    lost = Odd("link", LOCK, errno.EEXIST, done=True, times=3)
    over, log = threading.Event(), tmp_path / "log"
    with mounted(server, tmp_path / "one", lost, stale=STALE) as one, mounted(server, tmp_path / "two", lost, stale=STALE) as two:
        reader = Reader(server, over)
        children = [
            forked(partial(publish_all, mount.path, sources[mount.path.name], log, mount.path.name)) for mount in (one, two)
        ]
        reader.start()
        codes = [ended(child) for child in children]
        over.set()
        reader.join()
        assert (codes, reader.error, len(one.odd()), len(two.odd())) == ([0, 0], None, 3, 3)
    taken = turns(log.read_text())
    assert set(taken) == {("one", "one"), ("two", "two")}, "one begins where another has not ended"
    assert len(taken) == 8
    assert wrong(server) == []
    tree = local_tree(server).look("compute")
    numbers = [one.to[:4] for one in tree.history]
    assert numbers == [f"{number:04d}" for number in range(1, 10)], "each has seen what was published before"
    assert tree.last_recorded == tree.current
    assert len(reader.seen) > 1


class Reader(threading.Thread):
    """Looks as a node does, all the while."""

    def __init__(self, root: Path, over: threading.Event) -> None:
        super().__init__()
        self._root, self._over = root, over
        self.seen = set[str]()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self.seen.add(booted(self._root))
        except Exception as error:  # noqa: BLE001  # told by the test itself
            self.error = error
