"""A packed node image that is to be published: its files in the store, and the small files that a version gets besides."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients.releases.release_kind import SharedFiles, StagedRelease
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import release_layout
from steps.contract.release_layout import Switch
from steps.errors import BadTask
from steps.nodeimage.contract import boot_scripts, boot_tree, image_manifest, ipxe
from steps.nodeimage.contract.boot_scripts import BootScriptError
from steps.nodeimage.contract.boot_tree import PublishTarget, Tested
from steps.nodeimage.contract.image_manifest import Manifest, ManifestError
from steps.nodeimage.publishing import boot_entries, image_kind, image_versions


class PackedImage(Struct, frozen=True, kw_only=True):
    """Packed image: the folder with its files, and its manifest as it is published, decoded and as bytes."""

    folder: Path
    manifest: Manifest
    data: bytes

    @property
    def name(self) -> str:
        """Name of the image, from its manifest."""
        return self.manifest.name


class ImageRelease(StagedRelease, frozen=True, kw_only=True):
    """Packed image that is to be published to a target, with the test results that let it be published."""

    image: PackedImage
    target: PublishTarget
    tested: Tested

    def small_files(self, version: str) -> dict[str, bytes]:
        """Return path → bytes of a version's `tests.json`, statements and boot scripts. Raises BadTask for bad scripts."""
        if not self.target.groups:
            raise BadTask("there is no group of nodes, hence no boot script", hint="see publish.groups in the spec")
        return {**self.metadata, boot_tree.TESTS: self.tested.encoded, **scripts(self.image, self.target, version)}

    def shared_files(self, tree: ReleaseTree) -> SharedFiles:
        """Return the boot entries of the target's groups and machines, which lie outside of the version. Raises BadTask."""
        return boot_entries.for_target(tree, self.target)

    def refuse(self, tree: ReleaseTree) -> None:
        """Raise Refused if a group or machine boots another image, or a group would be left without a script."""
        boot_entries.refuse_foreign(tree, self.target)

    def is_same(self, manifest: bytes) -> bool:
        """Return True if the manifest's bytes describe this image (see `Manifest.is_same`); origin and test results may differ."""
        try:
            return image_manifest.decode(manifest).is_same(self.image.manifest)
        except ManifestError:
            return False

    def is_suitable(self, tree: ReleaseTree, version: str) -> bool:
        """Return True if a version has the boot scripts that it would get now, statements, and results of all tasks of now."""
        alike = has_same_scripts(self.image, tree, self.target, version)
        published = image_versions.published_test_results(tree, version)
        return alike and published.attested and set(published.results) >= set(self.tested.results)

    def rolled_back(self, tree: ReleaseTree, alike: tuple[str, ...]) -> Switch | None:
        """Return the rollback that left this image; None if there is none (see the function `rolled_back`)."""
        return rolled_back(tree, self.target, dict.fromkeys(alike, self.image))


def stage_release(image: PackedImage, target: PublishTarget, tested: Tested, statements: Mapping[str, bytes] = {}) -> ImageRelease:
    """Return a packed image with its target, its test results and the statements about it as a release."""
    return ImageRelease(
        kind=image_kind.image_kind(target.url),
        product=image.name,
        folder=image.folder,
        manifest=image.data,
        files=image.manifest.parts,
        metadata=statements,
        image=image,
        target=target,
        tested=tested,
    )


def load(folder: Path, tested: Tested = Tested()) -> PackedImage:
    """Return the packed image in a folder, with origin and outcomes of `tested` in its manifest.

    Raises BadTask if a file is missing or has another size; bytes are not compared.
    """
    hint = "build the image again"
    try:
        manifest = image_manifest.decode((folder / image_manifest.MANIFEST).read_bytes())
        boot_scripts.name_of(manifest.name, "an image")
    except (OSError, ManifestError, BootScriptError) as error:
        raise BadTask(f"{folder} holds no image: {error}", hint=hint) from error
    lacking = [name for name in (image_manifest.ROOT, image_manifest.KERNEL, image_manifest.INITRD) if manifest.part(name) is None]
    if lacking or not {part.name for part in manifest.parts} <= set(image_manifest.PARTS):
        raise BadTask(f"{folder}: its manifest lists other files than {', '.join(image_manifest.PARTS)}", hint=hint)
    for part in manifest.parts:
        path = folder / part.name
        if not path.is_file() or path.stat().st_size != part.size:
            raise BadTask(f"{path} is not the file of {part.size} bytes that the manifest lists", hint=hint)
    published = msgspec.structs.replace(manifest, origin=tested.origin, outcomes=tested.outcomes)
    return PackedImage(folder=folder, manifest=published, data=image_manifest.encode(published))


def scripts(image: PackedImage, target: PublishTarget, version: str) -> dict[str, bytes]:
    """Return path within a version → bytes of its boot scripts. Raises BadTask if they cannot be rendered."""
    try:
        texts = {group.name: boot_scripts.version_script(target, version, image.manifest, group) for group in target.groups}
        texts |= {
            boot_tree.machine_name(mac): boot_scripts.machine_script(target, version, image.name, group.name)
            for group in target.groups
            for mac in group.nodes
        }
    except BootScriptError as error:
        raise BadTask(str(error), hint="see publish in the spec, and the recipe's kernel arguments") from error
    return {f"{boot_tree.BOOT}/{name}{boot_tree.SCRIPT}": data for name, data in texts.items()}


def has_same_scripts(image: PackedImage, tree: ReleaseTree, target: PublishTarget, version: str) -> bool:
    """Return True if a published version has exactly the boot scripts that it would get now. Raises BadTask."""
    expected = {tree.version_path(version, path): data for path, data in scripts(image, target, version).items()}
    folder = f"{tree.version_path(version, boot_tree.BOOT)}/"
    return expected == {path: data for path, data in tree.contents.items() if path.startswith(folder)}


def starts_alike(image: PackedImage, tree: ReleaseTree, target: PublishTarget, version: str) -> bool:
    """Return True if each group with a script in a published version starts its kernel with the arguments that it would get now.

    Further groups, the machines of groups, and the address of the release folder may differ.
    """
    folder, own = tree.version_path(version, boot_tree.BOOT), image.manifest.kernel_arguments
    texts = [(group, tree.contents.get(f"{folder}/{group.name}{boot_tree.SCRIPT}")) for group in target.groups]
    return all(
        data is None or ipxe.image_arguments(data.decode(errors="replace")) == (*own, *group.kernel_arguments)
        for group, data in texts
    )


def rolled_back(tree: ReleaseTree, target: PublishTarget, alike: Mapping[str, PackedImage]) -> Switch | None:
    """Return the recorded rollback that left an image; None if there is none, or if the image became current since.

    `alike` are all versions of the image, each with what its scripts are rendered from. All versions whose groups start the kernel
    in the same way count as one: another machine in a group, or another address of the folder, mends nothing that the image did.
    Other kernel arguments may. A rollback between two of these versions left the scripts of the first one.
    """
    exact = tuple(name for name, image in alike.items() if has_same_scripts(image, tree, target, name))
    same = tuple(name for name, image in alike.items() if starts_alike(image, tree, target, name))
    history = tree.history
    if tree.current in exact:
        return None
    if tree.current not in same and (rollback := release_layout.abandoning_rollback(history, same)):
        return rollback
    rollback = release_layout.abandoning_rollback(history, exact)
    return rollback if rollback and rollback.to in same else None
