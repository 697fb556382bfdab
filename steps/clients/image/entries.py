"""A folder that appears whole, by one rename: made beside its place under a lock, so that one makes it and others find it."""

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from steps.clients.image.contained import kernel

FRESH: Final = 6 * 3600.0
"""Seconds after which use of something is noted anew: a run that changes nothing writes nothing, and the collector still sees what
was used lately."""
_REMOVALS = 3
"""Tries to empty a folder: the kernel ends what a killed build had started within milliseconds."""


def _good(_: Path) -> bool:
    """What is there is what is wanted."""
    return True


@contextlib.contextmanager
def making(
    parent: Path, key: str, *, remove: Callable[[Path], None] = shutil.rmtree, good: Callable[[Path], bool] = _good
) -> Iterator[Path | None]:
    """A new folder to fill, which becomes `parent/key` when the block ends well; None where that is there and `good`.

    Waits for whoever makes or reads the same. What a kill left of it is removed here (by `remove`): its maker held the lock. One
    that is not `good` stays until the new one is whole, and goes then.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with lock_of(parent / key).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in parent.glob(f".{key}.part*"):
            _gone(left, remove)
        place = parent / key
        if place.exists() and good(place):
            yield None
            return
        work = parent / f".{key}.part{os.getpid()}"
        work.mkdir()
        try:
            yield work
            kernel.flush(work)
            if place.exists():
                take_away(place, remove)
            work.rename(place)
            kernel.flush(parent)
        finally:
            if work.exists():
                _gone(work, remove)


@contextlib.contextmanager
def held(place: Path) -> Iterator[None]:
    """A shared lock on an entry while it is read, so that no collector takes it away; that there is none, its reader says."""
    if not place.parent.is_dir():
        yield
        return
    handle = os.open(lock_of(place), os.O_RDONLY | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def note_use(file: Path) -> None:
    """Note that something is used by the time of a file of it. One that is not there, or somebody else's, is left as it is."""
    with contextlib.suppress(OSError):
        if time.time() - file.stat().st_mtime > FRESH:
            os.utime(file)


def lock_of(place: Path) -> Path:
    """The file whose lock whoever makes, reads or collects an entry holds."""
    return place.with_name(f".{place.name}.lock")


def take_away(place: Path, remove: Callable[[Path], None] = shutil.rmtree) -> None:
    """Remove an entry so that nobody sees half of it: by one rename, then from the disk."""
    gone = place.with_name(f".{place.name}.part{uuid.uuid4().hex}")
    place.rename(gone)
    _gone(gone, remove)


def _gone(folder: Path, remove: Callable[[Path], None]) -> None:
    """Remove a folder to which processes that are being killed may still write."""
    for _ in range(_REMOVALS):
        with contextlib.suppress(OSError):
            remove(folder)
            return
    remove(folder)
