"""Checks before a publication writes anything: no link may lead out of the tree, and the right file system must be mounted."""

import stat
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from steps.clients.releases.release_kind import ReleaseKind, StagedRelease
from steps.clients.releases.release_tree import ReleaseTree, TreeEntry
from steps.contract import release_layout
from steps.contract.detachment import ExternalLink
from steps.errors import Refused

_STEP = (
    "make them part of the tree, or remove them; a published tree must work without the factory, and a backup by hard links shares"
    " the files of the tree: have it copy them"
)


def planned_tree(tree: ReleaseTree, release: StagedRelease, version: str) -> ReleaseTree:
    """Return the tree as it will look once this release is current as `version`, which may be new or exist already.

    Raises BadTask if the small files of the release cannot be made.
    """
    shared, folder = release.shared_files(tree), tree.layout.shared
    files = {f"{folder}/{name}": data for name, data in shared.files.items()}
    parts: dict[str, int] = {}
    if version not in tree.versions:
        files |= {tree.version_path(version, name): data for name, data in release.small_files(version).items()}
        files[tree.version_path(version, tree.layout.manifest)] = release.manifest
        parts = {tree.version_path(version, file.name): file.size for file in release.files}
    incoming = f"{tree.path(release_layout.INCOMING)}/"  # a publication removes what stopped attempts left there
    gone = {f"{folder}/{name}" for name in shared.stale} | {path for path in tree.entries if path.startswith(incoming)}
    entries = {path: entry for path, entry in tree.entries.items() if path not in gone}
    entries |= {path: _file(size) for path, size in [*((path, len(data)) for path, data in files.items()), *parts.items()]}
    if version not in tree.versions:
        entries |= {tree.version_path(version, name): _link(target) for name, target in release.links.items()}
    entries.setdefault(tree.version_path(version), TreeEntry(stat.S_IFDIR | 0o755, 0, 0, 1))
    target = f"{release_layout.VERSIONS}/{version}"
    entries[tree.path(tree.layout.pointer)] = _link(target)
    contents = {path: data for path, data in tree.contents.items() if path not in gone}
    return replace(tree, entries=entries, contents=contents | files)


def external_links(kind: ReleaseKind, tree: ReleaseTree) -> Iterator[ExternalLink]:
    """Yield the external links for which a publication answers: in the current version, and outside of all versions.

    An older version does not change any more, so its links are left to `verification`.
    """
    versions = f"{tree.path(release_layout.VERSIONS)}/"
    current = f"{versions}{tree.current}/"
    for link in kind.external_links(tree):
        if not link.place.startswith(versions) or link.place.startswith(current):
            yield link


def refuse_release(tree: ReleaseTree, release: StagedRelease, version: str) -> None:
    """Raise Refused if the tree would have external links with this release, before any machine boots or loads it."""
    refuse_links(external_links(release.kind, planned_tree(tree, release, version)))


def refuse_links(links: Iterable[ExternalLink]) -> None:
    """Raise Refused if there is any external link; the message names the first."""
    if sentences := [link.sentence for link in links]:
        more = f", and {len(sentences) - 1} more" if len(sentences) > 1 else ""
        raise Refused(f"the tree leads out of itself, so nothing is published: {sentences[0]}{more}", hint=_STEP)


def refuse_wrong_mount(kind: ReleaseKind, tree: ReleaseTree, where: str, known: Mapping[str, str]) -> None:
    """Raise Refused if the tree lacks versions that were published here before, as the empty folder below a missing mount does.

    `known` is product → newest version that was ever seen in this place; nothing is known of a new site. A tree is refused if its
    versions and its history are all older, or if it has no product at all.
    """
    step = f"mount what it should be; where it was made anew, or restored, begin with what is there: {kind.command} build --again"
    newest, expected = release_layout.next_number(tree.versions, tree.history) - 1, known.get(tree.product, "")
    if release_layout.number_of(expected) > newest:
        there = (
            f"its newest version of {tree.product} is {tree.versions[-1]}"
            if tree.versions
            else f"it has no version of {tree.product}"
        )
        raise Refused(f"{where}: {there}, but {expected} was published there; is it mounted?", hint=step)
    if known and not tree.products and not (tree.layout.shared and tree.names(tree.layout.shared)):
        product, version = min(known.items())
        raise Refused(f"{where}: it is empty, but {product} {version} was published there; is it mounted?", hint=step)


def _link(target: str) -> TreeEntry:
    return TreeEntry(stat.S_IFLNK | 0o777, 0, 0, 1, target)


def _file(size: int) -> TreeEntry:
    return TreeEntry(stat.S_IFREG | 0o644, size, 0, 1)
