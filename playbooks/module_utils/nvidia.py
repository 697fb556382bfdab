"""Whose NVIDIA driver it is: the host's own, or the one of a container, whose module is in the host's kernel all the same."""

from __future__ import annotations

import os
import re
from typing import Optional

RUNNING = "/proc/driver/nvidia/version"
"""There while the module is in the kernel, whoever loaded it: containers do not have one of their own."""
LISTED = re.compile(r"^(?:\S*/)?nvidia(?:-(?:current|tesla|legacy)[^/\s:]*)?\.ko(?:\.\w+)?:", re.MULTILINE)
"""The driver in depmod's list, whose lines begin with a module's file: DKMS's, of packages, and of NVIDIA's own installer.
Debian has names of its own for the file, which is why `modinfo nvidia` does not find it there."""


def is_installed(root: str = "") -> Optional[bool]:
    """Whether the module lies on the host for the kernel that runs, loaded or not; None where nothing lists the kernel's modules.

    A driver container loads its module from its own folders, which end with it; the host cannot load that one.
    """
    try:
        with open(root + "/lib/modules/%s/modules.dep" % os.uname().release, errors="replace") as source:
            return LISTED.search(source.read()) is not None
    except OSError:
        return None


def is_of_container(root: str = "") -> bool:
    """Whether a driver runs that is surely not the host's; it stays in the kernel when its container is gone, until a boot."""
    return os.path.exists(root + RUNNING) and is_installed(root) is False
