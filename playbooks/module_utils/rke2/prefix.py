"""Where the files of a release go: into /usr/local, with units where systemd sees them at boot.

A file system of its own there (SLES has one) is mounted by a unit: systemd has read all others by then, and a unit of RKE2's in it
would not be among them. RKE2's installer puts units into /etc/systemd/system then (peers §4).
"""

from __future__ import annotations

import os

from ansible.module_utils import mountpoints

PREFIX = "/usr/local"
OF_RELEASE, EARLY = "lib/systemd/system/", "/etc/systemd/system/"
THERE_AT_BOOT = ("/", "/usr")
"""The initramfs mounts these before systemd reads its units."""
SHARED = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "fuse.glusterfs", "9p", "virtiofs")


def refusal(root: str = "") -> str:
    """Why no release can be put there; empty where one can. A root that an error made read-only fails by itself, and says so."""
    at, kind, read_only = _holder(root)
    if kind in SHARED and at != "/":
        said = "%s is on a share (%s, mounted at %s): each host needs an RKE2 of its own there; mount the share at another place"
        return said % (PREFIX, kind, at)
    if read_only and at != "/":
        said = (
            "%s cannot be written: %s is mounted read-only, and RKE2's program goes there: have it mounted read-write (/etc/fstab)"
        )
        return said % (PREFIX, at)
    return ""


def place(name: str, root: str = "") -> str:
    """Where a file of a release goes."""
    if name.startswith(OF_RELEASE) and name.endswith(".service") and _holder(root)[0] not in THERE_AT_BOOT:
        return EARLY + name[len(OF_RELEASE) :]
    return os.path.join(PREFIX, name)


def _holder(root: str) -> tuple:
    with open(root + "/proc/self/mounts") as source:
        return mountpoints.holder(PREFIX, source.read())
