"""What a layer holds, as a list: its digest says whether two layers are alike, wherever and whenever they were built."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

OPAQUE: Final = "user.overlay.opaque"
"""Marks a folder that hides the one below it."""
_OVERLAY: Final = "user.overlay."
_KINDS: Final = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFCHR: "character",
    stat.S_IFBLK: "block",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
}
_CHUNK: Final = 1 << 20
_HASHING: Final = 4
"""Threads that read and hash files."""
_BATCH: Final = 64
"""Files that one of them is handed at a time: most are small."""


class Item(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a layer. `kind` is `file`, `folder`, `link`, `whiteout` (hides what lies below), or a device's; `link` is a
    symlink's target, `same` the first path of a file with several names; `opaque`: the folder hides the one below it."""

    path: str
    kind: str
    mode: int = 0
    uid: int = 0
    gid: int = 0
    size: int = 0
    sha256: str = ""
    link: str = ""
    same: str = ""
    device: str = ""
    opaque: bool = False
    attributes: dict[str, bytes] = {}


class Content(Struct, frozen=True, kw_only=True):
    """A layer's content: digest of the list, digest of its outline (all but what needs files to be read), bytes and entries."""

    digest: str
    outline: str
    size: int
    files: int


def read(tree: Path, listing: Path | None = None) -> Content:
    """Read a whole layer; its list gets into `listing`, so that what changes can be named. Needs to be root over its files."""
    whole, outline = hashlib.sha256(), hashlib.sha256()
    size = files = 0
    with listing.open("wb") if listing else contextlib.nullcontext() as kept:
        for item in items(tree):
            line = _line(item)
            whole.update(line)
            outline.update(_outlined(item))
            size += item.size if not item.same else 0
            files += item.path != "."
            if kept:
                kept.write(line)
    return Content(digest=f"sha256:{whole.hexdigest()}", outline=f"sha256:{outline.hexdigest()}", size=size, files=files)


def changed(tree: Path, digest: str, listing: Path) -> list[str] | None:
    """Paths of a layer that are not what they were when its content had this digest; none known where its list is not whole. None:
    all is as it was."""
    now = [_line(item) for item in items(tree)]
    if _digest(now) == digest:
        return None
    before = listing.read_bytes().splitlines(keepends=True) if listing.is_file() else []
    if _digest(before) != digest:
        return []
    return sorted({msgspec.json.decode(line, type=Item).path for line in {*now} ^ {*before}})


def _line(item: Item) -> bytes:
    return msgspec.json.encode(item, order="sorted") + b"\n"


def _digest(lines: Iterable[bytes]) -> str:
    found = hashlib.sha256()
    for line in lines:
        found.update(line)
    return f"sha256:{found.hexdigest()}"


def outline(tree: Path) -> str:
    """Digest of names, kinds, rights and sizes alone: reads no file, a tenth of a second for a large layer."""
    found = hashlib.sha256()
    for path, status in _walk(tree):
        found.update(_outlined(_plain(path, status)))
    return f"sha256:{found.hexdigest()}"


def items(tree: Path) -> Iterator[Item]:
    """Every entry, in the order of its path's bytes; a folder before what is in it."""
    first: dict[tuple[int, int], str] = {}
    entries = list(_walk(tree))
    with ThreadPoolExecutor(_HASHING) as pool:
        batches = (entries[at : at + _BATCH] for at in range(0, len(entries), _BATCH))
        sums = chain.from_iterable(pool.map(lambda batch: [_sum(tree, *entry) for entry in batch], batches))
        for (path, status), sha256 in zip(entries, sums, strict=True):
            same = first.setdefault((status.st_dev, status.st_ino), path) if _several(status) else path
            yield _item(tree, path, status, sha256, "" if same == path else same)


def _sum(tree: Path, path: str, status: os.stat_result) -> str:
    return _hashed(tree / path) if stat.S_ISREG(status.st_mode) else ""


def _walk(tree: Path) -> Iterator[tuple[str, os.stat_result]]:
    found = [(".", tree.lstat())]
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(tree / folder) as entries:
            for entry in entries:
                path = folder + entry.name
                status = entry.stat(follow_symlinks=False)
                found.append((path, status))
                if stat.S_ISDIR(status.st_mode):
                    folders.append(f"{path}/")
    return iter(sorted(found, key=lambda pair: os.fsencode(pair[0])))


def _several(status: os.stat_result) -> bool:
    return status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode) and not is_whiteout(status)


def is_whiteout(status: os.stat_result) -> bool:
    """Whether this hides an entry of the layers below: how overlayfs writes that down."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _plain(path: str, status: os.stat_result) -> Item:
    """What is known without opening anything."""
    path = os.fsencode(path).decode(errors="backslashreplace")
    if is_whiteout(status):
        return Item(path=path, kind="whiteout")
    kind = _KINDS[stat.S_IFMT(status.st_mode)]
    device = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" if kind in ("character", "block") else ""
    size = status.st_size if kind == "file" else 0
    return Item(
        path=path, kind=kind, mode=stat.S_IMODE(status.st_mode), uid=status.st_uid, gid=status.st_gid, size=size, device=device
    )


def _item(tree: Path, path: str, status: os.stat_result, sha256: str, same: str) -> Item:
    plain = _plain(path, status)
    if plain.kind == "whiteout":
        return plain
    full = tree / path
    marks = attributes(full) if plain.kind in ("file", "folder") else {}
    return msgspec.structs.replace(
        plain,
        sha256=sha256,
        same=os.fsencode(same).decode(errors="backslashreplace"),
        link=os.fsencode(os.readlink(full)).decode(errors="backslashreplace") if plain.kind == "link" else "",
        opaque=marks.get(OPAQUE) == b"y",
        attributes={name: value for name, value in sorted(marks.items()) if not name.startswith(_OVERLAY)},
    )


def attributes(path: Path) -> dict[str, bytes]:
    """Extended attributes that belong to the image: capabilities, access lists, users' own, and what overlayfs keeps."""
    names = os.listxattr(path, follow_symlinks=False)
    kept = [name for name in names if name == "security.capability" or name.startswith(("system.posix_acl_", "user."))]
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in kept}


def _hashed(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def _outlined(item: Item) -> bytes:
    return f"{item.path}\0{item.kind}\0{item.mode}\0{item.uid}\0{item.gid}\0{item.size}\0{item.device}\n".encode()
