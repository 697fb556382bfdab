"""Quarantine: nodes that a stage set aside with the reason, in the store and on the Node object, and their release."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from steps.contract.run_records import Read

ANNOTATION = "bringup/quarantine"
"""Annotation of a Node that a run has cordoned: a `CordonNote` as JSON. A cordon without it was made by somebody else."""


class QuarantineEntry(Struct, frozen=True, kw_only=True):
    """A node that a stage quarantined, with the reason; stored in the run."""

    node: str
    stage: str
    gate: str
    reason: str


class CordonNote(Struct, frozen=True, kw_only=True):
    """Content of the annotation of a node that a run cordoned."""

    run: str
    stage: str
    reason: str


class NodeRelease(Struct, frozen=True, kw_only=True):
    """Record that a person released a node from quarantine.

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
    """Return the store key of a stage's quarantine entries, which may be rewritten because they follow from the judge's record."""
    return f"{folder(run)}/{stage}.json"


def release_key(run: str, node: str) -> str:
    """Return the write-once store key of a node's release. It lies outside of `runs/`, because the run is sealed by then."""
    return f"releases/{run}/{node}.json"


def encode(entries: tuple[QuarantineEntry, ...]) -> bytes:
    """Return a stage's quarantine entries as JSON."""
    return msgspec.json.encode(entries)


def decode(data: bytes) -> tuple[QuarantineEntry, ...]:
    """Return the quarantine entries in the JSON that a stage stored."""
    return msgspec.json.decode(data, type=tuple[QuarantineEntry, ...])


def decode_release(data: bytes) -> NodeRelease:
    """Return the record of a node's release from its JSON."""
    return msgspec.json.decode(data, type=NodeRelease)


def entries(keys: Iterable[str], read: Read) -> tuple[QuarantineEntry, ...]:
    """Return all quarantine entries in the files at some store keys, sorted by node.

    If two stages name a node, the first entry counts.
    """
    by_node: dict[str, QuarantineEntry] = {}
    for item in (entry for name in keys if (data := read(name)) for entry in decode(data)):
        by_node.setdefault(item.node, item)
    return tuple(by_node[node] for node in sorted(by_node))
