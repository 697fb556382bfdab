"""Use cases of published trees: list versions and nodes, verify, roll back, and serve a tree in a rehearsal."""

import time
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from pathlib import Path

from msgspec import Struct

from steps.clients.releases.release_signatures import UNKNOWN
from steps.nodeimage.publishing import boot_server, external_links, image_kind, image_publication, image_versions, node_reports
from steps.nodeimage.publishing.image_publication import ImageRollback
from steps.nodeimage.publishing.node_reports import ImageVersion, NodeRow
from workflows.app.images import published_trees
from workflows.app.images.published_trees import NoTree, TreeLogin

UNCHECKED = UNKNOWN
"""State of a signature that was not checked, because no key is trusted."""


class TreeVerification(Struct, frozen=True, kw_only=True):
    """A published tree as read again: (place, reason) of each problem, its versions, and sentences about moved ones."""

    location: str
    images: int
    problems: list[tuple[str, str]]
    versions: list[dict[str, str]]
    moved: list[str]


def versions(tree: str, image: str, login: TreeLogin) -> list[ImageVersion]:
    """Return the versions of each chosen image, the newest first, with the nodes that run them."""
    with published_trees.opened(tree, image, login) as opened_tree:
        signers = opened_tree.place.signers
        return [row for look in opened_tree.looks() for row in node_reports.versions(look, signers, now=time.time())]


def verify(tree: str, image: str, login: TreeLogin, signers: tuple[str, ...], url: str) -> TreeVerification:
    """Read every file of a tree again. Without `signers` or `url`, the spec's trusted keys or address are taken."""
    with published_trees.opened(tree, image, login) as opened_tree:
        looks, signers = opened_tree.looks(digests=True), signers or opened_tree.place.signers
        url = url or opened_tree.place.url
        wrong = [(problem.place, problem.why) for look in looks for problem in image_kind.problems(look, signers, url)]
        moved = [sentence for look in looks for sentence in external_links.moved_sentences(look, url)]
        where = opened_tree.transport.where
    listed = [
        {
            "image": look.product,
            "version": version,
            "origin": image_versions.published_test_results(look, version).origin,
            "signature": image_kind.signature_state(look, version, signers),
        }
        for look in looks
        for version in look.versions
    ]
    problems = list(dict.fromkeys(wrong))
    return TreeVerification(location=where, images=len(looks), problems=problems, versions=listed, moved=moved)


def roll_back(
    tree: str, image: str, login: TreeLogin, version: str, actor: str, signers: tuple[str, ...], sign_key: Path | None = None
) -> tuple[str, ImageRollback]:
    """Make an earlier version of the only or chosen image current; return the image's name and the outcome.

    Without `signers`, the spec's keys are trusted. `sign_key` signs which version is current, else the spec's key, if it is on this
    machine. Raises NoTree, and the errors of `image_publication.roll_back`.
    """
    with published_trees.opened(tree, image, login) as opened_tree, published_trees.signing_key(tree, sign_key) as key:
        name, keys = opened_tree.only(), signers or opened_tree.place.signers
        return name, image_publication.roll_back(opened_tree.transport, name, version, actor, keys, key)


def nodes(tree: str, image: str, login: TreeLogin, silence: float) -> tuple[NodeRow, ...]:
    """Return the version that each node reported last; a report older than `silence` seconds is stale."""
    with published_trees.opened(tree, image, login) as opened_tree:
        return node_reports.nodes(opened_tree.looks(), now=time.time(), silence=silence)


def server(tree: Path, address: str, port: int, say: Callable[[str], None]) -> ThreadingHTTPServer:
    """Return a listening HTTP server for a tree; `say` gets a line for each request. Raises NoTree, OSError."""
    if not tree.is_dir():
        raise NoTree(f"{tree} is no folder", published_trees.HINT)
    return boot_server.server(tree, address, port, say)
