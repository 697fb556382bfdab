"""A file that takes the place of another in one step, or not at all: who reads it sees the old one or the new one."""

from __future__ import annotations

import glob
import os
import tempfile
from contextlib import contextmanager
from typing import Any, Iterator

from ansible.module_utils import labels

FRESH = ".bringup-"
"""How the name of a file begins that is not at its place yet; nothing else that is kept may be called so."""


@contextmanager
def replacing(path: str, mode: int) -> Iterator[Any]:
    """A file to write (bytes), which takes the place of `path`; its folder is made if need be. A program that runs can be replaced
    too. What a run that was cut off left beside it goes: a host has one writer (`alone`)."""
    folder = os.path.dirname(path)
    labels.folders(folder)
    for left in glob.glob(os.path.join(glob.escape(folder), FRESH + "*")):
        os.unlink(left)
    handle, fresh = tempfile.mkstemp(dir=folder, prefix=FRESH)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.chmod(fresh, mode)
        labels.give(fresh, labels.of_file(path))
        os.replace(fresh, path)
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)
