"""Quarantine: nodes set aside by a stage, with the reason, as the store holds them; how a node shows it, and how one comes back."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from steps.contract.run import Read

ANNOTATION = "bringup/quarantine"
"""Annotation of a Node that a run has cordoned: a `Note` as JSON. A cordon without it is somebody else's."""


class Entry(Struct, frozen=True, kw_only=True):
    """One node that a stage went on without."""

    node: str
    stage: str
    gate: str
    reason: str


class Note(Struct, frozen=True, kw_only=True):
    """What the annotation of a cordoned node says."""

    run: str
    stage: str
    reason: str


class Release(Struct, frozen=True, kw_only=True):
    """Evidence that a person released a node: `when` is UTC seconds since the epoch; `uncordoned`: the target showed our cordon,
    and it was taken off."""

    run: str
    node: str
    stage: str
    reason: str
    who: str
    when: float
    uncordoned: bool
    schema: int = 1


def folder(run: str) -> str:
    """Below which the entries of a run's stages lie."""
    return f"runs/{run}/quarantine"


def key(run: str, stage: str) -> str:
    """Where a stage's entries lie: derived from its judge's evidence, hence replaceable."""
    return f"{folder(run)}/{stage}.json"


def release_key(run: str, node: str) -> str:
    """Where the release of a node lies, written once; beside the runs, because a run is sealed by then."""
    return f"releases/{run}/{node}.json"


def encode(entries: tuple[Entry, ...]) -> bytes:
    """The bytes of a stage's entries."""
    return msgspec.json.encode(entries)


def decode(data: bytes) -> tuple[Entry, ...]:
    """Read a stage's entries."""
    return msgspec.json.decode(data, type=tuple[Entry, ...])


def decode_release(data: bytes) -> Release:
    """Read the release of a node."""
    return msgspec.json.decode(data, type=Release)


def entries(keys: Iterable[str], read: Read) -> tuple[Entry, ...]:
    """All entries below these keys of the store, by node; a node that two stages name is the first one's."""
    found: dict[str, Entry] = {}
    for one in (entry for name in keys if (data := read(name)) for entry in decode(data)):
        found.setdefault(one.node, one)
    return tuple(found[node] for node in sorted(found))
