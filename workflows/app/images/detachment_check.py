"""The check of `bringup image detach-check`: a published tree must not depend on the factory, or on files outside the tree.

The factory is where images are built: folders and hosts. A published tree is the folder of versions that nodes boot from.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import detachment, release_layout
from steps.contract.detachment import Factory
from steps.contract.plain_text import count
from steps.errors import StepError
from steps.nodeimage.contract import boot_tree, image_manifest
from steps.nodeimage.files import squashfs_listing
from steps.nodeimage.publishing import external_links
from workflows.app.images.published_trees import OpenedTree


def factory(store: Path, folders: Iterable[str], hosts: Iterable[str]) -> Factory:
    """Return the factory to look for: this machine's store, further folders (as named, and with links resolved), and host names."""
    paths = [str(store), *(folder.rstrip("/") or "/" for folder in folders)]
    return Factory(folders=tuple(dict.fromkeys([*paths, *map(os.path.realpath, paths)])), hosts=tuple(hosts))


def problems(
    opened_tree: OpenedTree, looks: Iterable[ReleaseTree], url: str, of: Factory
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (place, reason) for everything that leads into the factory `of` or out of the tree, and the places not read."""
    rows = list(_tree_itself(opened_tree, of))
    unread: list[str] = []
    for look in looks:
        rows += [
            (link.place, f"leads to {link.leads_to}: {link.why}")
            for link in external_links.external_links(look, url or opened_tree.place.url, of)
        ]
        rows += _roots(opened_tree, look, of, unread)
    return list(dict.fromkeys(rows)), list(dict.fromkeys(unread))


def _tree_itself(opened_tree: OpenedTree, of: Factory) -> Iterable[tuple[str, str]]:
    location, host = opened_tree.transport.where, opened_tree.place.host
    if host:
        if host.lower() in map(str.lower, of.hosts):
            yield location, f"the tree itself lies on a host of the factory: {host}"
        return
    for folder in of.folders:
        if any(Path(path).is_relative_to(folder) for path in (location, os.path.realpath(location))):
            yield location, f"the tree itself lies in the store of the factory, or another folder of it: {folder}"
            return


def _roots(opened_tree: OpenedTree, look: ReleaseTree, of: Factory, unread: list[str]) -> Iterable[tuple[str, str]]:
    """Yield (place, reason) of settings in packed roots that name the factory.

    Roots that cannot be read here are added to `unread`.
    """
    if opened_tree.place.host:
        unread.append("the settings in its packed roots, which lie on another machine")
        return
    for version in look.versions:
        place = look.path(release_layout.VERSIONS, version, image_manifest.ROOT)
        try:
            texts = squashfs_listing.read_settings(Path(look.root, place))
        except StepError as error:
            unread.append(f"the settings in {place} ({error})")
            continue
        for mention in detachment.mentions_in(texts, of):
            yield f"{place}:{mention.place}", f"leads to {mention.leads_to}: {mention.why}"


def good(looks: Iterable[ReleaseTree], of: Factory) -> str:
    """Return the sentence about a tree without problems: how much was read, and which folders and hosts nothing in it names."""
    all_trees = list(looks)
    links = sum(entry.is_link for look in all_trees for entry in look.entries.values())
    scripts = len({path for look in all_trees for path in look.contents if path.endswith(boot_tree.SCRIPT)})
    sentence = f"{count(links, 'link')} and {count(scripts, 'script')} lead nowhere else, and nothing names"
    hosts = f"hosts {', '.join(of.hosts)}" if of.hosts else "no host was named to look for (--factory-host)"
    return f"{sentence} {', '.join(of.folders)}; {hosts}"
