"""Target paths of a release's files: below /usr/local, except units where systemd would not see them there at boot.

A separate file system at /usr/local (SLES has one) is mounted by a unit, when systemd has already read all units. RKE2's install.sh
puts its units into /etc/systemd/system in that case.
"""

from __future__ import annotations

import os

from ansible.module_utils import mount_table

PREFIX = "/usr/local"
RELEASE_UNITS, ETC_UNITS = "lib/systemd/system/", "/etc/systemd/system/"
MOUNTED_EARLY = ("/", "/usr")
"""Mount points that the initramfs mounts before systemd reads its units."""
SHARED = ("nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "gpfs", "beegfs", "glusterfs", "fuse.glusterfs", "9p", "virtiofs")


def refusal(root: str = "") -> str:
    """Return why no release can be installed below /usr/local; empty if one can, or if the root file system is read-only.

    On a read-only root file system the installation fails with a clear message of its own.
    """
    at, kind, read_only = _holder(root)
    if kind in SHARED and at != "/":
        message = "%s is on a share (%s, mounted at %s): each host needs an RKE2 of its own there; mount the share at another place"
        return message % (PREFIX, kind, at)
    if read_only and at != "/":
        why = "%s is mounted read-only, and RKE2's program goes there: have it mounted read-write (/etc/fstab)" % at
        return "%s cannot be written: %s" % (PREFIX, why)
    return ""


def target_path(name: str, root: str = "") -> str:
    """Return the path on the host for a file of the release archive, such as /usr/local/bin/rke2 for `bin/rke2`."""
    if name.startswith(RELEASE_UNITS) and name.endswith(".service") and _holder(root)[0] not in MOUNTED_EARLY:
        return ETC_UNITS + name[len(RELEASE_UNITS) :]
    return os.path.join(PREFIX, name)


def _holder(root: str) -> tuple:
    with open(root + "/proc/self/mounts") as source:
        return mount_table.mount_of(PREFIX, source.read())
