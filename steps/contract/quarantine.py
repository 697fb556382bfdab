"""Quarantine: nodes that a stage set aside with the reason, in the store and on the Node object, and their release."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from steps.contract.run import Read

ANNOTATION = "bringup/quarantine"
"""Annotation of a Node that a run has cordoned: a `Note` as JSON. A cordon without it was made by somebody else."""


class QuarantineEntry(Struct, frozen=True, kw_only=True):
    """A node that a stage set aside."""

    node: str
    stage: str
    gate: str
    reason: str


class CordonNote(Struct, frozen=True, kw_only=True):
    """Content of the annotation of a cordoned node."""

    run: str
    stage: str
    reason: str


class NodeRelease(Struct, frozen=True, kw_only=True):
    """Evidence that a person released a node.

    `when` is UTC seconds since the epoch. `uncordoned`: the node had a run's cordon, which was removed.
    """

    run: str
    node: str
    stage: str
    reason: str
    who: str
    when: float
    uncordoned: bool
    schema: int = 1


def folder(run: str) -> str:
    """Return the folder of the quarantine entries of a run."""
    return f"runs/{run}/quarantine"


def key(run: str, stage: str) -> str:
    """Return the key of a stage's entries. They are derived from the judge's evidence, hence replaceable."""
    return f"{folder(run)}/{stage}.json"


def release_key(run: str, node: str) -> str:
    """Return the write-once key of a node's release. It is outside of `runs/`, because the run is sealed by then."""
    return f"releases/{run}/{node}.json"


def encode(entries: tuple[QuarantineEntry, ...]) -> bytes:
    """Return the bytes of a stage's entries."""
    return msgspec.json.encode(entries)


def decode(data: bytes) -> tuple[QuarantineEntry, ...]:
    """Read a stage's entries."""
    return msgspec.json.decode(data, type=tuple[QuarantineEntry, ...])


def decode_release(data: bytes) -> NodeRelease:
    """Read the release of a node."""
    return msgspec.json.decode(data, type=NodeRelease)


def entries(keys: Iterable[str], read: Read) -> tuple[QuarantineEntry, ...]:
    """Return all entries below some keys of the store, sorted by node. If two stages name a node, the first entry counts."""
    by_node: dict[str, QuarantineEntry] = {}
    for item in (entry for name in keys if (data := read(name)) for entry in decode(data)):
        by_node.setdefault(item.node, item)
    return tuple(by_node[node] for node in sorted(by_node))
