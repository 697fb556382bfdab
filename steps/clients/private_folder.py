"""Makes a private folder for one play, boot or checkout, and removes folders that killed processes left, because they hold keys."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "bringup-"
LOCK = "lock"
"""Name of the file that a folder's process keeps locked. The kernel releases the lock however the process ends."""

LONGEST_SOCKET_FOLDER = 60
"""Limit of a folder's path in bytes: a UNIX socket's path has at most 107, and SSH adds up to 41 while a master connection starts.
"""


@contextmanager
def private_folder(temporary: str = "", *, sockets: bool = True) -> Iterator[Path]:
    """Create a folder (0700) below `temporary`, else in the default place for temporary files, and remove it at the end.

    Folders of dead processes are removed first. With `sockets`, a place whose path is too long for UNIX sockets is replaced by
    /tmp.
    """
    place = temporary or tempfile.gettempdir()

    if sockets and len(place) + len(PREFIX) + 9 > LONGEST_SOCKET_FOLDER:  # a slash, and eight random characters
        place = "/tmp"
    remove_dead(Path(place))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    fresh = folder / f"{LOCK}.new"  # not yet under the name by which others look for dead processes
    with fresh.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh.rename(folder / LOCK)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_dead(place: Path) -> None:
    """Remove the private folders of this user whose process has ended, which a free lock shows."""
    for lock in place.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(FileNotFoundError):  # its process ended meanwhile
            if not lock.parent.is_symlink() and lock.stat().st_uid == os.getuid():
                _remove_if_dead(lock)


def _remove_if_dead(lock: Path) -> None:
    with lock.open("r+") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # its process is alive
        shutil.rmtree(lock.parent, ignore_errors=True)
