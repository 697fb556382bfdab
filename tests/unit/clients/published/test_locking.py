"""One publisher at a time, and whose lock counts no more."""

import json
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from steps import timeouts
from steps.clients.releases import release_lease, shell_session
from steps.clients.releases.tree_operations import CHUNK, CheckFile, ConfirmLock, Link, Operation, TreeTransport
from steps.contract.canonical import digest_bytes
from steps.errors import StepError, StoreBusy, Temporary
from steps.nodeimage.publishing import image_kind, image_publication
from tests.unit.clients.published.published_trees import (
    KINDS,
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


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree/compute/incoming").mkdir(parents=True)
    image(tmp_path / "a", "a")
    return tmp_path / "tree"


def hold(root: Path, *, age: float = 0.0, **changes: object) -> None:
    """A lock of this process, changed."""
    lock = root / "compute/incoming/.lock.1"
    said = json.loads(json.dumps({name: getattr(me(), name) for name in me().__struct_fields__})) | changes
    lock.write_text(json.dumps(said, separators=(",", ":")) + "\n")
    then = time.time() - age
    os.utime(lock, (then, then))


def me() -> release_lease.Holder:
    return release_lease.this_process("feed", "run-7")


@pytest.mark.parametrize("kind", KINDS)
def test_somebody_at_work_is_named_and_not_disturbed(tmp_path: Path, root: Path, kind: str) -> None:
    hold(root)
    (root / "compute/incoming/feed").mkdir()
    was = state(root / "compute/incoming/feed")
    with pytest.raises(StoreBusy, match=rf"process {os.getpid()} on .* \(run-7\) publishes into compute right now"):
        published(place(root), tmp_path / "a", kind)
    assert state(root / "compute/incoming/feed") == was


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("changes", "age"),
    [
        ({"process": 2**22 + 1}, 0.0),
        ({"started": "1"}, 0.0),
        ({"machine": "another one"}, timeouts.PUBLISH_LEASE + 60),
    ],
    ids=["no such process", "the number is another process's now", "a machine that renews no more"],
)
def test_a_holder_that_is_gone_loses_its_lock(
    tmp_path: Path, root: Path, kind: str, changes: dict[str, object], age: float
) -> None:
    hold(root, age=age, **changes)
    (root / "compute/incoming/feed").mkdir()
    (root / "compute/incoming/feed/root.squashfs").write_bytes(b"half")
    seen = published(place(root), tmp_path / "a", kind)
    assert seen.incoming == ()
    assert wrong(root) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_holder_elsewhere_is_believed_for_its_lease(tmp_path: Path, root: Path, kind: str) -> None:
    hold(root, machine="another one", host="builder7", process=1, age=timeouts.PUBLISH_LEASE - 60)
    with pytest.raises(StoreBusy, match="process 1 on builder7") as caught:
        published(place(root), tmp_path / "a", kind)
    assert re.search("after (60|[45][0-9]) s more", caught.value.hint), caught.value.hint


