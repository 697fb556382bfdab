"""Status of an image in its release folder before anything is built: published as wanted, changed, rolled back, or not there."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from steps.clients.releases import preflight, publication, release_signatures, verification
from steps.clients.releases.release_tree import ReleaseTree
from steps.clients.releases.tree_operations import TreeTransport, failure
from steps.contract import release_layout
from steps.errors import StepError
from steps.nodeimage.contract import boot_tree, image_manifest
from steps.nodeimage.contract.boot_tree import PublishTarget, Tested
from steps.nodeimage.contract.image_manifest import Manifest
from steps.nodeimage.publishing import boot_entries, image_kind, image_release, image_versions
from steps.nodeimage.publishing.image_release import PackedImage
from steps.stages.image_status.contract import CHANGED, CURRENT, LEFT, NOTHING, ImageStatus

_NONE: Mapping[str, str] = {}


def current_version(target: PublishTarget, image: str, key: str, firmware: tuple[str, ...] = ()) -> str:
    """Return the current version of an image in a release folder on this machine if publishing would change nothing; else empty.

    It must have this key, it must have been booted by each `firmware`, and no publication may have been stopped. Large files are
    compared by size: `bringup image verify` reads them.
    """
    root = Path(target.root)
    if target.host or not root.is_dir():
        return ""
    return current_version_through(image_kind.local_tree(root), target, image, key, firmware)


def current_version_through(
    transport: TreeTransport, target: PublishTarget, image: str, key: str, firmware: tuple[str, ...] = ()
) -> str:
    """Return the current version through an open transport if publishing would change nothing; else empty (`current_version`)."""
    try:
        tree = transport.look(image)
        is_same = tree.current and not next(_differences(tree, target, key, firmware), "") and not next(_unfinished(tree), "")
        return tree.current if is_same and not any(preflight.external_links(image_kind.image_kind(target.url), tree)) else ""
    except StepError:
        return ""


def query(
    transport: TreeTransport,
    target: PublishTarget,
    image: str,
    key: str,
    firmware: tuple[str, ...],
    packages: Mapping[str, str] = _NONE,
    known: Mapping[str, str] = _NONE,
) -> ImageStatus:
    """Return the status of an image in its release folder. Files are read whole only if nothing else differs.

    `packages` are those that the image will have, name → version; `known` is image → version that was seen there before. Raises
    Refused if something is to be published that this user may not write, if the folder has external links that no publication would
    remove, or if it lacks versions that were seen there. Raises a StepError if the folder cannot be read.
    """
    tree, kind = transport.look(image), image_kind.image_kind(target.url)
    preflight.refuse_wrong_mount(kind, tree, transport.where, known)
    answer = CHANGED if tree.current else NOTHING
    status = ImageStatus(key=key, where=transport.where, answer=answer, version=tree.current)
    if (current := image_versions.manifest_of(tree, tree.current)) is not None and packages:
        published = {package.name: package.version for package in current.packages}
        added, removed, changed = image_versions.changes(published, packages)
        status = replace(status, packages_added=added, packages_removed=removed, packages_changed=changed)
    manifests_of = {version: image_versions.manifest_of(tree, version) for version in tree.versions}
    alike = {version: _packed(tree, version, entry) for version, entry in manifests_of.items() if entry and entry.key == key}
    if (rollback := image_release.rolled_back(tree, target, alike)) is not None:
        return replace(status, answer=LEFT, left=rollback.before, left_by=rollback.by, left_at=rollback.at)
    if not tree.current:
        return _writable(status, tree, target)
    differs = next(_differences(tree, target, key, firmware), "") or next(_unfinished(tree), "")
    if not differs:
        problems = verification.problems_for_target(kind, transport.look(image, (tree.current,)), tree.current, target)
        differs = next((f"{problem.place} {problem.why}" for problem in problems), "")
    if not differs:
        preflight.refuse_links(preflight.external_links(kind, tree))
        return replace(status, answer=CURRENT)
    return _writable(replace(status, differs=differs), tree, target)


def _writable(status: ImageStatus, tree: ReleaseTree, target: PublishTarget) -> ImageStatus:
    """Return the status unchanged.

    Raises Refused if a publication would fail, which is better now than after an hour of building.
    """
    if tree.unwritable:
        raise failure("right", f"to write {', '.join(tree.unwritable)}", status.where)
    own = boot_entries.names(target)
    links = preflight.external_links(image_kind.image_kind(target.url), tree)
    preflight.refuse_links(link for link in links if _stays(tree, link.place, own))
    return status


def _stays(tree: ReleaseTree, path: str, names: frozenset[str]) -> bool:
    """Return True if no publication of this image replaces or removes this path.

    The version that is current now counts as replaced, because it will be an older one then.
    """
    replaced = (f"{tree.path(release_layout.VERSIONS)}/", f"{tree.path(release_layout.INCOMING)}/")
    if path.startswith(replaced) or path in (boot_tree.START_SCRIPT, tree.path(release_layout.CURRENT)):
        return False
    return path.removeprefix(f"{boot_tree.BOOT}/").removesuffix(boot_tree.SCRIPT) not in names


def _differences(tree: ReleaseTree, target: PublishTarget, key: str, firmware: tuple[str, ...]) -> Iterator[str]:
    """Yield a sentence for each way in which the current version differs from the one that would be published now."""
    current = tree.current
    manifest = image_versions.manifest_of(tree, current)
    if manifest is None or manifest.key != key:
        yield f"{current} is another image" if manifest else f"{current} has no manifest that can be read"
        return
    if release_layout.version_name(release_layout.number_of(current), tree.manifest_digest(current)) != current:
        yield f"{current} has another manifest than its name says"
    entries = [(part.size, tree.entries.get(tree.version_path(current, part.name))) for part in manifest.parts]
    if not all(entry is not None and entry.is_file and entry.size == size for size, entry in entries):
        yield f"{current} is not whole"
    release = image_release.stage_release(_packed(tree, current, manifest), target, Tested())
    shared = release.shared_files(tree)
    same = image_release.has_same_scripts(release.image, tree, target, current) and not shared.stale
    same = same and set(image_versions.scripts(tree, current)) == boot_entries.names(target)
    if not (same and all(tree.contents.get(f"{boot_tree.BOOT}/{name}") == data for name, data in shared.files.items())):
        yield f"{current} has other boot scripts than the spec asks for"
    untested = {f"image_boot.boot_{name}" for name in firmware} - set(image_versions.published_test_results(tree, current).results)
    if untested:
        yield f"{current} was not booted by {', '.join(sorted(name.rpartition('_')[2] for name in untested))}"
    if publication.spare(release, tree, target.keep, current):
        yield f"there are more versions than the {target.keep} that stay"
    if not release_signatures.suits(release.kind, tree, current, target):
        yield f"{current} is not signed as the spec asks for"


def _unfinished(tree: ReleaseTree) -> Iterator[str]:
    """Yield a sentence if a publication was stopped before its end; the next publication completes it."""
    if tree.last_recorded != tree.current or tree.unfinished:
        yield f"the publication of {tree.current} was stopped before its end"


def _packed(tree: ReleaseTree, version: str, manifest: Manifest) -> PackedImage:
    data = tree.contents[tree.version_path(version, image_manifest.MANIFEST)]
    return PackedImage(folder=Path(tree.root) / tree.version_path(version), manifest=manifest, data=data)
