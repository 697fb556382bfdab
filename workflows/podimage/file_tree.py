"""Files of an image as data: a tree of entries by path, and the tar archive that depends on that content alone."""

import io
import posixpath
import tarfile
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import IO

from msgspec import Struct

from workflows.podimage.errors import BuildError

FOLDER_MODE, FILE_MODE, PROGRAM_MODE, LINK_MODE = 0o755, 0o644, 0o755, 0o777
PERMISSIONS = 0o1777
"""Mode bits that are kept. Set-user-id and set-group-id are not, since no step becomes another user."""


class EntryKind(StrEnum):
    """Kind of an entry of a tree."""

    FILE = "file"
    LINK = "link"
    FOLDER = "folder"


class ImageEntry(Struct, frozen=True):
    """A file, symbolic link or folder of an image. `owner` is both its uid and its gid."""

    kind: EntryKind
    mode: int
    data: bytes = b""
    target: str = ""
    owner: int = 0


Tree = dict[str, ImageEntry]
"""Entries by their path: relative, normalized, without a leading or trailing slash."""


def file(data: bytes, mode: int = FILE_MODE) -> ImageEntry:
    """Return the entry of a file that root owns."""
    return ImageEntry(EntryKind.FILE, mode & PERMISSIONS, data)


def link(target: str) -> ImageEntry:
    """Return the entry of a symbolic link."""
    return ImageEntry(EntryKind.LINK, LINK_MODE, target=target)


def folder(mode: int = FOLDER_MODE, owner: int = 0) -> ImageEntry:
    """Return the entry of a folder."""
    return ImageEntry(EntryKind.FOLDER, mode & PERMISSIONS, owner=owner)


def normal_path(path: str) -> str:
    """Return a path as trees have it: relative and normalized. Raises BuildError if it leads out of the image."""
    cleaned = posixpath.normpath("/" + path).lstrip("/")
    if ".." in path.split("/") or "\0" in path:
        raise BuildError(f"path {path!r} leads out of the image")
    return cleaned


def of_folder(root: Path) -> Tree:
    """Return what lies below a folder as a tree with plain modes: only the executable bit counts, not the user's umask."""
    tree: Tree = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            tree[name] = link(str(path.readlink()))
        elif path.is_dir():
            tree[name] = folder()
        else:
            tree[name] = file(path.read_bytes(), PROGRAM_MODE if path.stat().st_mode & 0o100 else FILE_MODE)
    return tree


def with_parents(tree: Mapping[str, ImageEntry]) -> Tree:
    """Return the tree sorted by path, with a folder entry for every parent that has none."""
    whole = dict(tree)
    for path in tree:
        while path := posixpath.dirname(path):
            whole.setdefault(path, folder())
    return dict(sorted(whole.items()))


def write_tar(tree: Mapping[str, ImageEntry], out: IO[bytes], epoch: int) -> None:
    """Write a tree as a tar archive: sorted by path, numeric owners, one time (`epoch`) for all, no names of users."""
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in with_parents(tree).items():
            archive.addfile(_member(path, entry, epoch), io.BytesIO(entry.data) if entry.kind is EntryKind.FILE else None)


def _member(path: str, entry: ImageEntry, epoch: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.type = {EntryKind.FILE: tarfile.REGTYPE, EntryKind.LINK: tarfile.SYMTYPE, EntryKind.FOLDER: tarfile.DIRTYPE}[entry.kind]
    member.mode, member.mtime, member.linkname = entry.mode, epoch, entry.target
    member.uid = member.gid = entry.owner
    member.size = len(entry.data)
    return member


def unpack(tree: Mapping[str, ImageEntry], root: Path) -> None:
    """Write a tree below an empty folder, with its modes; the current user owns everything."""
    root.mkdir(parents=True, exist_ok=True)
    for path, entry in with_parents(tree).items():
        place = root / path
        if entry.kind is EntryKind.FOLDER:
            place.mkdir(exist_ok=True)
        elif entry.kind is EntryKind.LINK:
            place.symlink_to(entry.target)
        else:
            place.write_bytes(entry.data)
            place.chmod(entry.mode)
