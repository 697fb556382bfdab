"""Mounts as /proc/self/mounts lists them, where blanks and backslashes in paths are written in octal."""

from __future__ import annotations

import os
import re

OCTAL = re.compile(r"\\([0-7]{3})")


def decode_path(text: str) -> str:
    """Return a path of the mount table with its octal escapes decoded."""
    return OCTAL.sub(lambda found: chr(int(found.group(1), 8)), text)


def mount_of(path: str, mounts: str) -> tuple:
    """Return mount point, type and read-only flag of the file system of a path. `mounts` is the text of /proc/self/mounts."""
    rows = [line.split() for line in mounts.splitlines()]
    real = os.path.realpath(path)
    shown = [(decode_path(row[1]), row[2], "ro" in row[3].split(",")) for row in rows if len(row) > 3]
    held = [one for one in shown if (real + "/").startswith(_folder(one[0]))]
    return max(reversed(held), key=lambda found: len(found[0])) if held else ("/", "", False)


def _folder(path: str) -> str:
    return path.rstrip("/") + "/"
