"""The run store: write-once files under relative keys on a shared volume."""

import errno
import itertools
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from steps import timeouts
from steps.clients import regular_files
from steps.clients.regular_files import FileKind
from steps.contract.canonical import digest, digest_bytes
from steps.contract.runs import approval, evidence, run_seal
from steps.errors import BadTask, StepError, StoreBusy

T = TypeVar("T")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]*(/[A-Za-z0-9][A-Za-z0-9._@+-]*)*")  # @ and +: approvers may be mail addresses
_BUSY = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE, errno.EIO, errno.EACCES, errno.EPERM}
_PASSING = {errno.ESTALE, errno.EIO}
"""Errors of a network file system while its server fails over. Other errors need a person, or more time than a step has."""
PRIVATE, SHARED = 0o600, 0o644


class AlreadyWritten(StepError):
    """Raised if the key exists already, because keys are written once."""


class Store:
    """The run store: a folder whose files are written once and appear whole.

    A file is written beside its final place, flushed to disk, and linked, so that readers never see half of it and two writers
    never overwrite each other. Files that root writes get the owner of their folder: pods that build node images run as root, other
    pods of the run do not.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, key: str) -> Path:
        """Return the path of a key. Raises BadTask for a key that would leave the store."""
        if not _KEY.fullmatch(key):
            raise BadTask(f"store key {key!r} is not a relative path of plain names")
        return self.root / key

    def write(self, key: str, data: bytes, mode: int = SHARED) -> None:
        """Write a new file. Raises AlreadyWritten if the key exists, StoreBusy if the store cannot be written now."""
        target, tries = self.path(key), itertools.count(1)

        def write() -> None:
            is_retry = next(tries) > 1
            _make_folder(target.parent)
            temporary = _write_beside(target, data, mode)
            try:
                # link() fails if the key exists, while rename() would replace it
                os.link(temporary, target)
            except FileExistsError:
                if not is_retry or target.read_bytes() != data:  # equal: the earlier try succeeded, its answer was lost
                    raise
            finally:
                os.unlink(temporary)
            _flush_folder(target.parent)

        try:
            retry(write, key)
        except FileExistsError as error:
            raise AlreadyWritten(f"store key {key} exists already") from error

    def replace(self, key: str, data: bytes, mode: int = SHARED) -> None:
        """Write or replace a file atomically. Only for files that are no evidence (a run's secrets, the quarantine list)."""
        target = self.path(key)

        def replace() -> None:
            _make_folder(target.parent)
            os.replace(_write_beside(target, data, mode), target)
            _flush_folder(target.parent)

        retry(replace, key)

    def folder(self, key: str) -> Path:
        """Create and return a folder for files of another program that are no evidence. Raises StoreBusy if that fails."""
        path = self.path(key)
        retry(lambda: _make_folder(path), key)
        return path

    def read(self, key: str) -> bytes | None:
        """Return the bytes of a key, None if it does not exist. Raises StepError for what is no regular file, such as a link."""
        try:
            return retry(lambda: self._content(key), key)
        except FileNotFoundError:
            return None

    def _content(self, key: str) -> bytes:
        # an administrator may put `runs` on another disk by a link; below it the store makes none
        first, _, below = self.path(key).relative_to(self.root).as_posix().partition("/")
        return regular_files.read(self.root / first, below) if below else regular_files.read(self.root, first)

    def keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys of all regular files below `prefix`, sorted, without hidden ones such as those of unfinished writes."""
        below = (entry.key for entry in regular_files.entries(self.path(prefix)) if entry.kind is FileKind.FILE)
        return tuple(sorted(f"{prefix}/{key}" for key in below if not run_seal.is_hidden(key)))

    def of_runs(self, name: str) -> tuple[str, ...]:
        """Return the keys `runs/*/NAME` of all runs, the newest first."""
        dated = [(path.stat().st_mtime_ns, path) for path in self.path("runs").glob(f"*/{name}") if path.is_file()]
        return tuple(path.relative_to(self.root).as_posix() for _, path in sorted(dated, reverse=True))

    def write_evidence(self, record: evidence.Evidence, encode: "evidence.Encoder") -> evidence.Evidence:
        """Store a record under the next free attempt number, and return it with that number."""
        attempt = record.attempt
        while True:
            numbered = msgspec.structs.replace(record, attempt=attempt)
            key = evidence.key(record.run, record.stage, record.task, record.shard, attempt)
            try:
                self.write(key, encode(numbered))
            except AlreadyWritten:
                attempt += 1
            else:
                return numbered

    def records(self, run: str, stage: str, task: str) -> tuple[evidence.Evidence, ...]:
        """Return the records of the last attempts of a task, one for each shard, by shard number."""
        latest: dict[str, str] = {}
        prefix = f"runs/{run}/evidence/{stage}/{task}"
        for key in self.keys(prefix):
            # keys are sorted, so the last attempt of a shard wins
            latest[key.rsplit("/", 1)[0]] = key
        contents = (self.read(key) for _, key in sorted(latest.items()))
        return tuple(evidence.decode(data) for data in contents if data is not None)

    def record(self, run: str, stage: str, task: str, shard: int) -> evidence.Evidence | None:
        """Return the record of the last attempt of one shard of a task; None if it left none."""
        folder = evidence.key(run, stage, task, shard, 1).rpartition("/")[0]
        keys = self.keys(folder)
        data = self.read(keys[-1]) if keys else None
        return evidence.decode(data) if data is not None else None

    def evidence_digest(self, run: str, stage: str) -> str:
        """Return one digest over all records of a stage except those of its approval. Approvers approve this digest."""
        keys = [key for key in self.keys(f"runs/{run}/evidence/{stage}") if key.split("/")[4] not in approval.TASKS]
        return digest([[key, digest_bytes(self.read(key) or b"")] for key in keys])


def retry(act: Callable[[], T], key: str) -> T:
    """Return what `act` returns, retrying errors that pass (`timeouts.STORE_TRIES` times).

    FileExistsError and FileNotFoundError are passed on; every other OSError becomes a StepError about the key.
    """
    try:
        try:
            return act()
        except OSError as error:
            # retrying a full or read-only disk within a step would not help
            if error.errno not in _PASSING:
                raise
            return _again(act, error)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError as error:
        raise _store_error(error, key) from error


def _again(act: Callable[[], T], first: OSError) -> T:
    """Retry a call whose first try failed with `first`; return its result or raise its last error."""
    import tenacity  # imported here: only a store that fails needs it

    failures = [first]

    def call() -> T:
        if failures:
            raise failures.pop()
        return act()

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, OSError) and error.errno in _PASSING),
        stop=tenacity.stop_after_attempt(timeouts.STORE_TRIES),
        wait=tenacity.wait_fixed(timeouts.STORE_BACKOFF),
        reraise=True,
    )(call)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError:  # FileExistsError would tell callers that another writer was first
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
        # pods that build node images are root; the other pods of the run must write here too
        if (owner := _owner(folder.parent)) is not None:
            os.chown(folder, *owner, follow_symlinks=False)


def _owner(folder: Path) -> tuple[int, int] | None:
    """Return user and group for files that root creates in a folder; None if they stay unchanged."""
    if os.geteuid() != 0:
        return None
    facts = folder.stat()
    return (facts.st_uid, facts.st_gid) if facts.st_uid != 0 else None


def _write_beside(target: Path, data: bytes, mode: int) -> Path:
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            if (owner := _owner(target.parent)) is not None:
                os.fchown(file.fileno(), *owner)
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
    # somebody put the link or the FIFO there, so it is no bug, and trying again does not help
    if error.errno == errno.ELOOP:
        return BadTask(message, hint="put the files themselves in its place: a link may lead to files that are no evidence")
    if error.errno in (errno.EINVAL, errno.EISDIR):
        return BadTask(message, hint="put the file itself in its place: only regular files are evidence")
    return StepError(message)
