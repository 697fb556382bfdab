"""Atomic replacement of files, so that a reader sees either the old or the new content, and SHA-256 digests of files."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from typing import Any, Iterator

from ansible.module_utils import selinux_labels

BLOCK = 1 << 20
FRESH = ".bringup-"
"""Prefix of files that are being written. No other file may have it, because `replacement` deletes left-over ones."""


@contextmanager
def replacement(path: str, mode: int) -> Iterator[Any]:
    """Yield a binary file that replaces `path` when the block ends without an error, and is removed otherwise.

    Missing folders are created. A running program can be replaced too. Left-over files of an interrupted run in the folder are
    removed first, which is safe because only one module at a time writes to a host (`host_lock`).
    """
    folder = os.path.dirname(path)
    selinux_labels.make_folders(folder)
    for left in glob.glob(os.path.join(glob.escape(folder), FRESH + "*")):
        os.unlink(left)
    handle, fresh = tempfile.mkstemp(dir=folder, prefix=FRESH)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.chmod(fresh, mode)
        selinux_labels.set_label(fresh, selinux_labels.file_label(path))
        os.replace(fresh, path)
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)


def write(path: str, data: bytes, mode: int) -> None:
    """Replace the file at `path` atomically by `data`, with this mode; create its folder if it is missing."""
    with replacement(path, mode) as out:
        out.write(data)


def copy(path: str, source: Any, mode: int) -> None:
    """Replace the file at `path` atomically by the content of the open file `source`, with this mode."""
    with replacement(path, mode) as out:
        shutil.copyfileobj(source, out, BLOCK)


def touch(path: str) -> None:
    """Create an empty file if it is missing; an existing file keeps its content."""
    with open(path, "a"):
        pass


def read(path: str) -> str:
    """Return a file's text; an empty string if it cannot be read."""
    try:
        with open(path, errors="replace") as source:
            return source.read()
    except OSError:
        return ""


def read_json(path: str) -> Any:
    """Return the parsed JSON of a file, or None if the file is missing or is not JSON."""
    try:
        with open(path) as source:
            return json.load(source)
    except (OSError, ValueError):
        return None


def sha256(path: str) -> str:
    """Return the SHA-256 of a file in hex."""
    with open(path, "rb") as source:
        return digest(source)


def digest(source: Any) -> str:
    """Return the SHA-256 of an open file's remaining content in hex."""
    checksum = hashlib.sha256()
    for block in iter(lambda: source.read(BLOCK), b""):
        checksum.update(block)
    return checksum.hexdigest()
