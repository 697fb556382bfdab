"""Reader of the mount table /proc/self/mounts, where blanks and backslashes in paths are written in octal."""

from __future__ import annotations

import os
import re

OCTAL = re.compile(r"\\([0-7]{3})")


def decode_path(text: str) -> str:
    """Return a path of the mount table with its octal escapes decoded."""
    return OCTAL.sub(lambda match: chr(int(match.group(1), 8)), text)


def mount_of(path: str, mounts: str) -> tuple:
    """Return mount point, type and read-only flag of the file system that holds a path; `mounts` is the mount table's text."""
    mount_point, kind, words = _holder(path, mounts)
    return mount_point, kind, "ro" in words


def options_of(path: str, mounts: str) -> tuple:
    """Return mount point and list of mount options of the file system that holds a path; `mounts` is the mount table's text."""
    mount_point, _, words = _holder(path, mounts)
    return mount_point, words


def _holder(path: str, mounts: str) -> tuple:
    rows = [line.split() for line in mounts.splitlines()]
    real = os.path.realpath(path)
    shown = [(decode_path(row[1]), row[2], row[3].split(",")) for row in rows if len(row) > 3]
    above = [mount for mount in shown if (real + "/").startswith(mount[0].rstrip("/") + "/")]
    return max(reversed(above), key=lambda mount: len(mount[0])) if above else ("/", "", [])
