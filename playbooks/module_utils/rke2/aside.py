"""Files of the site at places where we write ours: kept aside before ours take their place, and told for as long as they lie there.

A reset empties RKE2's folders, and the kubelet reads some of them whole: what is kept of them lies beside them.
"""

from __future__ import annotations

import glob
import itertools
import os

from ansible.module_utils import labels
from ansible.module_utils.rke2 import files

BEFORE = ".before-bringup"
FOLDERS = ("/etc/rancher/rke2", "/var/lib/rancher/rke2")
OTHERS = "/etc/default/rke2-*"
"""Where else we write what somebody else may have written."""


def place(path: str) -> str:
    """Where a file is kept."""
    folder = next((folder for folder in FOLDERS if path.startswith(folder + "/")), path)
    return folder + BEFORE + path[len(folder) :]


def keep(path: str, root: str = "") -> str:
    """Copy a file aside, but not twice; returns where it is kept."""
    data = _read(root + path)
    names = (place(path) + ("-%d" % number if number > 1 else "") for number in itertools.count(1))
    at = next(name for name in names if not os.path.exists(root + name) or _read(root + name) == data)
    if not os.path.exists(root + at):
        labels.folders(os.path.dirname(root + at), 0o700)  # tokens and passwords of the site may be in it
        files.write(root + at, data, os.stat(root + path).st_mode & 0o777)
    return at


def found(root: str = "") -> list:
    """All that is kept."""
    folders = [os.walk(root + folder + BEFORE) for folder in FOLDERS]
    inside = [os.path.join(folder, name) for walk in folders for folder, _, names in walk for name in names]
    beside = glob.glob(root + OTHERS + BEFORE + "*")
    return sorted(path[len(root) :] for path in inside + beside)


def _read(path: str) -> bytes:
    with open(path, "rb") as source:
        return source.read()