class Hours:
    """A clock whose pauses make the lock of a tree older at once; `meanwhile` is what its holder does in each."""

    def __init__(self, root: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.lock, self.meanwhile, self.passed = root / "compute/incoming/.lock.1", meanwhile, 0.0

    def now(self) -> float:
        return self.passed

    def pause(self, seconds: float, deadline: float) -> None:
        seconds = min(seconds, deadline - self.passed)
        self.passed += seconds
        then = self.lock.stat().st_mtime - seconds
        os.utime(self.lock, (then, then))
        self.meanwhile()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("left", [25.0, 200.0])
def test_a_holder_elsewhere_that_is_gone_is_outwaited(tmp_path: Path, root: Path, kind: str, left: float) -> None:
    hold(root, machine="another one", host="builder7", process=1, age=timeouts.PUBLISH_LEASE - left)
    clock, said, began = Hours(root), list[str](), time.monotonic()
    seen = release_lease.retry_while_locked(lambda: published(place(root), tmp_path / "a", kind), clock, 1800, said.append)
    assert (seen.incoming, wrong(root)) == ((), [])
    assert left - 2 <= clock.passed + (time.monotonic() - began), "real time makes the lock older too"
    assert clock.passed <= left + 3
    (told,) = said
    assert "process 1 on builder7 (run-7) publishes into compute right now; waits for at most" in told


@pytest.mark.parametrize("kind", KINDS)
def test_who_renews_its_lock_is_not_outwaited(tmp_path: Path, root: Path, kind: str) -> None:
    def renew() -> None:
        hold(root, machine="another one", host="builder7", process=1)

    hold(root, machine="another one", host="builder7", process=1, age=100.0)
    clock = Hours(root, renew)
    with pytest.raises(StoreBusy, match="process 1 on builder7"):
        release_lease.retry_while_locked(lambda: published(place(root), tmp_path / "a", kind), clock, 1800, lambda _: None)
    assert clock.passed == timeouts.PUBLISH_AGAIN, "one look more showed that it lives"


@pytest.mark.parametrize(("changes", "seconds", "waited"), [({}, 1800.0, 0.0), ({"machine": "another one"}, 15.0, 15.0)])
def test_nobody_waits_for_one_of_this_machine_or_longer_than_the_task_may(
    tmp_path: Path, root: Path, changes: dict[str, object], seconds: float, waited: float
) -> None:
    hold(root, **changes)
    clock = Hours(root)
    with pytest.raises(StoreBusy, match="publishes into compute right now"):
        release_lease.retry_while_locked(lambda: published(place(root), tmp_path / "a", "local"), clock, seconds, lambda _: None)
    assert clock.passed == waited


@pytest.mark.parametrize("kind", KINDS)
def test_a_lock_that_nobody_can_read_goes_with_its_lease(tmp_path: Path, root: Path, kind: str) -> None:
    lock = root / "compute/incoming/.lock.1"
    lock.write_bytes(b"\x00garbage")
    with pytest.raises(StoreBusy, match="somebody publishes"):
        published(place(root), tmp_path / "a", kind)
    then = time.time() - timeouts.PUBLISH_LEASE - 60
    os.utime(lock, (then, then))
    assert published(place(root), tmp_path / "a", kind).incoming == ()


@pytest.mark.parametrize("kind", KINDS)
def test_who_lost_its_lock_gives_nothing_a_name(tmp_path: Path, root: Path, kind: str) -> None:
    def lose() -> None:
        with transport(kind, root) as way, release_lease.hold_lease(way, "compute", "feed", ""):
            hold(root, token="cafe")
            way.perform([ConfirmLock("compute/incoming", "feed")])

    with pytest.raises(Temporary, match="somebody else took the lock"):
        lose()
    assert "cafe" in (root / "compute/incoming/.lock.1").read_text(), "and leaves the other's lock alone"


class Slept:
    """A transport whose publisher sleeps through its lease while the new pointer is flushed: somebody else has the lock then."""

    def __init__(self, inner: TreeTransport, root: Path) -> None:
        self.inner, self.root, self.where = inner, root, inner.where
        self.look, self.claim, self.close = inner.look, inner.claim, inner.close

    def perform(self, operations: Iterable[Operation]) -> None:
        for one in operations:
            self.inner.perform([one])
            if isinstance(one, Link):
                for lock in (self.root / "compute/incoming").glob(".lock.*"):
                    lock.write_text('{"token":"cafe"}\n')


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["publish", "rollback"])
def test_who_lost_its_lock_while_it_flushed_the_pointer_does_not_switch_it(
    tmp_path: Path, root: Path, kind: str, what: str
) -> None:
    for text in "ab":
        published(place(root), image(tmp_path / text, text))
    new = order(place(root), image(tmp_path / "c", "c"))
    was, told = (root / "compute/current").readlink(), (root / "compute/history.jsonl").read_bytes()
    with transport(kind, root) as way:
        act: dict[str, Callable[[TreeTransport], object]] = {
            "publish": lambda to: image_publication.publish_through(to, new, silent),
            "rollback": lambda to: image_publication.roll_back(to, "compute", "1", "ada"),
        }
        with pytest.raises(Temporary, match="somebody else took the lock"):
            act[what](Slept(way, root))
    assert ((root / "compute/current").readlink(), (root / "compute/history.jsonl").read_bytes()) == (was, told)


