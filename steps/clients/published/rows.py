"""A tree in rows for people and scripts: its versions, and what runs on which node. Pure."""

from enum import StrEnum

from msgspec import Struct

from steps.clients.published import reading, signing
from steps.clients.published.tree import Tree
from steps.contract.image import published
from steps.contract.image.published import NodeSeen


class Version(Struct, frozen=True, kw_only=True):
    """One version: digest of its manifest, bytes of all its files, whether the pointer names it, when it became current last (UTC
    seconds; 0: never) and by whom, how its signature is, and the nodes that reported it."""

    image: str
    version: str
    digest: str
    size: int
    current: bool
    switched: float
    by: str
    signature: str
    nodes: tuple[str, ...]


class Stand(StrEnum):
    """How what a node runs stands to the current version. `unknown`: no version that is here."""

    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"
    UNKNOWN = "unknown"


class Node(Struct, frozen=True, kw_only=True):
    """One node: what it reported, the version that this is, and since when it runs (UTC seconds)."""

    node: str
    version: str
    stand: Stand
    image: str
    at: float
    mac: str


def versions(tree: Tree, signers: tuple[str, ...] = ()) -> tuple[Version, ...]:
    """All versions of an image, the newest first."""
    switched = {one.to: one for one in reading.history(tree)}
    running: dict[str, list[str]] = {}
    for one in reading.nodes(tree):
        running.setdefault(reading.version_on(tree, one), []).append(one.node)
    return tuple(
        Version(
            image=tree.image,
            version=name,
            digest=reading.manifest_digest(tree, name),
            size=sum(part.size for part in reading.found(tree, name)),
            current=name == tree.current,
            switched=switched[name].at if name in switched else 0.0,
            by=switched[name].by if name in switched else "",
            signature=signing.state(tree, name, signers),
            nodes=tuple(running.get(name, ())),
        )
        for name in reversed(tree.versions)
    )


def nodes(trees: tuple[Tree, ...]) -> tuple[Node, ...]:
    """All nodes that reported, by name; each with the image of the tree that has what it runs."""
    seen = reading.nodes(trees[0]) if trees else ()
    return tuple(_node(trees, one) for one in seen)


def _node(trees: tuple[Tree, ...], seen: NodeSeen) -> Node:
    for tree in trees:
        if version := reading.version_on(tree, seen):
            stand = _stand(published.number_of(version), published.number_of(tree.current), same=version == tree.current)
            return Node(node=seen.node, version=version, stand=stand, image=tree.image, at=seen.at, mac=seen.mac)
    return Node(node=seen.node, version=seen.version, stand=Stand.UNKNOWN, image="", at=seen.at, mac=seen.mac)


def _stand(number: int, current: int, *, same: bool) -> Stand:
    if same:
        return Stand.CURRENT
    return Stand.OLDER if number < current else Stand.NEWER
