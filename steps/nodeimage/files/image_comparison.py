"""Comparison of two images: finds them, reads the parts that differ, and hands both to `contract.image_difference`."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from steps.contract.release_layout import CURRENT, VERSIONS, number_of
from steps.errors import BadTask
from steps.nodeimage.contract import image_difference, image_manifest
from steps.nodeimage.contract.image_difference import FileOf, ImageContent, ImageDifference
from steps.nodeimage.contract.image_manifest import INITRD, MANIFEST, OCI, PARTS, ROOT, Manifest, ManifestError
from steps.nodeimage.files import initrd_archive, oci_attributes, readback, squashfs_listing

_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_SHORTEST: Final = 4
"""Fewest digits of a key that are looked up."""


def find(named: str, images: Path, tree: Path | None) -> Path:
    """Return the folder of an image: a folder, a version (`NAME`, `NAME/VERSION`, `NAME/NUMBER`) of a published tree, or the first
    digits of a key.

    Raises BadTask with the places that were searched.
    """
    places = [Path(named)]
    if tree is not None:
        name, _, version = named.partition("/")
        below = tree / name / VERSIONS
        places += [below / version, *_numbered(below, version)] if version else [tree / name / CURRENT]
    for place in places:
        if (place / MANIFEST).is_file():
            return place
    plain = named.replace("-", "").isalnum() and len(named) >= _SHORTEST
    found = sorted(images.glob(f"assembled/{named}*/{MANIFEST}")) if plain else []
    if len(found) > 1:
        raise BadTask(f"{len(found)} images of {images} have a key that begins with {named}", hint="give more digits of it")
    if not found:
        looked = [f"no folder {named} with {MANIFEST}", f"no key in {images} that begins so"]
        looked += [f"no version of {tree}"] if tree is not None else []
        raise BadTask(
            f"no image {named}: {', '.join(looked)}", hint="`bringup image build` tells keys and versions as it makes them"
        )
    return found[0].parent


def _numbered(versions: Path, number: str) -> list[Path]:
    """Return the version with that number, as `rollback` accepts it too."""
    return [path for path in sorted(versions.glob("*")) if number.isdigit() and number_of(path.name) == int(number)]


def compare(before: Path, after: Path) -> ImageDifference:
    """Compare two images; files that are equal in both are not read. Raises BadTask if one is damaged."""
    one, other = _whole(before), _whole(after)
    unequal = image_difference.unequal_parts(one, other)
    with ThreadPoolExecutor(max_workers=2) as beside:
        old, new = beside.submit(_content, before, one, unequal), beside.submit(_content, after, other, unequal)
        return image_difference.compare(old.result(), new.result())


def _whole(folder: Path) -> Manifest:
    """Return the manifest of an image after comparing its files with it. Raises BadTask."""
    try:
        found = image_manifest.decode((folder / MANIFEST).read_bytes())
    except (ManifestError, OSError) as error:
        raise BadTask(f"{folder}: {error}") from error
    with ThreadPoolExecutor(max_workers=len(PARTS)) as beside:
        parts = beside.map(lambda name: readback.part_of(folder, name), PARTS)
    damaged = [name for name, part in zip(PARTS, parts, strict=True) if part != found.part(name)]
    if damaged:
        raise BadTask(
            f"{folder}: {', '.join(damaged)} not as the manifest says", hint="an image that is damaged cannot be explained"
        )
    return found


def _content(folder: Path, of: Manifest, unequal: tuple[str, ...]) -> ImageContent:
    root = _root(folder) if ROOT in unequal else squashfs_listing.Squashed()
    initrd = {one.path: _member(one) for one in initrd_archive.read(folder / INITRD)} if INITRD in unequal else {}
    return ImageContent(manifest=of, root=root.files, initrd=initrd, owners=root.owners)


def _root(folder: Path) -> squashfs_listing.Squashed:
    """Return every path of the root. A file with several names has its attributes at the first that its squashfs lists."""
    found = squashfs_listing.read(folder / ROOT)
    for path, told in oci_attributes.read(folder / OCI).items():
        entry = found.files.get(path)
        while entry is not None and entry.kind == squashfs_listing.SAME:
            path, entry = entry.link, found.files.get(entry.link)
        if entry is not None:
            found.files[path] = replace(entry, attributes=told)
    return found


def _member(one: initrd_archive.ArchiveMember) -> FileOf:
    kind = _KINDS.get(stat.S_IFMT(one.mode), "device")
    digest, link = ("", one.digest) if kind == "link" else (one.digest, "")
    return FileOf(kind, stat.S_IMODE(one.mode), f"{one.uid}:{one.gid}", one.time, one.size, digest, link)
