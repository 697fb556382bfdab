"""View of a stack: one folder of links to the files of its packages, for users who want paths and no modules.

The view is a package of links in ROOT/packages, so it is published, compared, exported and removed as all packages are; a version
leads to it by its link `view`.
"""

import posixpath
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from steps.contract import plain_text
from steps.contract.canonical import digest
from steps.softwarestack.contract.package_files import LISTING
from steps.softwarestack.contract.stack_input import HASH_CHARACTERS, PACKAGES, StackInput, StackPackage, StackView, package_folder
from steps.softwarestack.contract.stack_release import VIEW
from steps.softwarestack.contract.tree_check import TreeFinding, TreeProblemKind
from steps.softwarestack.tree.link_checks import TreeListing

_NOTES = frozenset({".spack", "easybuild", LISTING})
"""Folders of the build tools in a package, and our list of its files."""
_INDICES = frozenset({"info/dir", "share/info/dir"})
"""Files of a package that list others beside them: each package has its own, and none describes the view."""

_LAYOUT = 1
"""Number of the rules by which paths of packages become paths of a view; to be raised with them (see `identity`)."""


class ViewEntry(Struct, frozen=True):
    """One path of a view: the package that has it, its target, and its content by which equal files of packages are known."""

    package: StackPackage
    target: str
    content: str


class ViewPlan(Struct, frozen=True):
    """Links of a view by path, and the conflicts of packages that both have a path."""

    links: dict[str, str]
    conflicts: tuple[TreeFinding, ...]


def identity(stack: StackInput, view: StackView) -> str:
    """Return the digest of all that decides the links of a view: its packages, their folders in it, their order, place and rules.

    A published folder is never overwritten, so a view with other links must have another name.
    """
    packages = [[hash_, stack.module_folder(stack.by_hash[hash_])] for hash_ in view.packages]
    rules = [_LAYOUT, sorted(_NOTES), sorted(_INDICES)]
    return digest([VIEW, stack.name, stack.root, packages, list(view.order), rules]).removeprefix("sha256:")


def folder(stack: StackInput, view: StackView) -> str:
    """Return the name of the view's folder among the packages, such as `view-tools-0123456789ab`."""
    return f"{VIEW}-{stack.name}-{identity(stack, view)[:HASH_CHARACTERS]}"


def plan(stack: StackInput, view: StackView, listing: TreeListing) -> ViewPlan:
    """Return the links of a view of the packages in a listing.

    Two packages with one path are a conflict unless the path is the same file in both, or the view's order names both: then the
    package that comes first there has the path.
    """
    rank = {hash_: number for number, hash_ in enumerate(view.order)}
    entries, folders, conflicts = dict[str, ViewEntry](), dict[str, StackPackage](), list[TreeFinding]()
    paths = _paths(listing)
    for hash_ in sorted(view.packages, key=lambda hash_: rank.get(hash_, len(rank))):
        package = stack.by_hash[hash_]
        for path, entry in sorted(_entries(stack, package, listing, paths.get(package_folder(package), ()))):
            other = _rival(path, entries, folders)
            if other is None:
                entries[path] = entry
                folders |= {above: package for above in _above(path) if above not in folders}
            elif path in entries and entries[path].content == entry.content:
                continue
            elif not {hash_, (rival := other.package if isinstance(other, ViewEntry) else other).hash} <= rank.keys():
                conflicts.append(_conflict(stack, view, path, rival, package))
    return ViewPlan({path: entry.target for path, entry in entries.items()}, tuple(conflicts))


def write(place: Path, links: dict[str, str]) -> None:
    """Make the links of a view in its folder, which does not exist yet."""
    place.mkdir()
    for path, target in links.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).symlink_to(target)


def _rival(path: str, entries: dict[str, ViewEntry], folders: dict[str, StackPackage]) -> ViewEntry | StackPackage | None:
    """Return the entry that has a path or a folder above it, or the package that has the path as a folder; None if it is free."""
    for place in (path, *_above(path)):
        if place in entries:
            return entries[place]
    return folders.get(path)


def _above(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


def _paths(listing: TreeListing) -> dict[str, list[str]]:
    """Return the paths of files and links in each package's folder."""
    members: dict[str, list[str]] = {}
    for path in (*listing.files, *listing.links):
        head, _, rest = path.partition("/")
        name, _, path_within = rest.partition("/")
        if head == PACKAGES and path_within:
            members.setdefault(name, []).append(path_within)
    return members


def _entries(
    stack: StackInput, package: StackPackage, listing: TreeListing, paths: list[str] | tuple[()]
) -> Iterator[tuple[str, ViewEntry]]:
    """Yield what a package brings: path in the view, and entry. EasyBuild installs into NAME/VERSION in a package's folder.

    Of several CPU targets, each has a folder in the view.
    """
    depth, top = 2 if stack.spack is None else 0, stack.module_folder(package)
    for path in paths:
        words = path.split("/")[depth:]
        if not words or words[0] in _NOTES or (inner := "/".join(words)) in _INDICES:
            continue
        place = f"{PACKAGES}/{package_folder(package)}/{path}"
        expanded = _linked_folder(listing, place) if len(words) == 1 and place in listing.links else ""
        if not expanded:
            yield posixpath.join(top, inner), _entry(stack, package, listing, place)
        for below in _members(listing, expanded) if expanded else ():
            # `lib64` that leads to `lib`: another package may have files in a folder of that name
            yield posixpath.join(top, inner, below), _entry(stack, package, listing, f"{expanded}/{below}")


def _linked_folder(listing: TreeListing, place: str) -> str:
    """Return the folder beside a link to which it leads; empty if it leads to a file, or anywhere else."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(place), listing.links[place]))
    return target if posixpath.dirname(target) == posixpath.dirname(place) and target in listing.folders else ""


def _members(listing: TreeListing, folder_: str) -> Iterator[str]:
    start = f"{folder_}/"
    yield from (path.removeprefix(start) for path in (*listing.files, *listing.links) if path.startswith(start))


def _entry(stack: StackInput, package: StackPackage, listing: TreeListing, place: str) -> ViewEntry:
    file = listing.files.get(place)
    content = f"{file.digest} {file.executable}" if file is not None else f"-> {listing.links[place]}"
    return ViewEntry(package, f"{stack.root}/{place}", content)


def _conflict(stack: StackInput, view: StackView, path: str, first: StackPackage, second: StackPackage) -> TreeFinding:
    place = f"{PACKAGES}/{folder(stack, view)}/{path}"
    detail = f"{first.title} and {second.title} both have it, with other content: view.order names neither which comes first"
    return TreeFinding(path=plain_text.line(place), kind=TreeProblemKind.VIEW, detail=plain_text.line(detail))
