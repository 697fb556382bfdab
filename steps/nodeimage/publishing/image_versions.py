"""Readers of the versions of a node image in a release folder: manifest, test results, scripts, machines, packages, reports.

Pure.
"""

from collections.abc import Mapping

import msgspec

from steps.clients.releases.release_tree import ReleaseTree
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.release_layout import UsageReport
from steps.nodeimage.contract import boot_tree, image_manifest, ipxe
from steps.nodeimage.contract.boot_tree import NodeSeen, Tested
from steps.nodeimage.contract.image_manifest import Manifest, ManifestError
from steps.nodeimage.publishing import external_links


def manifest_of(tree: ReleaseTree, version: str) -> Manifest | None:
    """Return the manifest of a version; None if it is missing or unreadable."""
    data = tree.manifest(version)
    try:
        return None if data is None else image_manifest.decode(data)
    except ManifestError:
        return None


def published_test_results(tree: ReleaseTree, version: str) -> Tested:
    """Return origin and test results with which a version was published; empty ones if they cannot be read."""
    try:
        return msgspec.json.decode(tree.contents[tree.version_path(version, boot_tree.TESTS)], type=Tested)
    except (KeyError, *UNREADABLE_JSON):
        return Tested()


def scripts(tree: ReleaseTree, version: str) -> dict[str, str]:
    """Return group or machine with a script in a version → the version that the script names; empty if it names several or none."""
    folder = tree.version_path(version, boot_tree.BOOT)
    texts = {name: tree.contents.get(f"{folder}/{name}", b"") for name in tree.names(folder) if name.endswith(boot_tree.SCRIPT)}
    return {
        name.removesuffix(boot_tree.SCRIPT): external_links.named_version(text.decode(errors="replace"), tree.product)
        for name, text in texts.items()
    }


def usage_report(_file: str, data: bytes) -> UsageReport | None:
    """Return the report of a node from the bytes of ROOT/nodes/NODE.json; None if it cannot be read."""
    try:
        record = msgspec.json.decode(data, type=NodeSeen)
    except UNREADABLE_JSON:
        return None
    return UsageReport(
        node=record.node,
        version=record.version,
        digest=record.image,
        manifest=record.manifest,
        address=record.mac,
        machine=boot_tree.mac_in(record.mac),
        at=record.at,
    )


def machines(tree: ReleaseTree) -> frozenset[str] | None:
    """Return the MAC addresses of the machines that versions name; None if any machine may boot the image.

    Any machine may unless the scripts of the current version refuse all others.
    """
    folder = tree.version_path(tree.current, boot_tree.BOOT)
    groups = [name for name in scripts(tree, tree.current) if not boot_tree.is_machine(name)] if tree.current else []
    texts = (tree.contents.get(f"{folder}/{name}{boot_tree.SCRIPT}", b"").decode(errors="replace") for name in groups)
    named = {name for version in tree.versions for name in scripts(tree, version) if boot_tree.is_machine(name)}
    if not named or not all(map(ipxe.is_guarded, texts)):
        return None
    return frozenset(map(boot_tree.mac_of, named))


def package_changes(tree: ReleaseTree, old: str, new: str) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the packages added, removed and changed between two versions; all empty if a manifest is unreadable."""
    manifests = manifest_of(tree, old), manifest_of(tree, new)
    if manifests[0] is None or manifests[1] is None:
        return (), (), ()
    before, after = ({package.name: package.version for package in image.packages} for image in manifests if image)
    return changes(before, after)


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return packages added and removed (`name=version`) and changed (`name old → new`) between two dicts of name → version."""
    added = tuple(f"{name}={after[name]}" for name in sorted(set(after) - set(before)))
    removed = tuple(f"{name}={before[name]}" for name in sorted(set(before) - set(after)))
    both = sorted(set(before) & set(after))
    return added, removed, tuple(f"{name} {before[name]} → {after[name]}" for name in both if before[name] != after[name])
