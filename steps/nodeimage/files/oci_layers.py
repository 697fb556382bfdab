"""Image layers as tar blobs of OCI images: each packed once, and kept by its key and the tool versions that decide its bytes."""

import contextlib
import errno
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps.clients import oci_blobs
from steps.contract.oci import Blob
from steps.errors import BadTask
from steps.nodeimage.sandbox import root_scan
from steps.nodeimage.store import store_entries

FILE, NOTE = "layer.tar.zst", "blob.json"
HIDDEN, OPAQUE = ".wh.", ".wh..wh..opq"
"""Name prefixes by which an OCI layer hides entries of lower layers."""
_OVERLAY: Final = ("user.overlay.", "trusted.overlay.")
_KEPT: Final = ("security.capability", "user.")
"""Extended attributes that the OCI archive keeps, as the squashfs does: capabilities of files, and attributes of users."""
ATTRIBUTE: Final = "SCHILY.xattr."
"""Prefix of an extended attribute in a tar header."""
_KINDS: Final = {
    stat.S_IFREG: tarfile.REGTYPE,
    stat.S_IFDIR: tarfile.DIRTYPE,
    stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFCHR: tarfile.CHRTYPE,
    stat.S_IFBLK: tarfile.BLKTYPE,
    stat.S_IFIFO: tarfile.FIFOTYPE,
}


class OciLayer(Struct, frozen=True, kw_only=True):
    """Order to pack a layer as a tar blob: the layer's folder and key, folder of kept blobs, time of files, and history text."""

    tree: str
    key: str
    kept: str
    epoch: int
    made_by: str


def find(kept: Path, key: str) -> Blob | None:
    """Return the kept blob of a layer; None if there is none or its bytes are damaged, so that it is packed anew."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        blob = msgspec.json.decode((kept / key / NOTE).read_bytes(), type=Blob)
        with (kept / key / FILE).open("rb") as file:
            digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
            return blob if (digest, file.tell()) == (blob.digest, blob.size) else None
    return None


def pack(_: Path, layer: OciLayer) -> Blob:
    """Pack a layer unless a kept blob exists, and return the blob; called in a namespace, where file owners are the image's."""
    kept = Path(layer.kept)
    with (
        store_entries.guard_writes(),
        store_entries.make_entry(kept, layer.key, good=lambda _: find(kept, layer.key) is not None) as work,
    ):
        if work is not None:
            blob = oci_blobs.pack_layer(work / FILE, layer.made_by, partial(_fill, Path(layer.tree), layer.epoch))
            (work / NOTE).write_bytes(msgspec.json.encode(blob))
    packed = find(kept, layer.key)
    if packed is None:
        raise BadTask(f"{layer.kept}/{layer.key} has no {NOTE}", hint="remove that folder: it is made anew")
    return packed


def _fill(tree: Path, epoch: int, archive: tarfile.TarFile) -> None:
    names: dict[tuple[int, int], str] = {}
    for path, facts in _walk(tree, ""):
        _add(archive, tree, path, facts, names, epoch)


def _walk(tree: Path, folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield path and status of everything in the folder, sorted, a folder before its content; of /boot only the folder itself."""
    for name in sorted(os.listdir(tree / folder)):
        path = f"{folder}/{name}" if folder else name
        facts = (tree / path).lstat()
        yield path, facts
        if stat.S_ISDIR(facts.st_mode) and path != root_scan.LEFT_OUT:
            yield from _walk(tree, path)


def _add(
    archive: tarfile.TarFile, tree: Path, path: str, facts: os.stat_result, names: dict[tuple[int, int], str], epoch: int
) -> None:
    marks = _attributes(tree / path, facts)
    if hides(facts, marks):
        folder, slash, name = path.rpartition("/")
        archive.addfile(_member(f"{folder}{slash}{HIDDEN}{name}", facts, epoch, empty=True))
        return
    kind = _KINDS.get(stat.S_IFMT(facts.st_mode))
    if kind is None:  # a socket means nothing without its program
        return
    member = _member(path, facts, epoch)
    member.type = kind
    member.pax_headers = {
        f"{ATTRIBUTE}{name}": value.decode("utf-8", "surrogateescape")
        for name, value in sorted(marks.items())
        if not name.startswith(_OVERLAY)
    }
    if kind == tarfile.SYMTYPE:
        member.linkname = os.readlink(tree / path)
    elif kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
        member.devmajor, member.devminor = os.major(facts.st_rdev), os.minor(facts.st_rdev)
    elif kind == tarfile.REGTYPE:
        _add_file(archive, tree / path, member, facts, names)
        return
    archive.addfile(member)
    if kind == tarfile.DIRTYPE and any(marks.get(f"{prefix}opaque") == b"y" for prefix in _OVERLAY):
        archive.addfile(_member(f"{path}/{OPAQUE}", facts, epoch, empty=True))


def _add_file(
    archive: tarfile.TarFile, place: Path, member: tarfile.TarInfo, facts: os.stat_result, names: dict[tuple[int, int], str]
) -> None:
    same = (facts.st_dev, facts.st_ino)
    if facts.st_nlink > 1 and same in names:
        member.type, member.linkname = tarfile.LNKTYPE, names[same]
        archive.addfile(member)
        return
    names[same] = member.name
    member.size = facts.st_size
    with place.open("rb") as file:
        archive.addfile(member, file)


def _member(path: str, facts: os.stat_result, epoch: int, *, empty: bool = False) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.mtime = min(int(facts.st_mtime), epoch)
    if not empty:
        member.mode, member.uid, member.gid = stat.S_IMODE(facts.st_mode), facts.st_uid, facts.st_gid
    return member


def hides(facts: os.stat_result, marks: dict[str, bytes]) -> bool:
    """Return True if an entry of an overlayfs layer hides the entry of that name in lower layers (a whiteout)."""
    if stat.S_ISCHR(facts.st_mode):
        return facts.st_rdev == 0
    return stat.S_ISREG(facts.st_mode) and any(f"{prefix}whiteout" in marks for prefix in _OVERLAY)


def _attributes(place: Path, facts: os.stat_result) -> dict[str, bytes]:
    if stat.S_ISLNK(facts.st_mode) or stat.S_ISCHR(facts.st_mode):
        return {}
    try:
        names = os.listxattr(place, follow_symlinks=False)
        marks = {name: os.getxattr(place, name, follow_symlinks=False) for name in names if name.startswith((*_OVERLAY, *_KEPT))}
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise
    for prefix in _OVERLAY:
        if f"{prefix}redirect" in marks or f"{prefix}metacopy" in marks:
            raise BadTask(f"{place} lies in another layer under another name", hint="build the layer anew with this version")
    return marks
