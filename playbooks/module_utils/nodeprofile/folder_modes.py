"""Modes of the folders that hold our files, which systemd-networkd and systemd-resolved read as users of their own.

Folders created under a hardened umask (027, 077) are closed to those users, and our files in them have no effect. A folder that
also holds other files may be closed on purpose and stays as it is.
"""

from __future__ import annotations

import os

OURS = "# Made by bringup."
READABLE, SEARCHABLE = 0o004, 0o005


def closed_folders(path: str, mode: int = 0o644) -> list:
    """Return the parent folders of a world-readable file that are closed to other users and hold only files by bringup."""
    folders, folder = [], os.path.dirname(path)
    while mode & READABLE and folder != os.path.dirname(folder) and _is_ours(folder):
        if os.stat(folder).st_mode & SEARCHABLE != SEARCHABLE:
            folders.append(folder)
        folder = os.path.dirname(folder)
    return folders


def open_folders(path: str, mode: int) -> None:
    """Set mode 0755 on the parent folders of a file that `closed_folders` returns."""
    for folder in closed_folders(path, mode):
        os.chmod(folder, 0o755)


def _is_ours(folder: str) -> bool:
    """Return True if a folder holds only files that bringup wrote, or folders of such files; False if it is empty or unreadable."""
    try:
        with os.scandir(folder) as entries:
            inside = sorted(entries, key=lambda entry: entry.is_dir(follow_symlinks=False))  # files first: one of others ends it
        return bool(inside) and all(map(_is_made, inside))
    except OSError:
        return False  # not there yet, or not for us to read


def _is_made(entry: os.DirEntry) -> bool:
    if entry.is_dir(follow_symlinks=False):
        return _is_ours(entry.path)
    if not entry.is_file(follow_symlinks=False):
        return False
    with open(entry.path, errors="replace") as source:
        return source.read(len(OURS)) == OURS
