"""Lists, reads and writes regular files below a folder without following links, so that nothing outside passes for its content."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO without a writer would block the open


class FileKind(StrEnum):
    """Kind of an entry of a folder, in the words of messages."""

    FILE = "a file"
    FOLDER = "a folder"
    LINK = "a symbolic link"
    FIFO = "a FIFO"
    SOCKET = "a socket"
    DEVICE = "a device"


_KINDS = {
    stat.S_IFREG: FileKind.FILE,
    stat.S_IFDIR: FileKind.FOLDER,
    stat.S_IFLNK: FileKind.LINK,
    stat.S_IFIFO: FileKind.FIFO,
    stat.S_IFSOCK: FileKind.SOCKET,
}


class FolderEntry(Struct, frozen=True):
    """An entry below a folder: its path from there, and its kind. `is_empty` is True for a folder without entries."""

    key: str
    kind: FileKind
    is_empty: bool = False


def entries(folder: Path) -> Iterator[FolderEntry]:
    """Yield everything below a folder, sorted within each folder; nothing if the folder is missing. Links are not followed."""
    yield from _entries(folder, "")


def _entries(folder: Path, prefix: str) -> Iterator[FolderEntry]:
    try:
        with os.scandir(folder) as scan:
            children = sorted(scan, key=lambda child: child.name)
    except FileNotFoundError:
        return
    for child in children:
        key = f"{prefix}{child.name}"
        if child.is_dir(follow_symlinks=False):
            below = list(_entries(folder / child.name, f"{key}/"))
            yield FolderEntry(key, FileKind.FOLDER, is_empty=not below)
            yield from below
        elif child.is_file(follow_symlinks=False):
            yield FolderEntry(key, FileKind.FILE)
        else:
            mode = child.stat(follow_symlinks=False).st_mode
            yield FolderEntry(key, _KINDS.get(stat.S_IFMT(mode), FileKind.DEVICE))


def kind_of(path: Path) -> FileKind | None:
    """Return the kind of a path itself, without following a link; None if there is nothing."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _KINDS.get(stat.S_IFMT(mode), FileKind.DEVICE)


def read(folder: Path, key: str) -> bytes:
    """Return the bytes of a regular file below a folder. Raises OSError, also if any part of the key is a link or no file.

    The folder itself may be reached through links: its owner chose it.
    """
    *parents, name = key.split("/")
    with _opened(folder, parents) as parent:
        try:
            handle = os.open(name, _FILE, dir_fd=parent)
        except OSError as error:
            raise _named(error, key) from None
        with os.fdopen(handle, "rb") as file:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode):
                raise OSError(errno.EINVAL, f"is {_KINDS.get(stat.S_IFMT(mode), FileKind.DEVICE)}, not a file", key)
            return file.read()


def write(folder: Path, key: str, data: bytes) -> None:
    """Write a file below a folder, and make the folders between. A link in the way is an OSError, never followed.

    The file appears whole, by a rename, which replaces an earlier file of the name.
    """
    folder.mkdir(parents=True, exist_ok=True)
    *parents, name = key.split("/")
    with _opened(folder, parents, make=True) as parent:
        temporary = f".{name}.{secrets.token_hex(4)}"
        try:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=parent)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except OSError as error:
            raise _named(error, key) from None


@contextmanager
def _opened(folder: Path, parents: list[str], *, make: bool = False) -> Iterator[int]:
    """Give a `with` block a handle of the folder that `parents` lead to below `folder`; no part is opened through a link."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for depth, part in enumerate(parents, 1):
            try:
                if make:
                    _make(part, handle)
                below = os.open(part, _FOLDER, dir_fd=handle)
            except OSError as error:
                raise _named(error, "/".join(parents[:depth])) from None
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _make(part: str, handle: int) -> None:
    try:
        os.mkdir(part, dir_fd=handle)
    except FileExistsError:
        return


def _named(error: OSError, key: str) -> OSError:
    """Return an error about a key; the kernel says ELOOP or ENOTDIR of a link, which a reader would not understand."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return OSError(errno.ELOOP, "is a symbolic link or no folder, and links are not followed", key)
    return OSError(error.errno, error.strerror, key)
