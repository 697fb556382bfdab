"""Disks: free space, and what is mounted where; no profile changes them."""

from __future__ import annotations

import os
import shutil

from ansible.module_utils import mountpoints
from ansible.module_utils.nodeprofile import set_up
from ansible.module_utils.nodeprofile.item import Item, Node, measured, read_text

MIB = 1024 * 1024
RESERVE_MIB, RESERVE_PERCENT = 2048, 5
"""What must stay free once RKE2 is set up: an upgrade's archives, and more than what its kubelet evicts pods below (K3s gives it
`eviction-hard: imagefs.available<5%,nodefs.available<5%`). `steps/gates/os_prep_facts.py` asks for the same."""

READ_ONLY = "Read-only file system: so the kernel leaves one whose disk had an error (see dmesg); repair it, and mount it again"


def disks(node: Node, wanted: dict, root: str = "") -> list:
    """Free space by path, in MiB, that can be written to; a path that is not there yet counts as its nearest parent. What a first
    bring-up asks for is what RKE2 then fills: where it is set up, a reserve is enough."""
    held = is_used(node, wanted, root)
    return [_disk(path, reserve(path, least) if held else least, held, root) for path, least in sorted(wanted.items())]


def is_used(node: Node, wanted: dict, root: str = "") -> bool:
    """Whether RKE2 may have filled a disk that has less than it was to have."""
    return any(_free(path) < least for path, least in wanted.items()) and set_up.by_anyone(node, root)


def reserve(path: str, least: int) -> int:
    """What must stay free of a disk that was to have so many MiB, in MiB."""
    total = shutil.disk_usage(existing(path)).total // MIB
    return min(least, max(RESERVE_MIB, total * RESERVE_PERCENT // 100))


def _free(path: str) -> int:
    return shutil.disk_usage(existing(path)).free // MIB


def _disk(path: str, least: int, held: bool, root: str) -> Item:
    want = ">= %d MiB free%s" % (least, ", RKE2 being set up" if held else "")
    if _holder(existing(path), root)[2]:
        return measured("disk " + path, False, want, "read-only", READ_ONLY)
    free = _free(path)
    return measured("disk " + path, free >= least, want, "%d MiB free" % free, "No space left for what is to come")


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
