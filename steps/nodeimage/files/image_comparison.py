"""Comparison of two packed images: reads the parts that differ, and hands both contents to `contract.image_difference`."""

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
"""Fewest digits of a key by which an image is looked up."""


def find(named: str, images: Path, tree: Path | None) -> Path:
    """Return the folder of the image that `named` names.

    It names a folder, a version of the release folder `tree` (`NAME`, `NAME/VERSION`, `NAME/NUMBER`), or begins a key in the image
    store `images`. Raises BadTask with the places that were searched.
    """
    places = [Path(named)]
    if tree is not None:
        name, _, version = named.partition("/")
        below = tree / name / VERSIONS
        places += [below / version, *_numbered(below, version)] if version else [tree / name / CURRENT]
    for place in places:
        if (place / MANIFEST).is_file():
            return place
    may_be_key = named.replace("-", "").isalnum() and len(named) >= _SHORTEST
    manifests = sorted(images.glob(f"assembled/{named}*/{MANIFEST}")) if may_be_key else []
    if len(manifests) > 1:
        raise BadTask(f"{len(manifests)} images of {images} have a key that begins with {named}", hint="give more digits of it")
    if not manifests:
        looked = [f"no folder {named} with {MANIFEST}", f"no key in {images} that begins so"]
        looked += [f"no version of {tree}"] if tree is not None else []
        hint = "`bringup image build` tells keys and versions as it makes them"
        raise BadTask(f"no image {named}: {', '.join(looked)}", hint=hint)
    return manifests[0].parent


def _numbered(versions: Path, number: str) -> list[Path]:
    """Return the folder of the version with this number, in a list; empty if there is none."""
    return [path for path in sorted(versions.glob("*")) if number.isdigit() and number_of(path.name) == int(number)]


def compare(before: Path, after: Path) -> ImageDifference:
    """Return the difference between the images in two folders. Files that are equal in both are not read.

    Raises BadTask for damage.
    """
    manifests = _whole(before), _whole(after)
    unequal = image_difference.unequal_parts(*manifests)
    with ThreadPoolExecutor(max_workers=2) as beside:
        contents = beside.map(lambda folder, manifest: _content(folder, manifest, unequal), (before, after), manifests)
        return image_difference.compare(*contents)


def _whole(folder: Path) -> Manifest:
    """Return the manifest of the image in a folder after comparing its files with the manifest. Raises BadTask if one differs."""
    try:
        manifest = image_manifest.decode((folder / MANIFEST).read_bytes())
    except (ManifestError, OSError) as error:
        raise BadTask(f"{folder}: {error}") from error
    parts = {part.name: part for part in readback.parts_of(folder)}
    if damaged := [name for name in PARTS if parts.get(name) != manifest.part(name)]:
        hint = "an image that is damaged cannot be explained"
        raise BadTask(f"{folder}: {', '.join(damaged)} not as the manifest says", hint=hint)
    return manifest


def _content(folder: Path, of: Manifest, unequal: tuple[str, ...]) -> ImageContent:
    root = _root(folder) if ROOT in unequal else squashfs_listing.Squashed()
    initrd = {member.path: _file(member) for member in initrd_archive.read(folder / INITRD)} if INITRD in unequal else {}
    return ImageContent(manifest=of, root=root.files, initrd=initrd, owners=root.owners)


def _root(folder: Path) -> squashfs_listing.Squashed:
    """Return the content of an image's root with extended attributes.

    A file with several names has its attributes at the first name that its squashfs lists.
    """
    root = squashfs_listing.read(folder / ROOT)
    for path, attributes in oci_attributes.read(folder / OCI).items():
        entry = root.files.get(path)
        while entry is not None and entry.kind == squashfs_listing.SAME:
            path, entry = entry.link, root.files.get(entry.link)
        if entry is not None:
            root.files[path] = replace(entry, attributes=attributes)
    return root


def _file(member: initrd_archive.ArchiveMember) -> FileOf:
    kind = _KINDS.get(stat.S_IFMT(member.mode), "device")
    digest, link = ("", member.digest) if kind == "link" else (member.digest, "")
    return FileOf(kind, stat.S_IMODE(member.mode), f"{member.uid}:{member.gid}", member.time, member.size, digest, link)
