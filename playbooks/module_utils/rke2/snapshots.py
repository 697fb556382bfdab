"""Snapshots of etcd that are made once under a name: one counts only if the command that made it has ended well."""

from __future__ import annotations

import glob
import json
import os
from typing import Callable

from ansible.module_utils.rke2 import files, kept

FOLDER = "/var/lib/rancher/rke2/server/db/snapshots"
HALF = ".part"
"""Ending of a snapshot that etcd is still writing, or was when it was killed."""


_SAVED = "saved-"


class NotSaved(Exception):
    """There is no snapshot; the text is what the command said."""


def saved(name: str, folder: str = FOLDER, store: str = kept.STORE) -> list:
    """The files of a whole snapshot of this name; none where none was made, it was cut off, or it is gone."""
    names = files.read_json(_mark(name, store)) or []
    return names if names and all(os.path.exists(os.path.join(folder, one)) for one in names) else []


def save(name: str, run: Callable[[], tuple], folder: str = FOLDER, store: str = kept.STORE) -> list:
    """Have `run` (exit code and what was said) make one; returns its files. Halves of this name go. Raises NotSaved."""
    for left in _found(name, folder, half=True):
        os.unlink(os.path.join(folder, left))
    before = _seen(name, folder)
    code, said = run()
    fresh = [one for one, stamp in _seen(name, folder).items() if before.get(one) != stamp]
    if code != 0 or not fresh:
        raise NotSaved(said.strip()[-400:] or "rke2 etcd-snapshot save ended with %d and left no snapshot in %s" % (code, folder))
    files.write(_mark(name, store), json.dumps(fresh).encode(), 0o600)
    return fresh


def forget(stem: str, store: str = kept.STORE) -> None:
    """Snapshots whose names begin so are no longer what `saved` speaks of: the next one is made anew. Their files stay."""
    for name in marked(stem, store):
        os.unlink(_mark(name, store))


def marked(stem: str, store: str = kept.STORE) -> list:
    """Names that begin so of snapshots that were made, be their files still there or not."""
    marks = glob.glob(glob.escape(_mark(stem, store)) + "*")
    return [os.path.basename(mark)[len(_SAVED) :] for mark in marks]


def _mark(name: str, store: str) -> str:
    return os.path.join(store, _SAVED + name)


def _found(name: str, folder: str, half: bool = False) -> list:
    """Names of the files of a name; RKE2 adds node and time to it."""
    every = glob.glob(os.path.join(glob.escape(folder), glob.escape(name) + "*"))
    return sorted(os.path.basename(path) for path in every if path.endswith(HALF) is half)


def _seen(name: str, folder: str) -> dict:
    """The same, with what changes when a file is written again."""
    seen = {one: os.stat(os.path.join(folder, one)) for one in _found(name, folder)}
    return {one: (stat.st_mtime_ns, stat.st_size, stat.st_ino) for one, stat in seen.items()}
