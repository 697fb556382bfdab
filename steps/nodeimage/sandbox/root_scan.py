"""Reader of a root file system's folder into a listing (`steps.nodeimage.contract.root_listing`), and safe paths within a root."""

import os
import stat
from pathlib import Path
from typing import Final

from steps.errors import BadTask
from steps.nodeimage.contract import root_checks
from steps.nodeimage.contract.root_listing import FOLDER, LINK, OTHER, REGULAR, RootEntry, RootListing

_KINDS: Final = {stat.S_IFREG: REGULAR, stat.S_IFDIR: FOLDER, stat.S_IFLNK: LINK}
LEFT_OUT: Final = "boot"
"""Folder whose content is no part of an image's squashfs, because kernel and initrd are files beside it."""


def read(root: Path) -> RootListing:
    """Return the listing of a root, with /boot as an empty folder and the texts that `root_checks` read."""
    entries: dict[str, RootEntry] = {}
    seen: set[tuple[int, int]] = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as scan:
            for entry in scan:
                path = f"{folder}/{entry.name}" if folder else entry.name
                entries[path] = _entry(entry, seen)
                if entries[path].kind == FOLDER and path != LEFT_OUT:
                    folders.append(path)
    return RootListing(entries, {path: (root / path).read_text(errors="replace") for path in _wanted(entries)})


def _entry(entry: "os.DirEntry[str]", seen: set[tuple[int, int]]) -> RootEntry:
    facts = entry.stat(follow_symlinks=False)
    kind = _KINDS.get(stat.S_IFMT(facts.st_mode), OTHER)
    size = facts.st_size if kind == REGULAR else 0
    if facts.st_nlink > 1 and kind == REGULAR:
        size = 0 if (facts.st_dev, facts.st_ino) in seen else size
        seen.add((facts.st_dev, facts.st_ino))
    link = os.readlink(entry.path) if kind == LINK else ""
    return RootEntry(kind, stat.S_IMODE(facts.st_mode), size, link, facts.st_uid, facts.st_gid)


def _wanted(entries: dict[str, RootEntry]) -> list[str]:
    kernels = [path for path in entries if path.startswith(f"{root_checks.MODULES}/") and path.count("/") == 3]
    lists = [f"{kernel}/{name}" for kernel in kernels for name in root_checks.MODULE_LISTS]
    return [path for path in (*root_checks.TEXTS, *lists) if path in entries and entries[path].kind == REGULAR]


def path_in_root(root: Path, path: str) -> Path:
    """Return a path below the root with all links resolved; the root must not change meanwhile.

    Raises BadTask if its links lead out of the root, as links that begin with / do, which this machine takes for its own.
    """
    try:
        real = (root / path).resolve()
    except RuntimeError as error:
        raise BadTask(f"the root's /{path} is a link that leads in a circle", hint="see which layer makes it") from error
    if not real.is_relative_to(root.resolve()):
        hint = "have the layer make it a relative one, or a file"
        raise BadTask(f"the root's /{path} is a link that leads out of the root", hint=hint)
    return real
