"""SELinux labels for files and folders that bringup creates: each gets the label that the policy has for its path.

The kernel gives a new file its folder's label, which is sometimes wrong: a user's .ssh differs from the rest of the home,
/etc/hostname from the rest of /etc. Programs confined by the policy are then denied access.
"""

from __future__ import annotations

import ctypes
import os
import stat
from contextlib import suppress

NAME = "security.selinux"
ENFORCE = "/sys/fs/selinux/enforce"
"""The file that exists where the kernel has loaded an SELinux policy, enforcing or permissive."""
LIBRARY = "libselinux.so.1"


def policy_label(path: str, kind: int, enforce: str = ENFORCE) -> bytes:
    """Return the SELinux policy's label for a path and file type (stat.S_IFREG, stat.S_IFDIR).

    It is empty if SELinux is off or the policy names no label.
    """
    if not os.path.exists(enforce):
        return b""
    label = ctypes.c_char_p()
    try:
        code = ctypes.CDLL(LIBRARY).matchpathcon(os.fsencode(path), ctypes.c_uint(kind), ctypes.byref(label))
    except (AttributeError, OSError):
        return b""
    return label.value + b"\0" if code == 0 and label.value else b""


def file_label(path: str) -> bytes:
    """Return the SELinux label of an existing file, or the policy's label for its path if the file has none."""
    with suppress(OSError):
        return os.getxattr(path, NAME)
    return policy_label(path, stat.S_IFREG)


def set_label(where: "str | int", label: bytes) -> None:
    """Set an SELinux label on a path or open file. Nothing happens if the label is empty or this process may not set it."""
    with suppress(OSError):
        if label:
            os.setxattr(where, NAME, label)


def make_folders(path: str, mode: int = 0o755) -> None:
    """Create a folder with `mode` and its missing parents with 0755, whatever the umask; each gets the policy's SELinux label."""
    fresh, at = [], path
    while at and not os.path.exists(at):
        fresh.append(at)
        at = os.path.dirname(at)
    os.makedirs(path, mode=mode, exist_ok=True)
    for folder in fresh:
        os.chmod(folder, mode if folder == path else 0o755)
        set_label(folder, policy_label(folder, stat.S_IFDIR))
