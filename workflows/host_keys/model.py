"""Host keys, their states according to known_hosts, and table rows of them, which hosts with the same outcome share.

A fingerprint that a person has to compare keeps a row of its own, unless there are too many.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from steps.contract.host_play import Jump, PlayHost
from steps.contract.host_ranges import fold


class KeyState(StrEnum):
    """State of a scanned key according to known_hosts. `certified`: the key has a certificate of a CA that the file trusts.

    `no answer`: the host showed no key.
    """

    NEW = "new"
    SAME = "same"
    CHANGED = "CHANGED"
    REVOKED = "REVOKED"
    CERTIFIED = "certified"
    SILENT = "no answer"


@dataclass(frozen=True, kw_only=True)
class Key:
    """A public host key: `kind` as in known_hosts (`ssh-ed25519`), `blob` in base64."""

    kind: str
    blob: str

    @property
    def fingerprint(self) -> str:
        """Fingerprint `SHA256:…` as `ssh` and `ssh-keygen -l` print it."""
        try:
            raw = base64.b64decode(self.blob, validate=True)
        except binascii.Error:
            return "not base64"
        return "SHA256:" + base64.b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")


@dataclass(frozen=True, kw_only=True)
class ScannedKey:
    """A key that a host showed, with its state. Without an answer, `key` is None and `said` is the reason.

    `place` is the name of the host in known_hosts.
    """

    host: str
    place: str
    state: KeyState
    key: Key | None = None
    said: str = ""


def place(access: PlayHost | Jump) -> str:
    """Return the name of a host in known_hosts: its address, in brackets with the port unless that is 22."""
    return access.address if access.port == 22 else f"[{access.address}]:{access.port}"


SHOWN = 50
"""Largest number of hosts whose new keys are shown one by one; more of them must be compared by a program (`-o json`)."""
_ALONE = (KeyState.CHANGED, KeyState.REVOKED)
"""States for which each host gets a row of its own."""
_BEFORE_HOSTS = "jump host"
NOTHING = "-"

Cells = tuple[str, str, str, str, str, str]
"""Cells of a row: host, address, type of key, fingerprint, state, note."""


def fold_rows(rows: Sequence[ScannedKey]) -> list[Cells]:
    """Return table rows for a person, in the order of their first keys; hosts with the same outcome share a row."""
    shown = len({row.place for row in rows if row.state is KeyState.NEW}) <= SHOWN
    batches: dict[tuple[object, ...], list[ScannedKey]] = {}
    for row in rows:
        alone = row.state in _ALONE or row.host == _BEFORE_HOSTS or (shown and row.state is KeyState.NEW)
        kind = row.key.kind if row.key else ""
        batches.setdefault((row.state, kind, row.said, *((row.place, row.key) if alone else ())), []).append(row)
    return [_line(batch) for batch in batches.values()]


def columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Return names and cells without the columns that are empty (or `-`) in every row."""
    filled = [number for number, _ in enumerate(names) if any(row[number] not in ("", NOTHING) for row in rows)]
    return [names[number] for number in filled], [[row[number] for number in filled] for row in rows]


def key_rows(rows: Iterable[ScannedKey]) -> Iterator[Cells]:
    """Yield one row for each scanned key, for scripts."""
    return (_cells(row, row.host, row.place, row.key.fingerprint if row.key else NOTHING) for row in rows)


def _line(batch: Sequence[ScannedKey]) -> Cells:
    first = batch[0]
    if len({row.host for row in batch}) == 1:
        return _cells(first, first.host, first.place, first.key.fingerprint if first.key else NOTHING)
    prints = {row.key.fingerprint for row in batch if row.key}
    fingerprint = next(iter(prints)) if len(prints) == 1 else f"{len(prints)} fingerprints" if prints else NOTHING
    return _cells(first, fold(row.host for row in batch), f"{len({row.place for row in batch})} addresses", fingerprint)


def _cells(row: ScannedKey, host: str, place: str, fingerprint: str) -> Cells:
    return (host, place, row.key.kind if row.key else NOTHING, fingerprint, row.state.value, row.said)
