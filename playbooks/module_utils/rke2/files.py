"""Files on the host: each takes the place of another in one step, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from contextlib import contextmanager
from typing import Any, Iterator, Optional

BLOCK = 1 << 20


@contextmanager
def replacing(path: str, mode: int) -> Iterator[Any]:
    """A file to write, which takes the place of `path` in one step, or not at all. A program that runs can be replaced too."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, fresh = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".bringup-")
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
            out.flush()
            os.fsync(out.fileno())
        os.chmod(fresh, mode)
        os.replace(fresh, path)
    finally:
        if os.path.exists(fresh):
            os.unlink(fresh)


def write(path: str, data: bytes, mode: int) -> None:
    """Replace a file in one step; its folder is made if need be."""
    with replacing(path, mode) as out:
        out.write(data)


def copy(path: str, source: Any, mode: int) -> None:
    """Replace a file by what an open one holds."""
    with replacing(path, mode) as out:
        shutil.copyfileobj(source, out, BLOCK)


def touch(path: str) -> None:
    """Have a file, whatever is in it."""
    with open(path, "a"):
        pass


def read_json(path: str) -> Optional[list]:
    """What is in the file; None where it is not there, or is no JSON."""
    try:
        with open(path) as source:
            return json.load(source)
    except (OSError, ValueError):
        return None


def sha256(path: str) -> str:
    """Digest of a file."""
    with open(path, "rb") as source:
        return digest(source)


def digest(source: Any) -> str:
    """Digest of what an open file holds."""
    found = hashlib.sha256()
    for block in iter(lambda: source.read(BLOCK), b""):
        found.update(block)
    return found.hexdigest()
