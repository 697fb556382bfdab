"""Content list of a layer: its digest is equal for equal layers, wherever and whenever they were built."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import digest_bytes

OPAQUE: Final = "user.overlay.opaque"
"""Extended attribute (`y`) of a folder that hides the folder of that path in lower layers."""
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
_HASHING: Final = 4
"""Number of threads that read and hash files."""
_BATCH: Final = 64
"""Number of files that a hashing thread gets at a time, because most files are small."""


class ContentItem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a layer's content list: a file, folder, link, device or whiteout.

    `kind` is `file`, `folder`, `link`, `whiteout` (hides a lower entry) or that of a device. `link` is the target of a symbolic
    link, `same` the first path of a file with several names. `opaque`: the folder hides the one below it.
    """

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


class LayerContent(Struct, frozen=True, kw_only=True):
    """Summary of a layer: digests of its content list and of its `outline` (known without reading files), bytes and entries."""

    digest: str
    outline: str
    size: int
    files: int


def read(tree: Path, listing: Path | None = None) -> LayerContent:
    """Return the summary of a layer after reading all its files, and write its content list to `listing`.

    Needs root over its files.
    """
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
    return LayerContent(digest=f"sha256:{whole.hexdigest()}", outline=f"sha256:{outline.hexdigest()}", size=size, files=files)


def changed_paths(tree: Path, digest: str, listing: Path) -> list[str] | None:
    """Return the paths of a layer that differ from the content list with this digest; None if nothing has changed.

    An empty list means that the layer has changed and the paths cannot be named, because the stored list is damaged.
    """
    lines = [_line(item) for item in items(tree)]
    if digest_bytes(b"".join(lines)) == digest:
        return None
    before = listing.read_bytes() if listing.is_file() else b""
    if digest_bytes(before) != digest:
        return []
    different = {*lines} ^ {*before.splitlines(keepends=True)}
    return sorted({msgspec.json.decode(line, type=ContentItem).path for line in different})


def _line(item: ContentItem) -> bytes:
    return msgspec.json.encode(item, order="sorted") + b"\n"


def outline(tree: Path) -> str:
    """Return the digest of a layer's names, kinds, owners, modes and sizes; no file is read, so it takes about 0.1 s."""
    return digest_bytes(b"".join(_outlined(_plain(path, status)) for path, status in _walk(tree)))


def items(tree: Path) -> Iterator[ContentItem]:
    """Yield every entry of a layer, sorted by the bytes of its path, so that a folder comes before its content."""
    first: dict[tuple[int, int], str] = {}
    entries = list(_walk(tree))
    with ThreadPoolExecutor(_HASHING) as pool:
        batches = (entries[at : at + _BATCH] for at in range(0, len(entries), _BATCH))
        sums = chain.from_iterable(pool.map(lambda batch: [_sum(tree / path, status) for path, status in batch], batches))
        for (path, status), sha256 in zip(entries, sums, strict=True):
            has_names = status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode) and not is_whiteout(status)
            same = first.setdefault((status.st_dev, status.st_ino), path) if has_names else path
            yield _item(tree, path, status, sha256, "" if same == path else same)


def _sum(path: Path, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _walk(tree: Path) -> Iterator[tuple[str, os.stat_result]]:
    entries = [(".", tree.lstat())]
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(tree / folder) as scan:
            for entry in scan:
                path = folder + entry.name
                status = entry.stat(follow_symlinks=False)
                entries.append((path, status))
                if stat.S_ISDIR(status.st_mode):
                    folders.append(f"{path}/")
    return iter(sorted(entries, key=lambda pair: os.fsencode(pair[0])))


def is_whiteout(status: os.stat_result) -> bool:
    """Return True if overlayfs takes this entry for a whiteout, which hides the entry of that name in lower layers."""
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def _plain(path: str, status: os.stat_result) -> ContentItem:
    """Return those fields of an entry that are known without opening a file."""
    path = os.fsencode(path).decode(errors="backslashreplace")
    if is_whiteout(status):
        return ContentItem(path=path, kind="whiteout")
    kind = _KINDS[stat.S_IFMT(status.st_mode)]
    device = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}" if kind in ("character", "block") else ""
    size = status.st_size if kind == "file" else 0
    return ContentItem(
        path=path, kind=kind, mode=stat.S_IMODE(status.st_mode), uid=status.st_uid, gid=status.st_gid, size=size, device=device
    )


def _item(tree: Path, path: str, status: os.stat_result, sha256: str, same: str) -> ContentItem:
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
    """Return the extended attributes of a file or folder that a layer keeps: capabilities, access lists, and users' (`user.`).

    Those of overlayfs are among them.
    """
    names = os.listxattr(path, follow_symlinks=False)
    kept = [name for name in names if name == "security.capability" or name.startswith(("system.posix_acl_", "user."))]
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in kept}


def _outlined(item: ContentItem) -> bytes:
    return f"{item.path}\0{item.kind}\0{item.mode}\0{item.uid}\0{item.gid}\0{item.size}\0{item.device}\n".encode()
