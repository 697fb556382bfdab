"""LIST requests: a consistent snapshot, returned in chunks with continue tokens (`limit`, `continue`)."""

import base64
import binascii
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.object_store import ObjectStore
from workflows.rehearsal.apiserver.selectors import Selection
from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.stored_object import StoredObject

TOKEN_LIFE_S = 300
"""Life of a continue token in seconds; a real server loses a list's snapshot at etcd's compaction every five minutes."""
_MAX_SNAPSHOTS = 64


class _Token(msgspec.Struct):
    snapshot: str
    offset: int


@dataclass(frozen=True)
class _Snapshot:
    revision: int
    entries: list[StoredObject]
    born: float
    narrowed: bool


@dataclass(frozen=True)
class ListChunk:
    """A chunk of a list, with its ListMeta."""

    entries: list[StoredObject]
    metadata: dict[str, Any]


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    if not text.isdigit():
        raise errors.bad_request(f"invalid {name}: {text!r} is not a number")
    return int(text)


def revision_of(query: Mapping[str, str], current: int) -> int:
    """Return the `resourceVersion` parameter, 0 if absent.

    Raises StatusError: 400 if it is not a number, 504 if this server has not reached that revision.
    """
    revision = _number(query, "resourceVersion")
    if revision > current:
        raise errors.too_new(revision, current)
    return revision


class ListSnapshots:
    """The snapshots of LIST requests whose chunks are not all fetched yet."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._snapshots: OrderedDict[str, _Snapshot] = OrderedDict()

    def page(self, resource: ServedResource, selection: Selection, query: Mapping[str, str]) -> ListChunk:
        """Return the chunk that a request asks for.

        Raises StatusError: 400, 410 (token or exact revision too old) or 504 (revision not reached).
        """
        limit = _number(query, "limit")
        if query.get("continue"):
            return self._next(query["continue"], limit)
        table = self._store.table(resource.key)
        revision = revision_of(query, self._store.revision)
        if query.get("resourceVersionMatch") == "Exact" and revision < table.log.last:
            raise errors.expired("The resourceVersion for the provided list is too old.")
        entries = table.slice(selection.namespace)
        if selection.narrows:
            entries = [entry for entry in entries if selection.matches(entry)]
        snapshot = _Snapshot(self._store.revision, entries, time.monotonic(), selection.narrows)
        return self._cut(snapshot, "", 0, limit)

    def _cut(self, snapshot: _Snapshot, name: str, offset: int, limit: int) -> ListChunk:
        metadata: dict[str, Any] = {"resourceVersion": str(snapshot.revision)}
        left = len(snapshot.entries) - offset - limit
        if not limit or left <= 0:
            self._snapshots.pop(name, None)
            return ListChunk(snapshot.entries[offset:] if offset else snapshot.entries, metadata)
        name = name or self._keep(snapshot)
        token = msgspec.json.encode(_Token(name, offset + limit))
        metadata["continue"] = base64.urlsafe_b64encode(token).decode().rstrip("=")
        # A real server leaves the count out when a selector narrows the list.
        if not snapshot.narrowed:
            metadata["remainingItemCount"] = left
        return ListChunk(snapshot.entries[offset : offset + limit], metadata)

    def _keep(self, snapshot: _Snapshot) -> str:
        while len(self._snapshots) >= _MAX_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        name = secrets.token_hex(8)
        self._snapshots[name] = snapshot
        return name

    def _next(self, text: str, limit: int) -> ListChunk:
        try:
            token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
        except (binascii.Error, msgspec.DecodeError, UnicodeError) as error:
            raise errors.bad_request("continue key is not valid") from error
        self._forget_old()
        snapshot = self._snapshots.get(token.snapshot)
        if snapshot is None:
            start_again = "You must start a new list without the continue parameter."
            raise errors.expired(f"The provided continue parameter is too old to display a consistent list result. {start_again}")
        return self._cut(snapshot, token.snapshot, token.offset, limit)

    def _forget_old(self) -> None:
        limit = time.monotonic() - TOKEN_LIFE_S
        for name in [name for name, snapshot in self._snapshots.items() if snapshot.born < limit]:
            del self._snapshots[name]

    def expire(self) -> None:
        """Invalidate all continue tokens."""
        self._snapshots.clear()
