"""Files of RKE2 and of its releases: written whole, read, and known by their digest."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import Any, Optional

from ansible.module_utils.replacing import replacing

BLOCK = 1 << 20


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
