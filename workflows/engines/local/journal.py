"""The durable journal of one run: events in SQLite, written before their effects happen, so that replaying them gives the state."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from steps.clients import regular_files
from steps.contract.canonical import UNREADABLE_JSON
from workflows.engines.local import journal_chain
from workflows.engines.local.errors import JournalForeignError, RunBusyError, RunDirectoryError, StorageError
from workflows.engines.local.journal_chain import HEAD, BrokenChainError, ChainEnd, Row
from workflows.engines.local.run_state import AnyEvent, PodStarted
from workflows.engines.local.state_machine import VERSION

FILE = "journal.db"
HEAD_FILE = "journal.head"
"""File beside the journal with the last durable record's number and link, so that a journal that lost its end is noticed."""
_FORMAT = 2  # of the database's tables; in its header
_APPLICATION = 0x42525552  # "BRUR" in the SQLite header: this file is a run journal of ours
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE records (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, at REAL NOT NULL, wall REAL NOT NULL,
                      boot TEXT NOT NULL, uptime REAL NOT NULL, link TEXT NOT NULL) STRICT;
CREATE TABLE nodes (path TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
"""
_EVENT: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


class PodProcess(msgspec.Struct, frozen=True):
    """A process started for a pod; its start time tells it from a later process with the same id."""

    node: str
    pid: int
    start: int  # field 22 of /proc/PID/stat, clock ticks since boot


@dataclass(frozen=True, slots=True)
class RecordClock:
    """The time of a record: seconds since the run's start, wall time, boot id, and seconds since boot (suspend included)."""

    at: float
    wall: float
    boot: str
    uptime: float

    @classmethod
    def now(cls, at: float) -> RecordClock:
        """Return the current clocks; `at` is the time in seconds since the run's start."""
        return cls(at, time.time(), _boot_id(), time.clock_gettime(time.CLOCK_BOOTTIME))

    def since(self) -> float:
        """Return the seconds that have passed since this record, never negative.

        Within one boot they are taken from the uptime, so that jumps of the wall clock do not matter; else from the wall time.
        """
        current = RecordClock.now(0.0)
        elapsed = current.uptime - self.uptime if current.boot == self.boot else current.wall - self.wall
        return max(0.0, elapsed)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


@contextmanager
def _typed(path: Path) -> Any:
    """Raise SQLite's errors as the engine's: JournalForeignError for a damaged file, StorageError for failed operations.

    JournalForeignError also stands for records that are lost or altered, or that cannot be decoded.
    """
    try:
        yield
    except BrokenChainError as err:
        again = "a new run with --reuse proves again what still holds"
        raise JournalForeignError(f"{path} is not as the engine wrote it: {err}; the run cannot go on from it: {again}") from err
    except (ValueError, TypeError, KeyError, *UNREADABLE_JSON) as err:
        raise JournalForeignError(f"{path} has a record that this engine did not write: {err}") from err
    except sqlite3.OperationalError as err:
        raise StorageError(f"cannot use {path}: {err}; nothing recorded so far is lost: free space, then resume") from err
    except sqlite3.DatabaseError as err:
        raise JournalForeignError(f"{path} is damaged or is not a journal of this engine: {err}") from err


class Journal:
    """A journal open for writing by one engine. It holds the run's lock until its `with` block or the process ends."""

    def __init__(self, run_dir: Path, connection: sqlite3.Connection, lock: int, end: ChainEnd) -> None:
        self.path = run_dir / FILE
        self._connection = connection
        self._lock = lock
        self._end = end
        self._meta = self.meta

    @classmethod
    def create(cls, run_dir: Path, meta: Mapping[str, str]) -> Journal:
        """Create a journal in a directory that has none, and return it. Raises RunDirectoryError, RunBusyError, StorageError."""
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
        except OSError as err:
            raise RunDirectoryError(f"cannot create the run directory {run_dir}: {err.strerror}") from err
        lock = _take_lock(run_dir)
        try:
            if (run_dir / FILE).exists():
                raise RunDirectoryError(f"{run_dir} already holds a run: resume it, or choose another directory")
            if (run_dir / HEAD_FILE).exists():
                raise RunDirectoryError(f"{run_dir} held a run whose {FILE} is gone: choose another directory")
            with _typed(run_dir / FILE):
                whole = {**meta, "machine": str(VERSION)}
                end = ChainEnd.of_settings(whole)
                connection = _make(run_dir / FILE, {**whole, HEAD: end.head(whole)})
                _note_end(run_dir, end)  # before any record, so that a journal with records and without this file has lost it
                return cls(run_dir, connection, lock, end)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def open(cls, run_dir: Path) -> Journal:
        """Open the journal of an earlier run and return it. Raises RunDirectoryError, RunBusyError, JournalForeignError."""
        if not (run_dir / FILE).is_file():
            raise RunDirectoryError(f"{run_dir} holds no run (no {FILE})")
        lock = _take_lock(run_dir)
        try:
            with _typed(run_dir / FILE):
                connection = _connect(run_dir / FILE)
                _check(connection, run_dir / FILE)
                end = journal_chain.verify(connection, _noted_end(run_dir))
                if end.seq and not (run_dir / HEAD_FILE).exists():
                    raise BrokenChainError(f"{HEAD_FILE} beside it is gone, so nobody can tell if its last records are there")
                _note_end(run_dir, end)
                return cls(run_dir, connection, lock, end)
        except BaseException:
            os.close(lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(sqlite3.Error):  # a reader may hold the file: then the write-ahead log stays
            self._connection.execute("PRAGMA journal_mode = DELETE")  # one file, which readers without write access can open
        self._connection.close()
        os.close(self._lock)

    @property
    def meta(self) -> dict[str, str]:
        """Return the settings that the run was started with, and its phase, by key."""
        return dict(self._connection.execute("SELECT key, value FROM meta"))

    def append(
        self, events: Iterable[AnyEvent], processes: Iterable[PodProcess], nodes: Mapping[str, str], meta: Mapping[str, str]
    ) -> int:
        """Write events, started processes, changed nodes and settings in one transaction; return the number of the last record.

        A StorageError leaves the journal unchanged. Records that only tell of started processes are written without waiting for the
        disk, because a power loss ends the process as well; the next record makes them durable.
        """
        events = list(events)
        wait = not all(isinstance(event, PodStarted) for event in events)
        clock = RecordClock.now(0.0)
        rows = [("process", msgspec.json.encode(process).decode(), 0.0) for process in processes]
        rows += [("event", msgspec.json.encode(event).decode(), event.at) for event in events]
        end, records = self._end, list[tuple[int | str | float, ...]]()
        for index, (kind, body, at) in enumerate(rows, self._end.seq + 1):
            row: Row = (index, kind, body, float(at), clock.wall, clock.boot, clock.uptime)
            end = end.then(row)
            records.append((*row, end.link))
        changed = {**self._meta, **meta}
        with _typed(self.path):
            self._connection.execute(f"PRAGMA synchronous = {'FULL' if wait else 'NORMAL'}")
            with self._connection:
                self._connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", records)
                self._connection.executemany("INSERT OR REPLACE INTO nodes VALUES (?, ?)", list(nodes.items()))
                self._connection.executemany(
                    "INSERT OR REPLACE INTO meta VALUES (?, ?)", [*meta.items(), (HEAD, end.head(changed))]
                )
            self._end, self._meta = end, changed
        if wait:
            _note_end(self.path.parent, end)
        return end.seq

    def events(self) -> list[AnyEvent]:
        """Return all events in order. Raises JournalForeignError if one cannot be decoded."""
        with _typed(self.path):
            rows = self._connection.execute("SELECT body FROM records WHERE kind = 'event' ORDER BY seq").fetchall()
            return [_EVENT.decode(row[0]) for row in rows]

    def processes(self) -> list[PodProcess]:
        """Return every process that was ever started for a pod, including those that have ended."""
        with _typed(self.path):
            rows = self._connection.execute("SELECT body FROM records WHERE kind = 'process' ORDER BY seq").fetchall()
            return [msgspec.json.decode(row[0], type=PodProcess) for row in rows]

    def last_clock(self) -> RecordClock | None:
        """Return the clocks of the last event, or None if there is no event."""
        row = self._connection.execute(
            "SELECT at, wall, boot, uptime FROM records WHERE kind = 'event' ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return RecordClock(*row) if row else None


def _noted_end(run_dir: Path) -> ChainEnd | None:
    """Return the last record that an engine noted beside its journal; None if nothing is there, as after a power loss."""
    try:
        number, _, link = regular_files.read(run_dir, HEAD_FILE).strip(b"\0\n ").decode(errors="replace").partition(" ")
    except FileNotFoundError:
        return None
    except OSError as err:
        raise BrokenChainError(f"{HEAD_FILE} beside it cannot be read: {err.strerror}") from err
    return ChainEnd(int(number), link) if number.isascii() and number.isdigit() else None


def _note_end(run_dir: Path, end: ChainEnd) -> None:
    """Write number and link of the last durable record beside the journal; without waiting for the disk, since it only warns."""
    path = run_dir / HEAD_FILE
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            os.pwrite(handle, f"{end.seq:012d} {end.link}\n".encode(), 0)  # always equally long, hence never half of each
        finally:
            os.close(handle)
    except OSError as err:
        raise StorageError(f"cannot write {path}: {err.strerror}") from err


def _take_lock(run_dir: Path) -> int:
    path = run_dir / "engine.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as err:
        raise RunDirectoryError(f"cannot write in the run directory {run_dir}: {err.strerror}") from err
    try:
        # the kernel releases it even after kill -9; pods do not keep it, since Python's descriptors are not inherited (PEP 446)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 64, 0).decode(errors="replace").strip()
        os.close(lock)
        raise RunBusyError(f"another engine (process {holder or 'unknown'}) drives {run_dir}") from None
    try:
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    except OSError as err:
        os.close(lock)
        raise StorageError(f"cannot write {path}: {err.strerror}") from err
    return lock


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level="DEFERRED")
    connection.text_factory = _text
    # with a write-ahead log, `status` and `watch` can read while the engine writes
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _make(path: Path, meta: Mapping[str, str]) -> sqlite3.Connection:
    """Create the journal's file under a temporary name and rename it, so that a journal exists completely or not at all."""
    fresh = path.with_suffix(".new")
    for leftover in path.parent.glob(f"{fresh.name}*"):
        leftover.unlink()
    connection = sqlite3.connect(fresh)
    try:
        with connection:
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {_FORMAT}")
            connection.executescript(_SCHEMA)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", list(meta.items()))
    finally:
        connection.close()
    os.replace(fresh, path)
    # the rename is durable only once the folder is on disk
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return _connect(path)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        raise JournalForeignError(f"{path} is not a journal of this engine")
    damage = connection.execute("PRAGMA quick_check").fetchone()[0]
    if damage != "ok":
        raise JournalForeignError(f"{path} is damaged: {damage}")
    form = connection.execute("PRAGMA user_version").fetchone()[0]
    version = dict(connection.execute("SELECT key, value FROM meta")).get("machine")
    if (form, version) != (_FORMAT, str(VERSION)):
        versions = f"{form}.{version}, this one is {_FORMAT}.{VERSION}"
        raise JournalForeignError(f"{path} was written by another version of the engine ({versions}); start a new run")


_VERIFIED: dict[Path, ChainEnd] = {}
"""Ends up to which this process has verified journals; it reads that of a run which it follows again and again."""


@contextmanager
def reading(run_dir: Path, *, is_verified: bool = True) -> Any:
    """Give a `with` block a read-only connection to the journal of a run that another process may write.

    Without `is_verified` the chain of its records is not followed, which a list of many runs has no time for. Raises
    RunDirectoryError, JournalForeignError.
    """
    path = run_dir / FILE
    if not path.is_file():
        raise RunDirectoryError(f"{run_dir} holds no run (no {FILE})")
    with _typed(path):
        # before the database: its engine notes a record there only after it is in the database
        noted = _noted_end(run_dir) if is_verified else None
        connection = _readable(path)
        try:
            _check(connection, path)
            connection.execute("BEGIN")  # one state for all that is read, although the engine goes on writing
            if is_verified:
                _VERIFIED[path] = journal_chain.verify(connection, noted, _VERIFIED.get(path))
            yield connection
        finally:
            connection.close()


def _readable(path: Path) -> sqlite3.Connection:
    """Open the journal's database and return the connection, read-only if possible.

    An engine that was killed while it turned the write-ahead log into one file leaves a rollback journal, which only a connection
    with write access can apply.
    """
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        connection.execute("PRAGMA schema_version")
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorname != "SQLITE_READONLY_ROLLBACK":
            raise
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)
    connection.text_factory = _text
    return connection


def _text(data: bytes) -> str:
    """Return a text of the database; bytes that are no UTF-8 are replaced, so that they break the chain, not the reader."""
    return data.decode(errors="replace")
