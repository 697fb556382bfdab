"""Folders of our files that others than root must read: systemd-networkd and systemd-resolved read theirs as users of their own.

What was made under the umask of a hardened machine (027, 077) is closed to them, and their files count for nothing. A folder in
which something else lies too may be closed on purpose, and stays as it is.
"""

from __future__ import annotations

import os

OURS = "# Made by bringup."
READABLE, SEARCHABLE = 0o004, 0o005


def shut(path: str, mode: int = 0o644) -> list:
    """Folders above a file for all to read that are closed to others, and hold nothing but files of ours."""
    found, folder = [], os.path.dirname(path)
    while mode & READABLE and folder != os.path.dirname(folder) and _is_ours(folder):
        if os.stat(folder).st_mode & SEARCHABLE != SEARCHABLE:
            found.append(folder)
        folder = os.path.dirname(folder)
    return found


def open_up(path: str, mode: int) -> None:
    """Let others into the folders of such a file."""
    for folder in shut(path, mode):
        os.chmod(folder, 0o755)


def _is_ours(folder: str) -> bool:
    """Whether a folder holds files of ours, or folders of such files, and nothing else."""
    try:
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda one: one.is_dir(follow_symlinks=False))  # files first: one of others ends it
        return bool(inside) and all(_is_ours(one.path) if one.is_dir(follow_symlinks=False) else _is_made(one) for one in inside)
    except OSError:
        return False  # not there yet, or not for us to read


def _is_made(entry: os.DirEntry) -> bool:
    if not entry.is_file(follow_symlinks=False):
        return False
    with open(entry.path, errors="replace") as source:
        return source.read(len(OURS)) == OURS
