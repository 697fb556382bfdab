"""A tree in rows for people and scripts: its versions, and what runs on which node. Pure."""

from enum import StrEnum

from msgspec import Struct

from steps.clients.published import reading, signing
from steps.clients.published.tree import Tree
from steps.contract.image import published
from steps.contract.image.published import NodeSeen, Switch
from steps.contract.image.testing import Result


class Version(Struct, frozen=True, kw_only=True):
    """One version: digest of its manifest, bytes of all its files, whether the pointer names it, when it became current last (UTC
    seconds; 0: never) and by whom, how its signature is, and the nodes that reported it. Besides what it is made of and was
    published upon: key, where the recipe came from, tools that packed it, results of its tests."""

    image: str
    version: str
    digest: str
    size: int
    current: bool
    switched: float
    by: str
    signature: str
    nodes: tuple[str, ...]
    key: str
    origin: str
    tools: dict[str, str]
    tests: dict[str, list[Result]]


class Stand(StrEnum):
    """How what a node runs stands to the current version. `unknown`: no version that is here; `unreadable`: its report is none;
    `stranger`: a machine that no group names, where all groups name theirs: nothing is kept for its sake."""

    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"
    STRANGER = "stranger"


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
        _version(tree, name, switched.get(name, Switch(to=name)), signers, tuple(running.get(name, ())))
        for name in reversed(tree.versions)
    )


def _version(tree: Tree, name: str, switch: Switch, signers: tuple[str, ...], running: tuple[str, ...]) -> Version:
    image, tested = reading.manifest_of(tree, name), reading.tested(tree, name)
    return Version(
        image=tree.image,
        version=name,
        digest=reading.manifest_digest(tree, name),
        size=sum(part.size for part in reading.found(tree, name)),
        current=name == tree.current,
        switched=switch.at,
        by=switch.by,
        signature=signing.state(tree, name, signers),
        nodes=running,
        key=image.key if image else "",
        origin=tested.origin,
        tools=image.tools if image else {},
        tests=tested.results,
    )


def nodes(trees: tuple[Tree, ...]) -> tuple[Node, ...]:
    """All nodes that reported, by name; each with the image of the tree that has what it runs."""
    seen = reading.nodes(trees[0]) if trees else ()
    return tuple(_node(trees, one) for one in seen)


def _node(trees: tuple[Tree, ...], seen: NodeSeen) -> Node:
    for tree in trees:
        if version := reading.version_on(tree, seen):
            stand = _stand(published.number_of(version), published.number_of(tree.current), same=version == tree.current)
            stand = stand if reading.is_known(seen, reading.machines(tree)) else Stand.STRANGER
            return Node(node=seen.node, version=version, stand=stand, image=tree.image, at=seen.at, mac=seen.mac)
    stand = Stand.UNKNOWN if seen.image or seen.version or seen.manifest else Stand.UNREADABLE
    return Node(node=seen.node, version=seen.version, stand=stand, image="", at=seen.at, mac=seen.mac)


def _stand(number: int, current: int, *, same: bool) -> Stand:
    if same:
        return Stand.CURRENT
    return Stand.OLDER if number < current else Stand.NEWER
