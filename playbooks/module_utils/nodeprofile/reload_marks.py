"""Marker files for reloads that are due: a file is changed first, its reader reloads later, and a run may end in between.

A marker is written before the change and removed after a successful reload. Without it a later run would find the file as wanted
and never reload its reader.
"""

from __future__ import annotations

import os
from contextlib import suppress

UNTIL_BOOT, KEPT = "/run/bringup-owed", "/var/lib/bringup-owed"
FOLDERS = {"initramfs": KEPT, "networkmanager": UNTIL_BOOT, "time": UNTIL_BOOT}
"""Reload → folder of its marker file, below /run if a boot makes the reload unnecessary. systemd reports unread files itself."""


def mark(name: str, why: str = "", root: str = "") -> None:
    """Write the marker file of a due reload, with `why` a try failed; do nothing for a reload that systemd tracks itself."""
    if name not in FOLDERS:
        return
    os.makedirs(root + FOLDERS[name], mode=0o700, exist_ok=True)
    os.close(os.open(_path(name, root), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600))
    with suppress(OSError), open(_path(name, root), "w") as out:  # on a full disk the mark alone stays
        out.write(why)


def due_reloads(root: str = "") -> list:
    """Return the names of the reloads that have a marker file."""
    return [name for name in FOLDERS if os.path.exists(_path(name, root))]


def reason(name: str, root: str = "") -> str:
    """Return why the reload has not been done yet, from its marker file. Raises OSError if that is missing."""
    with open(_path(name, root)) as source:
        return source.read() or "a run was cut off before it"


def clear(name: str, root: str = "") -> None:
    """Remove the marker file of a reload that was done, and its folder if it is then empty."""
    with suppress(OSError, KeyError):  # others are owed still, or the file system has gone read-only
        os.unlink(_path(name, root))
        os.rmdir(root + FOLDERS[name])


def _path(name: str, root: str) -> str:
    return os.path.join(root + FOLDERS[name], name)
