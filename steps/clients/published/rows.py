"""A tree in rows for people and scripts: its versions, and what runs on which node. Pure."""

from enum import StrEnum

from msgspec import Struct

from steps import timeouts
from steps.clients.published import reading, signing
from steps.clients.published.tree import Tree
from steps.contract.image import published
from steps.contract.image.published import NodeSeen, Switch
from steps.contract.image.testing import Result


class Version(Struct, frozen=True, kw_only=True):
    """One version: digest of its manifest, bytes of all its files, whether these are `whole` as far as names and sizes tell
    (`bringup image verify` reads them), whether the pointer names it, when it became current last (UTC
    seconds; 0: never) and by whom, how its signature is, the nodes that reported it, and those of them that have been silent for
    too long since (`stale`). Besides what it is made of and was published upon: key, where the recipe came from, tools that packed
    it, results of its tests."""

    image: str
    version: str
    digest: str
    size: int
    whole: bool
    current: bool
    switched: float
    by: str
    signature: str
    nodes: tuple[str, ...]
    stale: tuple[str, ...]
    key: str
    origin: str
    tools: dict[str, str]
    tests: dict[str, list[Result]]


class Stand(StrEnum):
    """How what a node runs stands to the current version. `unknown`: no version that is here; `unreadable`: its report is none;
    `stranger`: a machine that no group names, where all groups name theirs: nothing is kept for its sake; `stale`: it has not told
    for so long that nobody knows whether it still runs what it told then, or runs at all."""

    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"
    UNKNOWN = "unknown"
    UNREADABLE = "unreadable"
    STRANGER = "stranger"
    STALE = "stale"


class Node(Struct, frozen=True, kw_only=True):
    """One node: what it reported, the version that this is, since when it runs and when it told so last (UTC seconds), and how old
    that is (seconds; the file server's clock and this machine's may differ a little)."""

    node: str
    version: str
    stand: Stand
    image: str
    at: float
    told: int
    age: int
    mac: str


def versions(
    tree: Tree, signers: tuple[str, ...] = (), *, now: float, silence: float = timeouts.NODE_SILENCE
) -> tuple[Version, ...]:
    """All versions of an image, the newest first. Who has been silent for longer than `silence` seconds is stale."""
    switched = {one.to: one for one in reading.history(tree)}
    seen, here = reading.nodes(tree), reading.versions(tree)
    running: dict[str, list[str]] = {}
    for one in seen:
        running.setdefault(here.on(one), []).append(one.node)
    stale = {one.node for one in seen if now - reading.told(tree, one) > silence}
    return tuple(
        _version(tree, name, switched.get(name, Switch(to=name)), signers, running.get(name, []), stale)
        for name in reversed(tree.versions)
    )


def _version(tree: Tree, name: str, switch: Switch, signers: tuple[str, ...], running: list[str], stale: set[str]) -> Version:
    image, tested = reading.manifest_of(tree, name), reading.tested(tree, name)
    return Version(
        image=tree.image,
        version=name,
        digest=reading.manifest_digest(tree, name),
        size=sum(part.size for part in reading.found(tree, name)),
        whole=reading.seems_whole(tree, name),
        current=name == tree.current,
        switched=switch.at,
        by=switch.by,
        signature=signing.state(tree, name, signers),
        nodes=tuple(running),
        stale=tuple(one for one in running if one in stale),
        key=image.key if image else "",
        origin=tested.origin,
        tools=image.tools if image else {},
        tests=tested.results,
    )


def nodes(trees: tuple[Tree, ...], *, now: float, silence: float = timeouts.NODE_SILENCE) -> tuple[Node, ...]:
    """All nodes that reported, by name; each with the image of the tree that has what it runs. Who has been silent for longer than
    `silence` seconds is stale."""
    every = tuple(_Image(name=tree.image, current=tree.current, versions=reading.versions(tree)) for tree in trees)
    return tuple(_node(every, one, reading.told(trees[0], one), now, silence) for one in (reading.nodes(trees[0]) if trees else ()))


class _Image(Struct, frozen=True, kw_only=True):
    """What of an image's tree all nodes are compared with."""

    name: str
    current: str
    versions: reading.Versions


def _node(every: tuple[_Image, ...], seen: NodeSeen, told: int, now: float, silence: float) -> Node:
    image, version, stand = "", seen.version, Stand.UNREADABLE
    if seen.image or seen.version or seen.manifest:
        stand = Stand.UNKNOWN
    for one in every:
        if found := one.versions.on(seen):
            image, version = one.name, found
            stand = _stand(published.number_of(found), published.number_of(one.current), same=found == one.current)
            stand = stand if one.versions.knows(seen) else Stand.STRANGER
            break
    if now - told > silence and stand not in (Stand.UNREADABLE, Stand.STRANGER):
        stand = Stand.STALE
    age = max(0, int(now - told))
    return Node(node=seen.node, version=version, stand=stand, image=image, at=seen.at, told=told, age=age, mac=seen.mac)


def _stand(number: int, current: int, *, same: bool) -> Stand:
    if same:
        return Stand.CURRENT
    return Stand.OLDER if number < current else Stand.NEWER
