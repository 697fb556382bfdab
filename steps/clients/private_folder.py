"""A private folder for one play, boot or checkout, and the removal of those that killed ones left: they hold keys."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "bringup-"
LOCK = "lock"
"""A file that the play keeps locked as long as it lives; the kernel lets go of it however the process ends."""

LONGEST_SOCKET_FOLDER = 60
"""A UNIX socket's path has 107 bytes; SSH adds up to 41 to ours while a master connection comes up."""


@contextmanager
def private_folder(temporary: str = "", *, sockets: bool = True) -> Iterator[Path]:
    """Make the folder (0700) below `temporary`, else where temporary files lie, and remove it; before, those of dead plays.
    Where no `sockets` are to lie in it, any path will do."""
    place = temporary or tempfile.gettempdir()
    if sockets and len(place) + len(PREFIX) + 9 > LONGEST_SOCKET_FOLDER:
        place = "/tmp"
    remove_dead(Path(place))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    fresh = folder / f"{LOCK}.new"  # under this name nobody takes it for that of a dead play
    with fresh.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh.rename(folder / LOCK)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_dead(place: Path) -> None:
    """Remove this user's folders whose lock nobody holds."""
    for lock in place.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(FileNotFoundError):  # its play ended while we looked
            if not lock.parent.is_symlink() and lock.stat().st_uid == os.getuid():
                _remove_if_dead(lock)


def _remove_if_dead(lock: Path) -> None:
    with lock.open("r+") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # its play runs
        shutil.rmtree(lock.parent, ignore_errors=True)