@pytest.mark.parametrize("kind", KINDS)
def test_reading_large_files_renews_the_lock(tmp_path: Path, root: Path, kind: str) -> None:
    lock = root / "compute/incoming/.lock.1"
    version = root / "compute/versions/0001-aaaaaaaaaaaa"
    version.mkdir(parents=True)
    data = b"x" * (CHUNK + 1)
    (version / "root.squashfs").write_bytes(data)
    path = f"{version.relative_to(root)}/root.squashfs"
    with transport(kind, root) as way, release_lease.hold_lease(way, "compute", "feed", ""):
        os.utime(lock, (1, 1))
        way.perform([CheckFile(path, len(data), digest_bytes(data))])
        assert lock.stat().st_mtime > 1
        os.utime(lock, (1, 1))
        assert way.look("compute", (version.name,)).digests == {path: digest_bytes(data)}
        assert lock.stat().st_mtime > 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "told"), [(CHUNK + 1, "y"), (CHUNK, "x"), (0, "x")], ids=["bytes", "size", "nothing there"])
def test_a_large_file_that_differs_is_found(root: Path, kind: str, size: int, told: str) -> None:
    data = b"x" * size
    if size:
        (root / "compute/large").write_bytes(data)
    with transport(kind, root) as way, pytest.raises(StepError, match="compute/large"):
        way.perform([CheckFile("compute/large", CHUNK + 1, digest_bytes(b"x" * CHUNK + told.encode()))])


def test_two_at_once_end_with_one_whole_version_each(tmp_path: Path, root: Path) -> None:
    image(tmp_path / "b", "b")

    def until_done(folder: Path) -> None:
        while True:
            try:
                published(place(root), folder)
            except StoreBusy:
                continue
            return

    child = forked(lambda: until_done(tmp_path / "a"))
    until_done(tmp_path / "b")
    assert ended(child) == 0
    assert wrong(root) == []
    assert len(list((root / "compute/versions").iterdir())) == 2


LINKS = {
    "denied": "echo 'ln: Operation not permitted' >&2; exit 1",
    "made, and said not to be": '/bin/ln "$@"; echo "ln: File exists" >&2; exit 1',
}
"""Shell code for a stand-in `ln`: hard links are not supported, or a link is made and then reported as already existing."""


@pytest.mark.parametrize("link", LINKS)
def test_a_file_system_with_hard_links_of_its_own_kind(tmp_path: Path, root: Path, link: str) -> None:
    program = tmp_path / "bin/ln"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\ncase "$*" in *.lock.*) {LINKS[link]} ;; esac\nexec /bin/ln "$@"\n')
    program.chmod(0o755)
    command = ["env", f"PATH={program.parent}:{os.environ['PATH']}", "sh", "-c", shell_session.PROGRAM.read_text()]
    way = shell_session.ShellTransport(command, str(root), "there", layout=image_kind.LAYOUT)
    try:
        if link == "denied":
            was = {path for path in state(root) if "incoming" not in path}
            with pytest.raises(StoreBusy, match="cannot lock compute/incoming: ln: Operation not permitted") as caught:
                image_publication.publish_through(way, order(place(root), tmp_path / "a"), silent)
            assert "must know hard links" in caught.value.hint
            assert {path for path in state(root) if "incoming" not in path} == was
        else:
            assert image_publication.publish_through(way, order(place(root), tmp_path / "a"), silent).version.startswith("0001-")
            assert wrong(root) == []
    finally:
        way.close()
