"""The store writes once, whole, and says what is wrong."""

import errno
import os
import threading
from pathlib import Path

import msgspec
import pytest

from steps import timeouts
from steps.clients.store import AlreadyWritten, Store, retry
from steps.contract.runs import evidence
from steps.errors import BadTask, StepError, StoreBusy


def _record(task: str = "apply") -> evidence.Evidence:
    return evidence.Evidence(
        run="r1",
        stage="gang",
        task=task,
        verb="apply",
        shard=0,
        attempt=1,
        input_digest="sha256:0",
        engine="local",
        started=1.0,
        finished=2.0,
    )


def test_a_key_is_written_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write("runs/a/x.json", b"1")
    with pytest.raises(AlreadyWritten):
        store.write("runs/a/x.json", b"2")
    assert store.read("runs/a/x.json") == b"1"
    assert store.keys("runs/a") == ("runs/a/x.json",)


@pytest.mark.parametrize("key", ["../x", "/etc/passwd", "a//b", "a/../b", "", "a/.hidden", "a\n"])
def test_keys_cannot_leave_the_store(tmp_path: Path, key: str) -> None:
    with pytest.raises(BadTask):
        Store(tmp_path).write(key, b"")


def test_writers_at_once_each_get_an_attempt_of_their_own(tmp_path: Path) -> None:
    store = Store(tmp_path)
    threads = [threading.Thread(target=store.write_evidence, args=(_record(), msgspec.json.encode)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = store.keys("runs/r1/evidence")
    assert [key.rsplit("/", 1)[1] for key in keys] == [f"{number:02d}.json" for number in range(1, 9)]
    assert store.records("r1", "gang", "apply")[0].attempt == 8


def test_a_store_that_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where a folder must be")
    with pytest.raises(StepError, match="store key runs/a/b"):
        Store(tmp_path).write("runs/a/b", b"")


def test_a_read_only_store_is_temporary() -> None:
    with pytest.raises(StoreBusy, match="store key runs/a"):
        Store(Path("/sys/kernel")).write("runs/a", b"x")


def test_the_evidence_digest_changes_with_any_record_but_not_with_the_approval(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.write_evidence(_record(), msgspec.json.encode)
    before = store.evidence_digest("r1", "gang")
    store.write_evidence(_record("confirm"), msgspec.json.encode)
    assert store.evidence_digest("r1", "gang") == before
    store.write_evidence(_record(), msgspec.json.encode)
    assert store.evidence_digest("r1", "gang") != before


def failing(number: int, times: int, calls: list[int]) -> bytes:
    """Fails with an errno for the first calls, then answers."""
    calls.append(number)
    if len(calls) <= times:
        raise OSError(number, os.strerror(number))
    return b"x"


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
def test_a_store_whose_server_fails_over_is_asked_again(number: int) -> None:
    calls: list[int] = []
    assert retry(lambda: failing(number, 2, calls), "runs/a") == b"x"
    assert len(calls) == timeouts.STORE_TRIES
    calls.clear()
    with pytest.raises(StoreBusy, match="store key runs/a"):
        retry(lambda: failing(number, 9, calls), "runs/a")
    assert len(calls) == timeouts.STORE_TRIES


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.ENAMETOOLONG])
def test_what_does_not_pass_in_a_moment_is_said_at_once(number: int) -> None:
    calls: list[int] = []
    with pytest.raises(StepError, match="store key runs/a"):
        retry(lambda: failing(number, 9, calls), "runs/a")
    assert len(calls) == 1


def test_an_unreadable_file_is_busy_not_a_bug() -> None:
    with pytest.raises(StoreBusy):
        Store(Path("/proc/self")).read("mem")  # reading address 0 is an I/O error


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which alone can give files away")
def test_what_root_writes_belongs_to_whom_the_folder_belongs(tmp_path: Path) -> None:
    """Pods that build node images are root; the others of their run write beside what they left."""
    os.chown(tmp_path, 8737, 8738)
    store = Store(tmp_path)
    store.write("runs/r1/evidence/one.json", b"1")
    store.replace("runs/r1/secrets/kubeconfig", b"2", mode=0o600)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in tmp_path.rglob("*")} == {(8737, 8738)}
    assert (tmp_path / "runs/r1/secrets/kubeconfig").stat().st_mode & 0o777 == 0o600
