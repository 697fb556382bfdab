"""Checks that tell the host's own NVIDIA driver from one that a driver container loaded into the host's kernel."""

from __future__ import annotations

import os
import re
from typing import Optional

RUNNING = "/proc/driver/nvidia/version"
"""File that exists while an NVIDIA driver module is in the kernel, the host's or a container's: both share the kernel."""
LISTED = re.compile(r"^(?:\S*/)?nvidia(?:-(?:current|tesla|legacy)[^/\s:]*)?\.ko(?:\.\w+)?:", re.MULTILINE)
"""A line of modules.dep for the driver's file, as DKMS, packages and NVIDIA's installer name it.

Debian renames the file, so `modinfo nvidia` does not find it there.
"""


def is_installed(root: str = "") -> Optional[bool]:
    """Return True if the host has an NVIDIA driver module for its running kernel, loaded or not; None without a modules.dep.

    A driver container loads its module from folders of its own, which end with the container; the host cannot load that module.
    """
    try:
        with open(root + "/lib/modules/%s/modules.dep" % os.uname().release, errors="replace") as source:
            return LISTED.search(source.read()) is not None
    except OSError:
        return None


def is_of_container(root: str = "") -> bool:
    """Return True if the loaded NVIDIA driver is certainly a container's, not the host's own.

    It outlives its container until a reboot.
    """
    return os.path.exists(root + RUNNING) and is_installed(root) is False
