"""The check of `bringup image detach-check`: a published tree must not depend on the factory, or on files outside the tree.

The factory is where images are built: folders and hosts. A published tree is the folder of versions that nodes boot from.
"""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import detachment, release_layout
from steps.contract.detachment import Factory
from steps.contract.plain_text import count
from steps.errors import StepError
from steps.nodeimage.contract import boot_tree, image_manifest
from steps.nodeimage.contract.boot_tree import PublishTarget
from steps.nodeimage.files import squashfs_listing
from steps.nodeimage.publishing import external_links
from workflows.app import release_trees
from workflows.app.images import published_trees
from workflows.app.images.published_trees import OpenedTree, TreeLogin


class Detachment(Struct, frozen=True, kw_only=True):
    """A tree checked for ways into the factory: (place, reason) of each problem, places not read, and sentences about moves."""

    location: str
    factory: Factory
    problems: list[tuple[str, str]]
    unread: list[str]
    moved: list[str]
    summary: str


def check(tree: str, image: str, login: TreeLogin, url: str, folders: Iterable[str], hosts: Iterable[str]) -> Detachment:
    """Look in a published tree for whatever leads out of it or into the factory: this machine's store, these folders and hosts."""
    of = release_trees.factory_of(folders, hosts)
    unread: list[str] = []
    with published_trees.opened(tree, image, login) as opened_tree:
        looks, url, where = opened_tree.looks(), url or opened_tree.place.url, opened_tree.transport.where
        rows = list(release_trees.inside_factory(where, opened_tree.place.host, of))
        for look in looks:
            links = external_links.external_links(look, url, of)
            rows += [(link.place, f"leads to {link.leads_to}: {link.why}") for link in links]
            rows += _roots(opened_tree, look, of, unread)
        moved = [sentence for look in looks for sentence in external_links.moved_sentences(look, url)]
    rows, unread = list(dict.fromkeys(rows)), list(dict.fromkeys(unread))
    return Detachment(location=where, factory=of, problems=rows, unread=unread, moved=moved, summary=_summary(looks, of))


def _roots(opened_tree: OpenedTree[PublishTarget], look: ReleaseTree, of: Factory, unread: list[str]) -> Iterable[tuple[str, str]]:
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


def _summary(looks: Iterable[ReleaseTree], of: Factory) -> str:
    """Return the sentence about a tree without problems: how much was read, and which folders and hosts nothing in it names."""
    all_trees = list(looks)
    links = sum(entry.is_link for look in all_trees for entry in look.entries.values())
    scripts = len({path for look in all_trees for path in look.contents if path.endswith(boot_tree.SCRIPT)})
    sentence = f"{count(links, 'link')} and {count(scripts, 'script')} lead nowhere else, and nothing names"
    return f"{sentence} {release_trees.looked_for(of)}"
