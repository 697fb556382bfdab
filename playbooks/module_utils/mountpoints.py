"""A mount point as /proc/self/mounts has it: blanks and backslashes are octal there, all else is as it is."""

from __future__ import annotations

import re

OCTAL = re.compile(r"\\([0-7]{3})")


def plain(text: str) -> str:
    """The path itself."""
    return OCTAL.sub(lambda found: chr(int(found.group(1), 8)), text)
