"""Difference between two images, by file and by the package that owns the file. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.plain import count
from steps.nodeimage.contract.image_manifest import INITRD, KERNEL, PARTS, Manifest

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
CONTENT, MODE, OWNER, TIME, LINK, KIND, ATTRIBUTES = "content", "mode", "owner", "time", "link", "kind", "attributes"
NO_PACKAGE: Final = ""


class FileOf(Struct, frozen=True):
    """One path of a root or an initrd.

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
    """Content of an image: its manifest, the files of root and initrd by path, and the package that owns a path of the root.

    Empty `root` or `initrd`: not read, because both images have the same bytes.
    """

    manifest: Manifest
    root: dict[str, FileOf] = {}
    initrd: dict[str, FileOf] = {}
    owners: dict[str, str] = {}


class FileDifference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Path that differs: `how` (added, removed, changed), for a change `what` (content, mode, owner, time, link, kind, attributes),
    the bytes that it grew by, and the package that owns it.
    """

    path: str
    how: str
    what: tuple[str, ...] = ()
    grew: int = 0
    package: str = NO_PACKAGE


class PackageDifference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Package that was added or removed, or has another version; `rebuilt`: the same version with other bytes."""

    name: str
    before: str = ""
    after: str = ""
    layer: str = ""
    rebuilt: bool = False


class Value(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Property with one value in each image."""

    name: str
    before: str = ""
    after: str = ""


class ImageDifference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The differences between an image and a later one. `same`: they are equal bit by bit."""

    same: bool
    parts: tuple[Value, ...] = ()
    values: tuple[Value, ...] = ()
    packages: tuple[PackageDifference, ...] = ()
    layers: tuple[Value, ...] = ()
    root: tuple[FileDifference, ...] = ()
    initrd: tuple[FileDifference, ...] = ()

    @property
    def grew(self) -> int:
        """Bytes that the files of the root grew by."""
        return sum(one.grew for one in self.root)


def unequal_parts(before: Manifest, after: Manifest) -> tuple[str, ...]:
    """Return the names of the image files whose bytes differ: these have to be read to explain the difference."""
    return tuple(name for name in PARTS if _digest(before, name) != _digest(after, name))


def compare(before: ImageContent, after: ImageContent) -> ImageDifference:
    """Compare the contents of two images."""
    one, other = before.manifest, after.manifest
    parts = tuple(Value(name=name, before=_digest(one, name), after=_digest(other, name)) for name in unequal_parts(one, other))
    owners = {**before.owners, **after.owners}
    return ImageDifference(
        same=_built(one) == _built(other),
        parts=parts,
        values=tuple(_values(one, other)),
        packages=tuple(_packages(one, other)),
        layers=tuple(
            _valued({layer.name: layer.digest for layer in one.layers}, {layer.name: layer.digest for layer in other.layers})
        ),
        root=tuple(_files(before.root, after.root, owners)),
        initrd=tuple(_files(before.initrd, after.initrd, {})),
    )


def _built(manifest: Manifest) -> Manifest:
    """Return a manifest without the fields that only a published version has, which another publication writes differently."""
    return msgspec.structs.replace(manifest, origin="", outcomes={})


def _digest(manifest: Manifest, name: str) -> str:
    part = manifest.part(name)
    return part.digest if part else ""


def _values(before: Manifest, after: Manifest) -> Iterable[Value]:
    words = ("name", "distribution", "release", "architecture", "epoch", "kernel", "recipe")
    one = {name: str(getattr(before, name)) for name in words}
    other = {name: str(getattr(after, name)) for name in words}
    one["kernel arguments"], other["kernel arguments"] = (" ".join(each.kernel_arguments) for each in (before, after))
    yield from _valued(one, other)
    tools = ({f"tool {name}": version for name, version in each.tools.items()} for each in (before, after))
    yield from _valued(*tools)


def _valued(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[Value]:
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield Value(name=name, before=before.get(name, ""), after=after.get(name, ""))


def _packages(before: Manifest, after: Manifest) -> Iterable[PackageDifference]:
    one = {(package.name, package.architecture): package for package in before.packages}
    other = {(package.name, package.architecture): package for package in after.packages}
    for name in sorted({*one, *other}):
        old, new = one.get(name), other.get(name)
        if old is None or new is None or (old.version, old.sha256) != (new.version, new.sha256):
            yield PackageDifference(
                name=name[0],
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
    """Group files by the package that owns them, sorted by name; files without a package come last."""
    found: dict[str, list[FileDifference]] = {}
    for one in files:
        found.setdefault(one.package, []).append(one)
    return dict(sorted(found.items(), key=lambda item: (item[0] == NO_PACKAGE, item[0])))


def sentence(found: ImageDifference) -> str:
    """Return the difference in one line."""
    if found.same:
        return "the images are bit for bit the same"
    if not found.parts:
        names = ", ".join(one.name for one in (*found.values, *found.layers)) or "names of tests"
        return f"root, kernel and initrd are bit for bit the same; what differs: {names}"
    unequal = {one.name for one in found.parts}
    counts = [count(len(found.packages), "package"), f"{count(len(found.root), 'file')} of the root"]
    counts += [f"{len(found.initrd)} of the initrd"] if INITRD in unequal else []
    counts += ["the kernel"] if KERNEL in unequal else []
    same = "; the initrd is the same" if INITRD not in unequal else ""
    return f"what differs: {', '.join(counts)}{same}; the root's files have {found.grew / 1e6:+.2f} MB"
