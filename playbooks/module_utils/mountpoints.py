"""Mounts as /proc/self/mounts has them: blanks and backslashes are octal there, all else is as it is."""

from __future__ import annotations

import os
import re

OCTAL = re.compile(r"\\([0-7]{3})")


def plain(text: str) -> str:
    """The path itself."""
    return OCTAL.sub(lambda found: chr(int(found.group(1), 8)), text)


def holder(path: str, mounts: str) -> tuple:
    """Where the file system that holds a path is mounted, its type, and whether it is read-only; `mounts` is the file's text."""
    rows = [line.split() for line in mounts.splitlines()]
    real = os.path.realpath(path)
    shown = [(plain(row[1]), row[2], "ro" in row[3].split(",")) for row in rows if len(row) > 3]
    held = [one for one in shown if (real + "/").startswith(_folder(one[0]))]
    return max(reversed(held), key=lambda found: len(found[0])) if held else ("/", "", False)


def _folder(path: str) -> str:
    return path.rstrip("/") + "/"
