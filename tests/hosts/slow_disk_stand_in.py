"""A stand-in for a slow disk in a host of the lab, by FUSE over another folder of the host: each fsync takes so long, and no more.

`slow_disk_stand_in.py PID MOUNT DISK SECONDS`: PID is a process of the host. It runs outside of the host, and enters its mounts.
"""

import ctypes
import os
import stat
import sys
import time

import mfusepy  # type: ignore[import-untyped]  # the library has no types

from tests.boot.published.nfs_stand_in import Client

MOUNTS = 0x20000
"""CLONE_NEWNS of setns(2)."""
DEVICE = os.makedev(10, 229)


class SlowDisk(Client):
    """Passes all on, and makes who waits for the disk wait."""

    flag_nopath = flag_nullpath_ok = False  # the library forgets the handle of what is truncated

    def __init__(self, folder: str, seconds: float) -> None:
        super().__init__(folder, 0.0, [])
        self._seconds = seconds

    def fsync(self, path: str | None, only_data: int, handle: int) -> None:
        time.sleep(self._seconds)
        super().fsync(path, only_data, handle)


def enter(pid: str) -> None:
    """Be where this process has its files, with a device for FUSE."""
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY)
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(mounts, MOUNTS):
        raise OSError(ctypes.get_errno(), "setns")
    os.fchdir(root)
    os.chroot(".")
    if not os.path.exists("/dev/fuse"):
        os.mknod("/dev/fuse", stat.S_IFCHR | 0o600, DEVICE)


def main(pid: str, path: str, disk: str, seconds: str) -> None:
    """Serve until it is unmounted."""
    enter(pid)
    for folder in (path, disk):
        os.makedirs(folder, exist_ok=True)
    os.umask(0)
    options = {"attr_timeout": 0, "entry_timeout": 0, "negative_timeout": 0, "default_permissions": True, "subtype": "slow_disk"}
    mfusepy.FUSE(SlowDisk(disk, float(seconds)), path, foreground=True, nothreads=True, use_ino=True, hard_remove=True, **options)


if __name__ == "__main__":
    main(*sys.argv[1:])
