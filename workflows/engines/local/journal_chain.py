"""The hash chain over the records of a journal: shows records that were lost, altered, added or moved.

Each record's link is the digest of the record and of the link before it. The head covers the last link and the run's phase. A chain
without a key shows accidents and careless edits; somebody who writes every link anew can forge it.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

HEAD = "head"
CHANGING = ("phase", "message", "shutdown", "suspended")
"""Settings of a journal that change during a run; all others are part of the first link."""
Row = tuple[int, str, str, float, float, str, float]
"""Columns of a record: number, kind, body, seconds since the run's start, wall time, boot id, and uptime."""


class BrokenChainError(ValueError):
    """Exception: a journal's records do not follow from each other; the text says where."""


@dataclass(frozen=True, slots=True)
class ChainEnd:
    """The last record of a chain: its number (0 before the first record), and its link."""

    seq: int
    link: str

    @classmethod
    def of_settings(cls, meta: Mapping[str, str]) -> ChainEnd:
        """Return the end of a chain without records, which follows from the run's settings."""
        return cls(0, _digest(sorted((key, value) for key, value in meta.items() if key not in (*CHANGING, HEAD))))

    def then(self, row: Row) -> ChainEnd:
        """Return the end of the chain after one more record."""
        return ChainEnd(row[0], _digest([self.link, *row]))

    def head(self, meta: Mapping[str, str]) -> str:
        """Return the digest that covers this end and the changing settings."""
        return _digest([self.seq, self.link, *(meta.get(key, "") for key in CHANGING)])


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def verify(connection: sqlite3.Connection, seen: ChainEnd | None = None, verified: ChainEnd | None = None) -> ChainEnd:
    """Return the end of a journal's chain. Raises BrokenChainError where a record does not follow from the one before.

    `seen` is an end that was noted outside the journal: the chain must have passed through it. Records up to `verified` are not
    read again, if that is still part of the chain: somebody who follows a run reads its journal twice a second.
    """
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    start = ChainEnd.of_settings(meta)
    if verified is not None:
        known = connection.execute("SELECT link FROM records WHERE seq = ?", (verified.seq,)).fetchone()
        start = verified if known == (verified.link,) else start
    columns = "seq, kind, body, at, wall, boot, uptime, link"
    rows = connection.execute(f"SELECT {columns} FROM records WHERE seq > ? ORDER BY seq", (start.seq,))  # our columns
    end = _followed(start, rows, seen)
    if meta.get(HEAD) != end.head(meta):
        raise BrokenChainError(
            f"it does not end as it was written: records after number {end.seq} are lost, or its phase was altered"
        )
    if seen is not None and seen.seq > end.seq:
        raise BrokenChainError(
            f"it ends with record {end.seq}, but its engine had written record {seen.seq}: the last ones are lost"
        )
    return end


def _followed(
    end: ChainEnd, rows: Iterable[tuple[int, str, str, float, float, str, float, str]], seen: ChainEnd | None
) -> ChainEnd:
    for *columns, link in rows:
        row: Row = tuple(columns)  # type: ignore[assignment]
        if row[0] != end.seq + 1:
            raise BrokenChainError(f"record {end.seq + 1} is lost")
        end = end.then(row)
        if end.link != link or (seen is not None and end.seq == seen.seq and end != seen):
            raise BrokenChainError(f"record {end.seq} or one before it was altered")
    return end
