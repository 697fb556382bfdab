"""Backups of the site's files that bringup's files have replaced; they are reported for as long as they exist.

A reset empties RKE2's folders, and the kubelet reads all files in some of them. Backups therefore lie beside these folders.
"""

from __future__ import annotations

import glob
import itertools
import os

from ansible.module_utils import atomic_files, selinux_labels

BACKUP_SUFFIX = ".before-bringup"
FOLDERS = ("/etc/rancher/rke2", "/var/lib/rancher/rke2")
OTHERS = "/etc/default/rke2-*"
"""Pattern of files outside FOLDERS that both bringup and the site may write."""


def backup_path(path: str) -> str:
    """Return the path of a file's first backup; further ones end in -2, -3 and so on."""
    folder = next((folder for folder in FOLDERS if path.startswith(folder + "/")), path)
    return folder + BACKUP_SUFFIX + path[len(folder) :]


def back_up(path: str, root: str = "") -> str:
    """Copy a file to a backup, unless a backup with the same content exists, and return the backup's path."""
    data = _read(root + path)
    names = (backup_path(path) + ("-%d" % number if number > 1 else "") for number in itertools.count(1))
    at = next(name for name in names if not os.path.exists(root + name) or _read(root + name) == data)
    if not os.path.exists(root + at):
        selinux_labels.make_folders(os.path.dirname(root + at), 0o700)  # tokens and passwords of the site may be in it
        atomic_files.write(root + at, data, os.stat(root + path).st_mode & 0o777)
    return at


def backups(root: str = "") -> list:
    """Return the sorted paths of all backups on this host."""
    folders = [os.walk(root + folder + BACKUP_SUFFIX) for folder in FOLDERS]
    inside = [os.path.join(folder, name) for walk in folders for folder, _, names in walk for name in names]
    beside = glob.glob(root + OTHERS + BACKUP_SUFFIX + "*")
    return sorted(path[len(root) :] for path in inside + beside)


def _read(path: str) -> bytes:
    with open(path, "rb") as source:
        return source.read()
