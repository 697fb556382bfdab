"""Calls of this machine as a tree needs them: what a network file system answers though it did what it was asked is no failure."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from steps.clients.published.operations import CHUNK

FILE, FOLDER = 0o644, 0o755
"""Servers may read it, whatever this process's umask is."""


def make(root: Path, path: str) -> None:
    """A folder, and those above it, that servers may read whatever this process's umask is."""
    for part in (*reversed(Path(path).parents), Path(path)):
        try:
            (root / part).mkdir()
        except FileExistsError:
            if not (root / part).is_dir():
                raise
        else:
            (root / part).chmod(FOLDER)


def write(path: Path, data: bytes | Iterable[bytes], renew: object) -> int:
    """A new file with these bytes, on disk; `renew` is called after each part. Returns how many there are."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE)
    with os.fdopen(handle, "wb") as stream:
        os.fchmod(handle, FILE)
        for part in (data,) if isinstance(data, bytes) else data:
            stream.write(part)
            if callable(renew):
                renew()
        stream.flush()
        os.fsync(handle)
        return stream.tell()


def rename(path: Path, to: Path) -> None:
    """A network file system whose first answer was lost is asked again, and may say that there is no such file any more."""
    before = path.lstat()
    try:
        os.replace(path, to)
    except FileNotFoundError:
        if not (os.path.lexists(to) and os.path.samestat(before, to.lstat())):
            raise


def link(path: Path, target: str) -> None:
    """The same: or that there is one already."""
    try:
        os.symlink(target, path)
    except FileExistsError:
        if not (path.is_symlink() and os.readlink(path) == target):
            raise


def flush(path: Path) -> None:
    """A folder's names to disk. Some network file systems refuse that for any folder: it is up to their server then."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


def digest(path: Path, renew: Callable[[], None]) -> str:
    """`sha256:…` of a file; `renew` is called after each part."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while part := stream.read(CHUNK):
            found.update(part)
            renew()
    return f"sha256:{found.hexdigest()}"


def size(path: Path) -> int:
    """How many bytes a file has."""
    return path.stat().st_size


def remove(path: Path) -> None:
    """A file, or a folder with all in it; nothing there is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_gone(path: Path, error: OSError) -> bool:
    """Whether that error was one since nothing is at the path any more: what is open here and was removed by another client of a
    network file system is stale. A mount that is stale itself is another matter."""
    if error.errno == errno.ESTALE:
        try:
            path.lstat()
        except FileNotFoundError:
            return True
        except OSError:
            return False
    return isinstance(error, FileNotFoundError)


@contextmanager
def if_there(path: Path) -> Iterator[None]:
    """Stop without an error where the path is gone, or may not be looked into."""
    try:
        yield
    except OSError as error:
        if not (isinstance(error, PermissionError) or is_gone(path, error)):
            raise
