"""Checks of disks: free space and mounts, which are measured and never changed."""

from __future__ import annotations

import os
import shutil
from typing import Optional

from ansible.module_utils import mount_table
from ansible.module_utils.nodeprofile import rke2_presence
from ansible.module_utils.nodeprofile.item import Item, NodeAccess, measured, read_text

MIB = 1024 * 1024
RESERVE_MIB, RESERVE_PERCENT = 2048, 5
"""Space that must stay free once RKE2 is set up, in MiB and in percent of the disk.

It holds an upgrade's archives and exceeds the kubelet's eviction threshold (K3s sets `eviction-hard:
imagefs.available<5%,nodefs.available<5%`). The gate `os_prep` asks for the same.
"""

LEAST_INODES_PERCENT = 5
"""Percent of inodes that must be free: the default at which a kubelet evicts pods (`nodefs.inodesFree<5%`)."""
NO_INODES = (
    "No space left for what is to come, however many MiB are free: remove what made many small files, or make the file system anew"
)

READ_ONLY = "Read-only file system: so the kernel leaves one whose disk had an error (see dmesg); repair it, and mount it again"

RUNS = "programs run there"
NO_EXEC = "%s is mounted with noexec, so that nothing below %s starts (`Permission denied`): take it out of /etc/fstab, and remount"


IMAGES_PATH = "/var/lib/rancher"
"""Path at which containerd unpacks images for overlayfs, and etcd writes."""
REMOTE = frozenset(
    {"9p", "afs", "beegfs", "beegfs_nodev", "ceph", "cifs", "ecryptfs", "gpfs", "lustre", "nfs", "nfs4", "smb3", "virtiofs"}
)
"""Types of file systems that overlayfs takes for no upper layer, or on which etcd is too slow."""
NO_IMAGES = "containerd unpacks no images there (`not supported as upperdir`), and etcd is too slow: mount a local disk there"


def disks(node: NodeAccess, wanted: dict, root: str = "") -> list:
    """Check the free, writable space at each path (path → MiB) and return one setting result for each.

    A missing path counts as its nearest parent. A first bring-up asks for space that RKE2 then fills; where RKE2 is set up, a
    reserve is enough.
    """
    # on a machine with RKE2 the space is rightly used; only a reserve must be left
    in_use = is_used(node, wanted, root)
    return [_disk(path, reserve(path, least) if in_use else least, in_use, root) for path, least in sorted(wanted.items())]


def is_used(node: NodeAccess, wanted: dict, root: str = "") -> bool:
    """Return True if RKE2 is set up and a disk has less than its wanted free space, which RKE2 may have filled."""
    return any(_free(path) < least for path, least in wanted.items()) and rke2_presence.is_set_up(node, root)


def reserve(path: str, least: int) -> int:
    """Return the MiB that must stay free on a disk whose first bring-up asked for `least` MiB: never more than that."""
    total = shutil.disk_usage(nearest_existing(path)).total // MIB
    return min(least, max(RESERVE_MIB, total * RESERVE_PERCENT // 100))


def _free(path: str) -> int:
    return shutil.disk_usage(nearest_existing(path)).free // MIB


def _disk(path: str, least: int, in_use: bool, root: str) -> Item:
    want = ">= %d MiB free%s" % (least, ", RKE2 being set up" if in_use else "")
    if _holder(nearest_existing(path), root)[2]:
        return measured("disk " + path, False, want, "read-only", READ_ONLY)
    free, inodes = _free(path), _free_inodes(path)
    if free >= least and inodes is not None and inodes < LEAST_INODES_PERCENT:
        return measured("disk " + path, False, want, "%d MiB and %d %% of its inodes free" % (free, inodes), NO_INODES)
    return measured("disk " + path, free >= least, want, "%d MiB free" % free, "No space left for what is to come")


def _free_inodes(path: str) -> Optional[int]:
    """Return the percentage of inodes that are free; None for a file system that makes them as needed, as btrfs."""
    return inodes_percent(os.statvfs(nearest_existing(path)))


def inodes_percent(usage: os.statvfs_result) -> Optional[int]:
    """Return the percentage of free inodes in an answer of statvfs; None if the file system makes them as needed."""
    return usage.f_favail * 100 // usage.f_files if usage.f_files else None


def executable(paths: list, root: str = "") -> list:
    """Check that programs can be run in the file system of each path, and return one setting result for each.

    RKE2 runs containerd and the kubelet from its data folder, and pods run programs from volumes below the kubelet's. A path that
    does not exist yet counts as its nearest parent.
    """
    table = read_text(root + "/proc/self/mounts")
    rows: list = []
    for path in sorted(paths):
        at = nearest_existing(path)
        rows.append(_executable(path, mount_table.options_of(at, table)))
        rows += _images(path, *mount_table.mount_of(at, table)[:2])
    return rows


def _executable(path: str, options: tuple) -> Item:
    mount_point, words = options
    seen = "noexec at %s" % mount_point if "noexec" in words else RUNS
    return measured("exec " + path, seen == RUNS, RUNS, seen, NO_EXEC % (mount_point, path))


def _images(path: str, mount_point: str, kind: str) -> list:
    """Return a failed setting result if images lie at this path, and its file system cannot hold them; else an empty list."""
    if path != IMAGES_PATH or not (kind in REMOTE or kind.startswith("fuse.")):
        return []
    return [measured("images " + path, False, "a local file system", "%s at %s" % (kind, mount_point), NO_IMAGES)]


def mounts(wanted: dict, root: str = "") -> list:
    """Check that each path is a mount point with one of its types (none given: any); return one setting result for each."""
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
    return mount_table.mount_of(path, read_text(root + "/proc/self/mounts"))


def nearest_existing(path: str) -> str:
    """Return the path, or its nearest parent that exists."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path
