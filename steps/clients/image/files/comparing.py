"""Explains how two images differ: finds them, reads of them what differs, and hands both to `contract.image.difference`."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from steps.clients.image.files import attributes_of, cpio, readback, squashed
from steps.contract.image import difference, manifest
from steps.contract.image.difference import Content, Difference, FileOf
from steps.contract.image.manifest import INITRD, MANIFEST, OCI, PARTS, ROOT, Manifest, ManifestError
from steps.contract.image.published import CURRENT, VERSIONS, number_of
from steps.errors import BadTask

_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_SHORTEST: Final = 4
"""Digits of a key that are looked for: fewer say nothing."""


def find(named: str, images: Path, tree: Path | None) -> Path:
    """The folder of an image: a folder itself, a version (`NAME`, `NAME/VERSION`, `NAME/NUMBER`) of a published tree, or a key's
    first digits.

    Raises BadTask, with where it was looked for.
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
    """The version of that number, as `rollback` takes it too."""
    return [path for path in sorted(versions.glob("*")) if number.isdigit() and number_of(path.name) == int(number)]


def compare(before: Path, after: Path) -> Difference:
    """How two images differ; of their files, what both have alike is not read. Raises BadTask where one is damaged."""
    one, other = _whole(before), _whole(after)
    unequal = difference.unequal_parts(one, other)
    with ThreadPoolExecutor(max_workers=2) as beside:
        old, new = beside.submit(_content, before, one, unequal), beside.submit(_content, after, other, unequal)
        return difference.compare(old.result(), new.result())


def _whole(folder: Path) -> Manifest:
    """The manifest, whose files are as it says."""
    try:
        found = manifest.decode((folder / MANIFEST).read_bytes())
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


def _content(folder: Path, of: Manifest, unequal: tuple[str, ...]) -> Content:
    root = _root(folder) if ROOT in unequal else squashed.Squashed()
    initrd = {one.path: _member(one) for one in cpio.read(folder / INITRD)} if INITRD in unequal else {}
    return Content(manifest=of, root=root.files, initrd=initrd, owners=root.owners)


def _root(folder: Path) -> squashed.Squashed:
    """Every path of the root. A file with several names has its attributes at the first that its squashfs lists."""
    found = squashed.read(folder / ROOT)
    for path, told in attributes_of.read(folder / OCI).items():
        entry = found.files.get(path)
        while entry is not None and entry.kind == squashed.SAME:
            path, entry = entry.link, found.files.get(entry.link)
        if entry is not None:
            found.files[path] = replace(entry, attributes=told)
    return found


def _member(one: cpio.Member) -> FileOf:
    kind = _KINDS.get(stat.S_IFMT(one.mode), "device")
    digest, link = ("", one.digest) if kind == "link" else (one.digest, "")
    return FileOf(kind, stat.S_IMODE(one.mode), f"{one.uid}:{one.gid}", one.time, one.size, digest, link)
