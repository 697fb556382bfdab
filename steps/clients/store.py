"""The run store: write-once files under relative keys on a shared volume."""

import errno
import os
import re
import tempfile
from pathlib import Path

from steps.contract import evidence
from steps.contract.canonical import digest, digest_bytes
from steps.errors import BadTask, StepError, StoreBusy

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*(/[A-Za-z0-9][A-Za-z0-9._@+-]*)*")  # @ and +: approvers are named by their mail
_BUSY = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.EIO, errno.EACCES, errno.EPERM}
PRIVATE, SHARED = 0o600, 0o644


class AlreadyWritten(StepError):
    """The key exists: keys are written once."""


class Store:
    """A folder whose files are written once and appear whole.

    A file is written beside its place, flushed to disk, and linked into place, so that a reader never sees half of it
    and two writers never overwrite each other.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, key: str) -> Path:
        """Where a key lies. Raises BadTask for a key that would leave the store."""
        if not _KEY.fullmatch(key):
            raise BadTask(f"store key {key!r} is not a relative path of plain names")
        return self.root / key

    def write(self, key: str, data: bytes, mode: int = SHARED) -> None:
        """Write a new file. Raises AlreadyWritten if the key exists, StoreBusy if the store cannot be written now."""
        target = self.path(key)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = _write_beside(target, data, mode)
            try:
                os.link(temporary, target)
            finally:
                os.unlink(temporary)
            _flush_folder(target.parent)
        except FileExistsError as error:
            raise AlreadyWritten(f"store key {key} exists already") from error
        except OSError as error:
            raise _store_error(error, key) from error

    def replace(self, key: str, data: bytes, mode: int = SHARED) -> None:
        """Write or replace a file atomically: only for what is no evidence (a run's secrets, the quarantine list)."""
        target = self.path(key)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(_write_beside(target, data, mode), target)
            _flush_folder(target.parent)
        except OSError as error:
            raise _store_error(error, key) from error

    def read(self, key: str) -> bytes | None:
        """The bytes of a key, None when nobody wrote it."""
        try:
            return self.path(key).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _store_error(error, key) from error

    def keys(self, prefix: str) -> tuple[str, ...]:
        """All keys below a folder, sorted; temporary files of unfinished writes are left out."""
        folder = self.path(prefix)
        found = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return tuple(sorted(path.relative_to(self.root).as_posix() for path in found))

    def write_evidence(self, record: evidence.Evidence, encode: "evidence.Encoder") -> evidence.Evidence:
        """Store a record under the next free attempt number, which is also written into it."""
        attempt = record.attempt
        while True:
            numbered = evidence.with_attempt(record, attempt)
            key = evidence.key(record.run, record.stage, record.task, record.shard, attempt)
            try:
                self.write(key, encode(numbered))
            except AlreadyWritten:
                attempt += 1
            else:
                return numbered

    def records(self, run: str, stage: str, task: str) -> tuple[evidence.Evidence, ...]:
        """The last attempt of each shard of a task, by shard number."""
        latest: dict[str, str] = {}
        prefix = f"runs/{run}/evidence/{stage}/{task}"
        for key in self.keys(prefix):
            latest[key.rsplit("/", 1)[0]] = key
        return tuple(evidence.decode(self.path(key).read_bytes()) for _, key in sorted(latest.items()))

    def evidence_digest(self, run: str, stage: str) -> str:
        """One digest over all that a stage's tasks recorded, its approval left out: what an approver approves."""
        kept = [key for key in self.keys(f"runs/{run}/evidence/{stage}") if key.split("/")[4] != "confirm"]
        return digest([[key, digest_bytes(self.path(key).read_bytes())] for key in kept])


def _write_beside(target: Path, data: bytes, mode: int) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _store_error(error: OSError, key: str) -> StepError:
    message = f"store key {key}: {error.strerror or error}"
    if error.errno in _BUSY:
        return StoreBusy(message, hint="free space or make the store writable; the engine tries again")
    return StepError(message)
