"""A stand-in for a mount of a network file system, by FUSE over a folder: `nfs_stand_in.py FOLDER MOUNT STALE ODD…`.

Two mounts of one folder are two clients of one server. It does what NFS does otherwise than a disk (`test_nfs` has the real one): a
name is believed for a moment, also one that is not there and where a link leads, until this client changes its folder, or lists it
and finds it changed; a file that is open here is renamed where it is removed, and is stale where another client removes it, as by
NFSv3; and it answers what it is told to, also after it did what it was asked, as where a first answer is lost and the same is asked
again.
"""

import errno
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import mfusepy  # type: ignore[import-untyped]  # the library has no types
import msgspec

from tests.boot.published.nfs_mounts import KIND, SILLY, Odd

NOW = (1 << 30) - 1
"""UTIME_NOW, in place of nanoseconds."""
Listed = tuple[str, dict[str, int], int]
Believed = tuple[float, os.stat_result | None, str]
"""Since when, what is there, and where it leads."""
_T = TypeVar("_T")


class Client(mfusepy.Operations):  # type: ignore[misc]  # as above
    """Passes all on to a folder, and is odd where it was told to be."""

    use_ns = True
    flag_nopath = flag_nullpath_ok = True  # what is read after it was removed has no path

    def __init__(self, folder: str, stale: float, odd: list[Odd]) -> None:
        self._folder, self._stale = folder, stale
        self._odd = {one: one.times for one in odd}
        self._open: dict[int, str] = {}
        self._silly: dict[int, str] = {}
        self._believed: dict[str, dict[str, Believed]] = {}
        self._changed: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def _answer(self, call: str, path: str, act: Callable[[], _T]) -> _T:
        found = next((one for one, left in self._odd.items() if left and one.call == call and one.path in path), None)
        if found is None:
            return act()
        if found.done:
            act()
        if found.removed:
            subprocess.run(["rm", "-rf", self._at(path)], check=True)
        self._odd[found] -= 1
        print(call, path, flush=True)
        raise mfusepy.FuseOSError(found.answer)

    def _change(self, call: str, path: str, act: Callable[[str], object], *others: str) -> None:
        for one in (path, *others):
            self._believed.pop(os.path.dirname(one), None)
        self._answer(call, " ".join((path, *others)), lambda: act(self._at(path)))

    def _at(self, path: str) -> str:
        return self._folder + path

    # files

    def create(self, path: str, mode: int, flags: int) -> int:
        self._believed.pop(os.path.dirname(path), None)
        return self._opened("create", path, flags | os.O_CREAT, mode)

    def open(self, path: str, flags: int) -> int:
        return self._opened("open", path, flags)

    def _opened(self, call: str, path: str, flags: int, mode: int = 0) -> int:
        self._forget(path)
        handle = self._answer(call, path, lambda: os.open(self._at(path), flags, mode))
        self._open[handle] = path
        return handle

    def read(self, path: str | None, size: int, offset: int, handle: int) -> bytes:
        if not os.fstat(handle).st_nlink:
            raise mfusepy.FuseOSError(errno.ESTALE)
        return self._answer("read", self._open[handle], lambda: os.pread(handle, size, offset))

    def write(self, path: str | None, data: bytes, offset: int, handle: int) -> int:
        self._forget(self._open[handle])
        return self._answer("write", self._open[handle], lambda: os.pwrite(handle, data, offset))

    def fsync(self, path: str | None, only_data: int, handle: int) -> None:
        self._answer("fsync", self._open[handle], lambda: os.fsync(handle))

    def truncate(self, path: str | None, length: int, handle: int | None = None) -> None:
        at = self._at(path or "") if handle is None else handle
        name = self._open.get(handle or 0, path or "")
        self._forget(name)
        self._answer("truncate", name, lambda: os.truncate(at, length))

    def release(self, path: str | None, handle: int) -> None:
        inode = os.fstat(handle).st_ino
        del self._open[handle]
        os.close(handle)
        if inode in self._silly and inode not in self._inodes():
            with suppress(OSError):
                os.unlink(self._silly.pop(inode))

    def _inodes(self) -> set[int]:
        return {os.fstat(handle).st_ino for handle in self._open}

    # names

    def getattr(self, path: str | None, handle: int | None = None) -> dict[str, int]:
        found = os.fstat(handle) if path is None and handle is not None else self._look(path or "/")[0]
        times = {name: getattr(found, f"{name}_ns") for name in ("st_atime", "st_mtime", "st_ctime")}
        names = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
        return {name: getattr(found, name) for name in names} | times

    def _look(self, path: str) -> tuple[os.stat_result, str]:
        believed, now = self._believed.setdefault(os.path.dirname(path), {}), time.monotonic()
        since, found, target = believed.get(path, (0.0, None, ""))
        if path == "/" or now - since > self._stale:
            found, target = self._asked(path)
            believed[path] = now, found, target
        if found is None:
            raise FileNotFoundError(errno.ENOENT, path)
        return found, target

    def _asked(self, path: str) -> tuple[os.stat_result | None, str]:
        at = self._at(path)
        try:
            return os.lstat(at), os.readlink(at) if os.path.islink(at) else ""
        except FileNotFoundError:
            if os.path.isdir(self._folder):
                return None, ""
            raise mfusepy.FuseOSError(errno.ESTALE) from None  # what is mounted went away on the server

    def _forget(self, path: str) -> None:
        self._believed.get(os.path.dirname(path), {}).pop(path, None)

    def chmod(self, path: str, mode: int) -> None:
        self._forget(path)
        self._answer("chmod", path, lambda: os.chmod(self._at(path), mode))

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        now = time.time_ns()
        wanted = (now, now) if times is None or NOW in times else times
        self._forget(path)
        self._answer("utimens", path, lambda: os.utime(self._at(path), ns=wanted))

    def readlink(self, path: str) -> str:
        return self._look(path)[1]

    def unlink(self, path: str) -> None:
        self._change("unlink", path, self._unlink)

    def _unlink(self, at: str) -> None:
        inode = os.lstat(at).st_ino
        if inode in self._silly:
            raise mfusepy.FuseOSError(errno.EBUSY)
        if inode in self._inodes():
            self._silly[inode] = os.path.join(os.path.dirname(at), f"{SILLY}{inode:016x}{next(self._numbers):08x}")
            os.rename(at, self._silly[inode])
        else:
            os.unlink(at)

    def rename(self, old: str, new: str) -> None:
        self._change("rename", old, lambda at: self._rename(at, self._at(new)), new)

    def _rename(self, at: str, to: str) -> None:
        if os.lstat(at).st_ino in self._silly:
            raise mfusepy.FuseOSError(errno.EBUSY)
        os.rename(at, to)

    def link(self, new: str, old: str) -> None:
        self._change("link", new, lambda at: os.link(self._at(old), at))

    def symlink(self, new: str, target: str) -> None:
        self._change("symlink", new, lambda at: os.symlink(target, at))

    # folders

    def mkdir(self, path: str, mode: int) -> None:
        self._change("mkdir", path, lambda at: os.mkdir(at, mode))

    def rmdir(self, path: str) -> None:
        self._change("rmdir", path, os.rmdir)

    def opendir(self, path: str) -> int:
        handle = self._answer("opendir", path, lambda: os.open(self._at(path), os.O_RDONLY))
        self._open[handle] = path
        changed = os.fstat(handle).st_mtime_ns
        if self._changed.get(path) != changed:
            self._changed[path] = changed
            self._believed.pop(path, None)
        return handle

    def readdir(self, path: str | None, handle: int) -> list[Listed]:
        return self._answer("readdir", self._open[handle], lambda: self._names(self._open[handle]))

    def _names(self, folder: str) -> list[Listed]:
        try:
            return [(one.name, {"st_ino": one.inode()}, 0) for one in os.scandir(self._at(folder))]
        except FileNotFoundError:
            raise mfusepy.FuseOSError(errno.ESTALE) from None

    def fsyncdir(self, path: str | None, only_data: int, handle: int) -> None:
        self._answer("fsyncdir", self._open[handle], lambda: os.fsync(handle))

    def releasedir(self, path: str | None, handle: int) -> None:
        del self._open[handle]
        os.close(handle)


def main(folder: str, path: str, stale: str, *odd: str) -> None:
    """Serve until it is unmounted."""
    os.umask(0)
    client = Client(folder, float(stale), [msgspec.json.decode(one, type=Odd) for one in odd])
    options = {"attr_timeout": 0, "entry_timeout": 0, "negative_timeout": 0, "default_permissions": True, "subtype": KIND}
    mfusepy.FUSE(client, path, foreground=True, nothreads=True, use_ino=True, hard_remove=True, **options)


if __name__ == "__main__":
    main(*sys.argv[1:])
