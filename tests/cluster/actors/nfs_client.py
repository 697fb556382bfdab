"""A stand-in for the NFS client of a node, whose kernel may have none: a mount helper that binds a folder of this machine.

The kubelet's own volume plugin calls it by `mount -t nfs`, and unmounts what it mounted.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubelab import box

INSTALL = """set -e
mkdir -p /run/sbin /run/sbin-work
mount -t overlay overlay -o lowerdir=/usr/sbin,upperdir=/run/sbin,workdir=/run/sbin-work /usr/sbin
printf '#!/bin/sh\\nexec mount --bind "%s" "$2"\\n' "$0" > /usr/sbin/mount.nfs
chmod 755 /usr/sbin/mount.nfs
"""


@contextmanager
def exporting(folder: Path) -> Iterator[None]:
    """Let every NFS mount of the box be this folder while the context lasts."""
    box.run("sh", "-c", INSTALL, str(folder))
    try:
        yield
    finally:
        box.run("umount", "--lazy", "/usr/sbin")
