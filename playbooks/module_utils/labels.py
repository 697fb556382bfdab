"""Labels of SELinux: of what is made anew, the one that the policy has for its place.

The kernel gives it its folder's, which is not always that: a user's .ssh is no part of a home like others, /etc/hostname is no file
of /etc like others, and whoever may read the one is denied the other.
"""

from __future__ import annotations

import ctypes
import os
import stat
from contextlib import suppress

NAME = "security.selinux"
ENFORCE = "/sys/fs/selinux/enforce"
"""There where the kernel has loaded a policy, whether it enforces it or not."""
LIBRARY = "libselinux.so.1"


def of_policy(path: str, kind: int, enforce: str = ENFORCE) -> bytes:
    """The label of a path, for a file of this kind (stat.S_IFREG, S_IFDIR); empty where SELinux is off, or says nothing of it."""
    if not os.path.exists(enforce):
        return b""
    found = ctypes.c_char_p()
    try:
        code = ctypes.CDLL(LIBRARY).matchpathcon(os.fsencode(path), ctypes.c_uint(kind), ctypes.byref(found))
    except (AttributeError, OSError):
        return b""
    return found.value + b"\0" if code == 0 and found.value else b""


def of_file(path: str) -> bytes:
    """The label that a file has; of none, the policy's for its place."""
    with suppress(OSError):
        return os.getxattr(path, NAME)
    return of_policy(path, stat.S_IFREG)


def give(where: "str | int", label: bytes) -> None:
    """Set a label, if there is one; who may not, leaves it as it is. An open file may stand for its path."""
    with suppress(OSError):
        if label:
            os.setxattr(where, NAME, label)


def folders(path: str, mode: int = 0o755) -> None:
    """Make a folder, and those above it (for all to read), whatever this process's umask is; those that were not there get the
    policy's labels."""
    fresh, at = [], path
    while at and not os.path.exists(at):
        fresh.append(at)
        at = os.path.dirname(at)
    os.makedirs(path, mode=mode, exist_ok=True)
    for one in fresh:
        os.chmod(one, mode if one == path else 0o755)
        give(one, of_policy(one, stat.S_IFDIR))
