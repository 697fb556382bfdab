"""Quarantine: nodes set aside by a stage, with the reason, as the store holds them."""

import msgspec
from msgspec import Struct


class Entry(Struct, frozen=True, kw_only=True):
    """One node that a stage went on without."""

    node: str
    stage: str
    gate: str
    reason: str


def key(run: str, stage: str) -> str:
    """Where a stage's entries lie: derived from its judge's evidence, hence replaceable."""
    return f"runs/{run}/quarantine/{stage}.json"


def encode(entries: tuple[Entry, ...]) -> bytes:
    """The bytes of a stage's entries."""
    return msgspec.json.encode(entries)


def decode(data: bytes) -> tuple[Entry, ...]:
    """Read a stage's entries."""
    return msgspec.json.decode(data, type=tuple[Entry, ...])
