"""Reads a folder as a listing (`steps.contract.image.rooted`): every path once, with the texts that checks ask for."""

import os
import stat
from pathlib import Path
from typing import Final

from steps.contract.image import soundness
from steps.contract.image.rooted import FOLDER, LINK, OTHER, REGULAR, Entry, Root

_KINDS: Final = {stat.S_IFREG: REGULAR, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK}
LEFT_OUT: Final = "boot"
"""What lies in it is no part of an image's root: the kernel and the initrd are files beside it."""


def read(root: Path) -> Root:
    """The listing of a root, /boot as an empty folder, and the texts of `soundness`."""
    entries: dict[str, Entry] = {}
    seen: set[tuple[int, int]] = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as found:
            for one in found:
                path = f"{folder}/{one.name}" if folder else one.name
                entries[path] = _entry(one, seen)
                if entries[path].kind == FOLDER and path != LEFT_OUT:
                    folders.append(path)
    return Root(entries, {path: _text(root / path) for path in _wanted(entries)})


def _entry(one: "os.DirEntry[str]", seen: set[tuple[int, int]]) -> Entry:
    facts = one.stat(follow_symlinks=False)
    kind = _KINDS.get(stat.S_IFMT(facts.st_mode), OTHER)
    size = facts.st_size if kind == REGULAR else 0
    if facts.st_nlink > 1 and kind == REGULAR:
        size = 0 if (facts.st_dev, facts.st_ino) in seen else size
        seen.add((facts.st_dev, facts.st_ino))
    link = os.readlink(one.path) if kind == LINK else ""
    return Entry(kind, stat.S_IMODE(facts.st_mode), size, link, facts.st_uid, facts.st_gid)


def _wanted(entries: dict[str, Entry]) -> list[str]:
    kernels = [path for path in entries if path.startswith(f"{soundness.MODULES}/") and path.count("/") == 3]
    wanted = [f"{kernel}/{name}" for kernel in kernels for name in soundness.MODULE_LISTS]
    return [path for path in (*soundness.TEXTS, *wanted) if path in entries and entries[path].kind == REGULAR]


def _text(path: Path) -> str:
    return path.read_text(errors="replace")
