"""The use case of `bringup stack diff`: compare two versions of a stack, or a version with a lock."""

from pathlib import Path

from msgspec import Struct

from steps.clients.releases.release_tree import ReleaseTree
from steps.softwarestack.contract import stack_difference
from steps.softwarestack.contract.stack_difference import StackDifference, StackPart, part_name
from steps.softwarestack.contract.stack_release import StackManifest
from steps.softwarestack.publication import stack_kind
from workflows.app.release_trees import NoTree
from workflows.app.stacks import stack_plans, stack_trees
from workflows.softwarestack.build_graph import BuildGraph


class ComparedStack(Struct, frozen=True, kw_only=True):
    """A side of a comparison: its name for people, its packages, and its manifest if it is a version."""

    name: str
    parts: tuple[StackPart, ...]
    manifest: StackManifest | None = None


def compare(before: str, after: str, tree: str, stack: str) -> tuple[ComparedStack, ComparedStack, StackDifference]:
    """Return both sides and their difference. Each is a version, its number, `current`, `before`, or the path of a lock or spec.

    Raises NoTree for a version that is not there, LockError and SpecErrors for an unusable file.
    """
    sides = [_of_lock(side) if Path(side).is_file() else None for side in (before, after)]
    if None in sides:
        with stack_trees.opened(tree, stack) as opened_tree:
            look = opened_tree.transport.look(opened_tree.only())
        sides = [side or _of_version(look, name) for side, name in zip(sides, (before, after), strict=True)]
    old, new = sides
    assert old is not None
    assert new is not None
    if old.manifest is not None and new.manifest is not None:
        return old, new, stack_difference.compare_manifests(old.manifest, new.manifest)
    return old, new, stack_difference.compare_parts(old.parts, new.parts)


def _of_version(look: ReleaseTree, name: str) -> ComparedStack:
    version = stack_trees.chosen_version(look, name, "or give the path of a lock or of a stack spec")
    manifest = stack_kind.manifest_of(look, version)
    if manifest is None:
        message = f"{look.version_path(version)} has no manifest that can be read"
        raise NoTree(message, "`bringup stack verify` names everything that is wrong")
    return ComparedStack(name=version, parts=stack_difference.parts_of(manifest), manifest=manifest)


def _of_lock(source: str) -> ComparedStack:
    graph = stack_plans.graph_of(source)
    members, waiting = set(graph.roots), list(graph.roots)
    while waiting:
        fresh = [needed for needed in graph.nodes[waiting.pop()].runtime if needed not in members]
        members.update(fresh)
        waiting += fresh
    return ComparedStack(name=source, parts=tuple(_parts(graph, members)))


def _parts(graph: BuildGraph, members: set[str]) -> list[StackPart]:
    nodes = (graph.nodes[hash_] for hash_ in graph.order if hash_ in members)
    return [
        StackPart(hash=node.hash, name=part_name(node.name, node.target if graph.targets else ""), version=node.version)
        for node in nodes
        if not node.external
    ]
