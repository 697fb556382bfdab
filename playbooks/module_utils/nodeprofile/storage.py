"""Disks: free space, and what is mounted where; no profile changes them."""

from __future__ import annotations

import os
import shutil

from ansible.module_utils import mountpoints
from ansible.module_utils.nodeprofile.item import Item, measured, read_text

MIB = 1024 * 1024


READ_ONLY = "Read-only file system: so the kernel leaves one whose disk had an error (see dmesg); repair it, and mount it again"


def disks(wanted: dict, root: str = "") -> list:
    """Free space by path, in MiB, that can be written to; a path that is not there yet counts as its nearest parent."""
    return [_disk(path, least, root) for path, least in sorted(wanted.items())]


def _disk(path: str, least: int, root: str) -> Item:
    if _holder(existing(path), root)[2]:
        return measured("disk " + path, False, ">= %d MiB free" % least, "read-only", READ_ONLY)
    free = shutil.disk_usage(existing(path)).free // MIB
    return measured(
        "disk " + path, free >= least, ">= %d MiB free" % least, "%d MiB free" % free, "No space left for what is to come"
    )


def mounts(wanted: dict, root: str = "") -> list:
    """Folders that must be file systems of their own, by path, of one of the types beside it (any where there is none)."""
    return [_mount(path, kinds, root) for path, kinds in sorted(wanted.items())]


def _mount(path: str, kinds: list, root: str) -> Item:
    want = "mounted, %s" % " or ".join(kinds) if kinds else "mounted"
    at, kind, read_only = _holder(path, root)
    if at != path:
        return measured("mount " + path, False, want, "part of " + at, "mount a disk of its own there before the run")
    if read_only:
        return measured("mount " + path, False, want, "mounted, read-only", READ_ONLY)
    good = not kinds or kind in kinds
    seen = "mounted, " + kind if kinds else "mounted"
    return measured("mount " + path, good, want, seen, "it is %s: make the file system anew, or accept this type" % kind)


def _holder(path: str, root: str) -> tuple:
    return mountpoints.holder(path, read_text(root + "/proc/self/mounts"))


def existing(path: str) -> str:
    """The path, or its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
