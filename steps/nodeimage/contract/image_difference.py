"""Difference between two node images, by file and by the package that owns the file. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.plain_text import count
from steps.nodeimage.contract.image_manifest import INITRD, KERNEL, PARTS, Manifest

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
CONTENT, MODE, OWNER, TIME, LINK, KIND, ATTRIBUTES = "content", "mode", "owner", "time", "link", "kind", "attributes"
NO_PACKAGE: Final = ""


class FileOf(Struct, frozen=True):
    """One file, folder, link or device of a root file system or an initrd, as images are compared by it.

    `digest` is that of a file's bytes, `link` the target of a link or the numbers of a device, `attributes` the capabilities and
    other extended attributes in one text.
    """

    kind: str
    mode: int
    owner: str
    time: int
    size: int = 0
    digest: str = ""
    link: str = ""
    attributes: str = ""


class ImageContent(Struct, frozen=True, kw_only=True):
    """Content of an image to compare: its manifest, path → file of root and of initrd, and path of the root → owning package.

    `root` or `initrd` is empty if it was not read, because both images have the same bytes.
    """

    manifest: Manifest
    root: dict[str, FileOf] = {}
    initrd: dict[str, FileOf] = {}
    owners: dict[str, str] = {}


class FileDifference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Path that differs between two images.

    `how` is added, removed or changed, `what` names the changed properties, `grew` is in bytes, `package` owns the path.
    """

    path: str
    how: str
    what: tuple[str, ...] = ()
    grew: int = 0
    package: str = NO_PACKAGE


class PackageDifference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Package that was added, removed, or changed its version; `rebuilt`: it has the same version and other bytes."""

    name: str
    before: str = ""
    after: str = ""
    layer: str = ""
    rebuilt: bool = False


class Value(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Named property of an image, such as its kernel, with its value in each of two images."""

    name: str
    before: str = ""
    after: str = ""


class ImageDifference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All differences between an image and a later one. `same`: both are equal bit by bit."""

    same: bool
    parts: tuple[Value, ...] = ()
    values: tuple[Value, ...] = ()
    packages: tuple[PackageDifference, ...] = ()
    layers: tuple[Value, ...] = ()
    root: tuple[FileDifference, ...] = ()
    initrd: tuple[FileDifference, ...] = ()

    @property
    def grew(self) -> int:
        """Bytes by which the files of the root file system grew."""
        return sum(file.grew for file in self.root)


def unequal_parts(before: Manifest, after: Manifest) -> tuple[str, ...]:
    """Return the names of the image files whose bytes differ, by the manifests; they must be read to explain the difference."""
    return tuple(name for name in PARTS if _digest(before, name) != _digest(after, name))


def compare(before: ImageContent, after: ImageContent) -> ImageDifference:
    """Return the differences between the contents of two images."""
    old, new = before.manifest, after.manifest
    parts = tuple(Value(name=name, before=_digest(old, name), after=_digest(new, name)) for name in unequal_parts(old, new))
    layers = ({layer.name: layer.digest for layer in manifest.layers} for manifest in (old, new))
    return ImageDifference(
        same=_built(old) == _built(new),
        parts=parts,
        values=tuple(_values(old, new)),
        packages=tuple(_packages(old, new)),
        layers=tuple(_valued(*layers)),
        root=tuple(_files(before.root, after.root, {**before.owners, **after.owners})),
        initrd=tuple(_files(before.initrd, after.initrd, {})),
    )


def _built(manifest: Manifest) -> Manifest:
    """Return a manifest without the fields that depend on its publication."""
    return msgspec.structs.replace(manifest, origin="", outcomes={})


def _digest(manifest: Manifest, name: str) -> str:
    part = manifest.part(name)
    return part.digest if part else ""


def _values(before: Manifest, after: Manifest) -> Iterable[Value]:
    yield from _valued(_properties(before), _properties(after))


def _properties(manifest: Manifest) -> dict[str, str]:
    words = ("name", "distribution", "release", "architecture", "epoch", "kernel", "recipe")
    return {
        **{word: str(getattr(manifest, word)) for word in words},
        "kernel arguments": " ".join(manifest.kernel_arguments),
        **{f"tool {name}": version for name, version in manifest.tools.items()},
    }


def _valued(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[Value]:
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield Value(name=name, before=before.get(name, ""), after=after.get(name, ""))


def _packages(before: Manifest, after: Manifest) -> Iterable[PackageDifference]:
    olds = {(package.name, package.architecture): package for package in before.packages}
    news = {(package.name, package.architecture): package for package in after.packages}
    for key in sorted({*olds, *news}):
        old, new = olds.get(key), news.get(key)
        if old is None or new is None or (old.version, old.sha256) != (new.version, new.sha256):
            yield PackageDifference(
                name=key[0],
                before=old.version if old else "",
                after=new.version if new else "",
                layer=new.layer if new else old.layer if old else "",
                rebuilt=bool(old and new and old.version == new.version),
            )


def _files(before: Mapping[str, FileOf], after: Mapping[str, FileOf], owners: Mapping[str, str]) -> Iterable[FileDifference]:
    for path in sorted({*before, *after}):
        old, new = before.get(path), after.get(path)
        if old == new:
            continue
        grew = (new.size if new else 0) - (old.size if old else 0)
        how = CHANGED if old and new else ADDED if new else REMOVED
        what = tuple(_what(old, new)) if old and new else ()
        yield FileDifference(path=path, how=how, what=what, grew=grew, package=owners.get(path, NO_PACKAGE))


def _what(old: FileOf, new: FileOf) -> Iterable[str]:
    if old.kind != new.kind:
        yield KIND
    if (old.digest, old.size) != (new.digest, new.size):
        yield CONTENT
    for name, field in ((MODE, "mode"), (OWNER, "owner"), (TIME, "time"), (LINK, "link"), (ATTRIBUTES, "attributes")):
        if getattr(old, field) != getattr(new, field):
            yield name


def by_package(files: Iterable[FileDifference]) -> dict[str, list[FileDifference]]:
    """Return the differing files by owning package, packages sorted by name, files without a package last."""
    groups: dict[str, list[FileDifference]] = {}
    for file in files:
        groups.setdefault(file.package, []).append(file)
    return dict(sorted(groups.items(), key=lambda item: (item[0] == NO_PACKAGE, item[0])))


def sentence(difference: ImageDifference) -> str:
    """Return the difference between two images in one line."""
    if difference.same:
        return "the images are bit for bit the same"
    if not difference.parts:
        names = ", ".join(value.name for value in (*difference.values, *difference.layers)) or "names of tests"
        return f"root, kernel and initrd are bit for bit the same; what differs: {names}"
    unequal = {part.name for part in difference.parts}
    counts = [count(len(difference.packages), "package"), f"{count(len(difference.root), 'file')} of the root"]
    counts += [f"{len(difference.initrd)} of the initrd"] if INITRD in unequal else []
    counts += ["the kernel"] if KERNEL in unequal else []
    same = "; the initrd is the same" if INITRD not in unequal else ""
    return f"what differs: {', '.join(counts)}{same}; the root's files have {difference.grew / 1e6:+.2f} MB"
