"""Reloads that are owed: a file is changed first, and what reads it learns of that later; a run may end in between.

The mark is set before the change and goes with a reload that worked. It is all that tells a later run of it: the file is as wanted.
"""

from __future__ import annotations

import os
from contextlib import suppress

UNTIL_BOOT, KEPT = "/run/bringup-owed", "/var/lib/bringup-owed"
FOLDERS = {"initramfs": KEPT, "networkmanager": UNTIL_BOOT, "time": UNTIL_BOOT}
"""Where the mark of a reload lies: a boot makes up for some. systemd tells itself what it has not read."""


def mark(name: str, said: str = "", root: str = "") -> None:
    """Remember that a reload is to come; `said` is why it failed."""
    if name not in FOLDERS:
        return
    os.makedirs(root + FOLDERS[name], mode=0o700, exist_ok=True)
    os.close(os.open(_path(name, root), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
    with suppress(OSError), open(_path(name, root), "w") as out:  # on a full disk the mark alone stays
        out.write(said)


def names(root: str = "") -> list:
    """The reloads that are owed."""
    return [name for name in FOLDERS if os.path.exists(_path(name, root))]


def why(name: str, root: str = "") -> str:
    """What kept a reload from being done."""
    with open(_path(name, root)) as source:
        return source.read() or "a run was cut off before it"


def paid(name: str, root: str = "") -> None:
    """It is done; the folder goes with its last mark."""
    with suppress(OSError, KeyError):  # others are owed still, or the file system has gone read-only
        os.unlink(_path(name, root))
        os.rmdir(root + FOLDERS[name])


def _path(name: str, root: str) -> str:
    return os.path.join(root + FOLDERS[name], name)
