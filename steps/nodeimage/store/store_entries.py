"""Entries of the image store: folders that appear complete by one rename, made beside their place under a lock."""

import contextlib
import errno
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from steps.errors import StoreBusy
from steps.nodeimage import kernel_calls

FRESH: Final = 6 * 3600.0
"""Age in seconds after which the use of an entry is noted again.

A run that changes nothing writes nothing, and garbage collection still sees which entries were used lately.
"""
_REMOVALS = 3
"""Attempts to empty a folder: the kernel ends the processes of a killed build within milliseconds."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)
_SAID: Final = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT))
HINT: Final = (
    "make room (`bringup image gc`), or use another disk (BRINGUP_HOME); in a home cluster the pod of "
    "workflows/examples/images/collect.yaml makes room, and a larger claim has more"
)


@contextlib.contextmanager
def make_entry(
    parent: Path, key: str, *, remove: Callable[[Path], None] = shutil.rmtree, good: Callable[[Path], bool] | None = None
) -> Iterator[Path | None]:
    """Yield a new folder, which becomes `parent/key` when the block ends without error; yield None if that exists and is `good`.

    Waits for other processes that make or read this entry. Leftovers of a kill are removed by `remove`: their maker held the lock.
    An entry that is not `good` stays until the new one is complete.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with lock_of(parent / key).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in parent.glob(f".{key}.part*"):
            _gone(left, remove)
        place = parent / key
        if place.exists() and (good is None or good(place)):
            yield None
            return
        work = parent / f".{key}.part{os.getpid()}"
        work.mkdir()
        try:
            yield work
            # before the rename: after a power loss the name must not stand for half an entry
            kernel_calls.flush(work)
            if place.exists():
                remove_entry(place, remove)
            work.rename(place)
            kernel_calls.flush(parent)
        finally:
            if work.exists():
                _gone(work, remove)


def hold_entry(place: Path) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that holds a shared lock on an entry while it is read, so that garbage collection spares it."""
    return hold_shared(lock_of(place), os.O_RDONLY | os.O_CREAT)


@contextlib.contextmanager
def hold_shared(path: Path, flags: int = os.O_RDONLY) -> Iterator[None]:
    """Hold a shared lock on a file or folder within the block, so that garbage collection spares it. A missing one is no error."""
    try:
        handle = os.open(path, flags, 0o644)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def note_use(file: Path) -> None:
    """Note the use of an entry for garbage collection, by the time of one of its files. Errors are ignored."""
    with contextlib.suppress(OSError):
        if time.time() - file.stat().st_mtime > FRESH:
            os.utime(file)


def lock_of(place: Path) -> Path:
    """Return the path of the lock file of an entry, which processes hold while they make, read or remove the entry."""
    return place.with_name(f".{place.name}.lock")


def remove_entry(place: Path, remove: Callable[[Path], None] = shutil.rmtree) -> None:
    """Remove an entry so that nobody sees half of it: it is renamed first, then removed from disk."""
    gone = place.with_name(f".{place.name}.part{uuid.uuid4().hex}")
    place.rename(gone)
    _gone(gone, remove)


def _gone(folder: Path, remove: Callable[[Path], None]) -> None:
    """Remove a folder, with up to _REMOVALS retries because processes that are being killed may still write into it."""
    for _ in range(_REMOVALS):
        with contextlib.suppress(OSError):
            remove(folder)
            return
    remove(folder)


@contextlib.contextmanager
def guard_writes() -> Iterator[None]:
    """Wrap code that writes to the image store. Raises StoreBusy if the disk is full, read-only or fails."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StoreBusy(f"the store of images cannot be written: {error.strerror}", hint=HINT) from error


def raise_if_full(output: str, what: str) -> None:
    """Raise StoreBusy if the output of a failed program says that the disk is full; `what` says in words which action failed."""
    if any(words in output for words in _SAID):
        raise StoreBusy(f"the store of images is full: {what}", hint=HINT)
