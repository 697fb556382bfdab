"""Disks: free space, and what is mounted where; no profile changes them."""

from __future__ import annotations

import os
import shutil

from ansible.module_utils.nodeprofile.item import Item, measured, read_text

MIB = 1024 * 1024


def disks(wanted: dict) -> list:
    """Free space by path, in MiB; a path that is not there yet counts as its nearest parent."""
    return [_disk(path, least) for path, least in sorted(wanted.items())]


def _disk(path: str, least: int) -> Item:
    free = shutil.disk_usage(existing(path)).free // MIB
    return measured(
        "disk " + path, free >= least, ">= %d MiB free" % least, "%d MiB free" % free, "No space left for what is to come"
    )


def mounts(wanted: dict) -> list:
    """Folders that must be file systems of their own, by path, of one of the types beside it (any where there is none)."""
    return [_mount(path, kinds) for path, kinds in sorted(wanted.items())]


def _mount(path: str, kinds: list) -> Item:
    want = "mounted, %s" % " or ".join(kinds) if kinds else "mounted"
    at, kind = holder(path)
    if at != path:
        return measured("mount " + path, False, want, "part of " + at, "mount a disk of its own there before the run")
    good = not kinds or kind in kinds
    seen = "mounted, " + kind if kinds else "mounted"
    return measured("mount " + path, good, want, seen, "it is %s: make the file system anew, or accept this type" % kind)


def holder(path: str) -> tuple:
    """Where the file system that holds a path is mounted, and its type."""
    rows = [line.split() for line in read_text("/proc/self/mounts").splitlines()]
    real = os.path.realpath(path)
    held = [(row[1], row[2]) for row in rows if len(row) > 2 and (real + "/").startswith(row[1].rstrip("/") + "/")]
    return max(reversed(held), key=lambda pair: len(pair[0])) if held else ("/", "")


def existing(path: str) -> str:
    """The path, or its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
