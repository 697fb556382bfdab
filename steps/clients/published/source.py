"""A packed image on its way into a tree: its files as they lie in the store, and all small ones that a version has besides."""

import hashlib
from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients.published import signing
from steps.clients.published.tree import Tree
from steps.contract.canonical import digest_bytes
from steps.contract.image import ipxe, published, publishing
from steps.contract.image import manifest as manifests
from steps.contract.image.manifest import Manifest, ManifestError
from steps.contract.image.published import Place, Tested
from steps.contract.image.publishing import PublishingError
from steps.errors import BadTask

_UNTESTED = Tested()


class Source(Struct, frozen=True, kw_only=True):
    """The folder with the parts, the manifest as it is published, and its bytes."""

    folder: Path
    manifest: Manifest
    data: bytes

    @property
    def name(self) -> str:
        """The image's name."""
        return self.manifest.name

    @property
    def digest(self) -> str:
        """The manifest's digest."""
        return digest_bytes(self.data)


def load(folder: Path, tested: Tested = _UNTESTED) -> Source:
    """The image in a folder, whose manifest is to say how it was `tested`. Raises BadTask where something of it is missing or has
    another size than its manifest says."""
    hint = "build the image again"
    try:
        found = manifests.decode((folder / manifests.MANIFEST).read_bytes())
        publishing.name_of(found.name, "an image")
    except (OSError, ManifestError, PublishingError) as error:
        raise BadTask(f"{folder} holds no image: {error}", hint=hint) from error
    lacking = [name for name in (manifests.ROOT, manifests.KERNEL, manifests.INITRD) if found.part(name) is None]
    if lacking or not {part.name for part in found.parts} <= set(manifests.PARTS):
        raise BadTask(f"{folder}: its manifest lists other files than {', '.join(manifests.PARTS)}", hint=hint)
    for part in found.parts:
        path = folder / part.name
        if not path.is_file() or path.stat().st_size != part.size:
            raise BadTask(f"{path} is not the file of {part.size} bytes that the manifest lists", hint=hint)
    told = msgspec.structs.replace(found, origin=tested.origin, outcomes=publishing.outcomes(tested))
    return Source(folder=folder, manifest=told, data=manifests.encode(told))


def examine(source: Source) -> None:
    """Read the parts where they come from. Raises BadTask for the first that is not what the manifest says."""
    for part in source.manifest.parts:
        with (source.folder / part.name).open("rb") as stream:
            found = "sha256:" + hashlib.file_digest(stream, "sha256").hexdigest()
        if found != part.digest:
            raise BadTask(
                f"{source.folder / part.name} has the digest {found}, its manifest says {part.digest}", hint="build it again"
            )


def scripts(source: Source, place: Place, version: str) -> dict[str, bytes]:
    """Boot scripts of a version by their path in it. Raises BadTask where they cannot be rendered."""
    try:
        found = {group.name: publishing.version_script(place, version, source.manifest, group) for group in place.groups}
        found |= {
            published.machine_name(mac): publishing.machine_script(place, version, source.name, group.name)
            for group in place.groups
            for mac in group.nodes
        }
        return {f"{published.BOOT}/{name}{published.SCRIPT}": data for name, data in found.items()}
    except PublishingError as error:
        raise BadTask(str(error), hint="see publish in the spec, and the recipe's kernel arguments") from error


def placed(source: Source, tree: Tree, place: Place, version: str) -> dict[str, bytes]:
    """The same by their path in the tree. Raises BadTask."""
    return {tree.path(published.VERSIONS, version, path): data for path, data in scripts(source, place, version).items()}


def boots_alike(source: Source, tree: Tree, place: Place, version: str) -> bool:
    """Whether a version has these scripts and no others. Raises BadTask."""
    below = f"{tree.path(published.VERSIONS, version, published.BOOT)}/"
    return placed(source, tree, place, version) == {path: data for path, data in tree.contents.items() if path.startswith(below)}


def starts_alike(source: Source, tree: Tree, place: Place, version: str) -> bool:
    """Whether each group that has a script in a version starts its kernel there as it would now. Which groups there are besides,
    their machines, and where the tree lies may differ."""
    folder, own = tree.path(published.VERSIONS, version, published.BOOT), source.manifest.kernel_arguments
    scripts = [(group, tree.contents.get(f"{folder}/{group.name}{published.SCRIPT}")) for group in place.groups]
    return all(
        data is None or ipxe.given(data.decode(errors="replace")) == (*own, *group.kernel_arguments) for group, data in scripts
    )


def names(place: Place) -> frozenset[str]:
    """Names of all scripts of a version: groups, and machines that they name."""
    return frozenset(group.name for group in place.groups) | {
        published.machine_name(mac) for group in place.groups for mac in group.nodes
    }


def entries(source: Source, place: Place, there: Collection[str]) -> dict[str, bytes]:
    """What nodes are told to load, by its name in ROOT/boot, where scripts of the names `there` are besides; first
    what all machines are told, for one that is known before its script is there waits for it. Raises BadTask."""
    every = names(place) | set(there)
    try:
        found = {published.START: publishing.start_script(place.url, every)}
        found |= {name: publishing.entry_script(place.url, source.name, name) for name in sorted(names(place))}
        return {f"{name}{published.SCRIPT}": data for name, data in found.items()}
    except PublishingError as error:
        raise BadTask(str(error), hint="see publish in the spec") from error


def small_files(source: Source, place: Place, version: str, tested: Tested, secrets: Path) -> dict[str, bytes]:
    """All files of a version but the large parts, by their path in it."""
    files = {manifests.MANIFEST: source.data, published.TESTS: publishing.tests_file(tested), **scripts(source, place, version)}
    files[published.SUMS] = publishing.sums(files, source.manifest.parts)
    return files | signing.sign(files, place, secrets)
