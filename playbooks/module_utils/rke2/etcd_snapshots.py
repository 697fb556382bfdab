"""Named snapshots of etcd, each made once. A snapshot counts only if the command that made it ended successfully."""

from __future__ import annotations

import glob
import json
import os
from typing import Callable

from ansible.module_utils import atomic_files
from ansible.module_utils.rke2 import release_backup

FOLDER = "/var/lib/rancher/rke2/server/db/snapshots"
PART_SUFFIX = ".part"
"""Suffix of a snapshot file that etcd is still writing, or was writing when it was killed."""
_SAVED = "saved-"


class SnapshotFailed(Exception):
    """Error: no snapshot was made; the text is the command's message."""


def complete_files(name: str, folder: str = FOLDER, store: str = release_backup.STORE) -> list:
    """Return the file names of the complete snapshot of this name; empty if it was not made, was interrupted, or lost a file."""
    names = atomic_files.read_json(_mark(name, store)) or []
    return names if names and all(os.path.exists(os.path.join(folder, file)) for file in names) else []


def save(name: str, run: Callable[[], tuple], folder: str = FOLDER, store: str = release_backup.STORE) -> list:
    """Make a snapshot by `run`, which returns (exit code, message); record and return its file names.

    Partial files of this name are removed first. Raises SnapshotFailed if `run` fails or leaves no file.
    """
    for left in _files_named(name, folder, half=True):
        os.unlink(os.path.join(folder, left))
    # RKE2 may overwrite a file of the same second: compare stamps, not names
    before = _file_stamps(name, folder)
    code, message = run()
    fresh = [file for file, stamp in _file_stamps(name, folder).items() if before.get(file) != stamp]
    if code != 0 or not fresh:
        silent = "rke2 etcd-snapshot save ended with %d and left no snapshot in %s" % (code, folder)
        raise SnapshotFailed(message.strip()[-400:] or silent)
    atomic_files.write(_mark(name, store), json.dumps(fresh).encode(), 0o600)
    return fresh


def forget(stem: str, store: str = release_backup.STORE) -> None:
    """Remove the records of snapshots whose names begin with `stem`, so that they are made again. Snapshot files stay."""
    for name in recorded_names(stem, store):
        os.unlink(_mark(name, store))


def recorded_names(stem: str, store: str = release_backup.STORE) -> list:
    """Return the recorded snapshot names that begin with `stem`, whether or not their files still exist."""
    marks = glob.glob(glob.escape(_mark(stem, store)) + "*")
    return [os.path.basename(mark)[len(_SAVED) :] for mark in marks]


def _mark(name: str, store: str) -> str:
    return os.path.join(store, _SAVED + name)


def _files_named(name: str, folder: str, half: bool = False) -> list:
    """Return the files of a snapshot name, to which RKE2 adds node and time; with `half` the partial ones, else the whole ones."""
    every = glob.glob(os.path.join(glob.escape(folder), glob.escape(name) + "*"))
    return sorted(os.path.basename(path) for path in every if path.endswith(PART_SUFFIX) is half)


def _file_stamps(name: str, folder: str) -> dict:
    """Return file → (time, size, inode) for a snapshot name; the stamp changes when a file is written again."""
    stats = {file: os.stat(os.path.join(folder, file)) for file in _files_named(name, folder)}
    return {file: (stat.st_mtime_ns, stat.st_size, stat.st_ino) for file, stat in stats.items()}
