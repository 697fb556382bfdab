"""LIST requests in chunks with continue tokens, and WATCH requests as streams of change events."""

import asyncio
import base64
import binascii
import random
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.object_store import ObjectStore
from workflows.rehearsal.apiserver.representations import Presenter
from workflows.rehearsal.apiserver.selectors import Selection
from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.stored_object import StoredObject
from workflows.rehearsal.apiserver.watchlog import ObjectChange, Subscription, WatchLog

BOOKMARK_EVERY_S = 30.0
_MIN_LIFE_S = 1800
_CHUNK = 1 << 20
TRUE_VALUES = frozenset({"1", "true", "True"})


@dataclass(frozen=True)
class WatchOptions:
    """The options of a watch request.

    `revision` None means changes from now on. With `initial`, the present objects are sent first as ADDED; with `mark_end`, a
    bookmark follows them. `bookmarks` asks for regular bookmarks. The watch ends after `life_s` seconds.
    """

    revision: int | None
    initial: bool
    mark_end: bool
    bookmarks: bool
    life_s: float


def watch_options(query: Mapping[str, str], store: ObjectStore) -> WatchOptions:
    """Return the options in a watch request's query. Raises StatusError: 400 or 422 (malformed) or 504 (future revision)."""
    revision = revision_of(query, store.revision)
    send = query.get("sendInitialEvents")
    if send is not None and query.get("resourceVersionMatch") != "NotOlderThan":
        message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise errors.invalid("meta.k8s.io", "ListOptions", "", [f"resourceVersionMatch: Forbidden: {message}"])
    initial = send in TRUE_VALUES if send is not None else not revision
    seconds = query.get("timeoutSeconds") or "0"
    if not seconds.isdigit():
        raise errors.bad_request(f"invalid timeoutSeconds: {seconds!r}")
    # between 30 and 60 minutes, as kube-apiserver does it (--min-request-timeout)
    life_s = float(seconds) or _MIN_LIFE_S * (1 + random.random())
    bookmarks = query.get("allowWatchBookmarks") in TRUE_VALUES
    return WatchOptions(
        None if initial or not revision else revision, initial, bookmarks and send in TRUE_VALUES, bookmarks, life_s
    )


class WatchStream:
    """One WATCH request: it sends the events of one resource that a selection matches to one client."""

    def __init__(
        self, store: ObjectStore, resource: ServedResource, selection: Selection, presenter: Presenter, options: WatchOptions
    ) -> None:
        self._store = store
        self._resource = resource
        self._present = presenter
        self._options = options
        self._subscription = Subscription(selection)

    async def run(self, response: web.StreamResponse) -> None:
        """Write events to a prepared response until the watch ends by its age, by the server, or because the client went away."""
        table = self._store.table(self._resource.key)
        selection = self._subscription.selection
        # nothing is awaited from here to `follow`, so no change is lost in between or sent twice
        entries = [entry for entry in table.slice(selection.namespace) if selection.matches(entry)] if self._options.initial else []
        revision = self._store.revision
        if not table.log.follow(self._subscription, self._options.revision):
            message = f"too old resource version: {self._options.revision} ({table.log.floor})"
            await response.write(_error(errors.expired(message)))
            return
        try:
            await self._write(response, (ObjectChange("ADDED", entry, None) for entry in entries))
            # Tells informers (WatchList) that the present objects are complete.
            if self._options.mark_end:
                await response.write(self._bookmark(revision, {"k8s.io/initial-events-end": "true"}))
            await self._follow(response, table.log)
        finally:
            table.log.unfollow(self._subscription)

    async def _follow(self, response: web.StreamResponse, log: WatchLog) -> None:
        subscription = self._subscription
        end = time.monotonic() + self._options.life_s
        while not subscription.ended:
            left = end - time.monotonic()
            try:
                async with asyncio.timeout(max(0.0, min(left, BOOKMARK_EVERY_S))):
                    await subscription.wake.wait()
            except TimeoutError:
                # a bookmark must not overtake events of earlier revisions
                if self._options.bookmarks and not subscription.waiting:
                    await response.write(self._bookmark(self._store.revision))
                if left <= BOOKMARK_EVERY_S:
                    return
            await self._write(response, subscription.take())
        if subscription.ended == "expired":
            await response.write(_error(errors.expired(f"too old resource version: the log now starts at {log.floor}")))

    async def _write(self, response: web.StreamResponse, changes: Iterable[ObjectChange]) -> None:
        parts: list[bytes] = []
        size = 0
        for change in changes:
            body = self._present.object(change.entry, headings=False)
            parts += (b'{"type":"%b","object":' % change.kind.encode(), body, b"}\n")
            size += len(body)
            if size > _CHUNK:
                await response.write(b"".join(parts))
                parts, size = [], 0
        if parts:
            await response.write(b"".join(parts))

    def _bookmark(self, revision: int, annotations: Mapping[str, str] | None = None) -> bytes:
        metadata = {"resourceVersion": str(revision)} | ({"annotations": annotations} if annotations else {})
        body = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        return msgspec.json.encode({"type": "BOOKMARK", "object": body}) + b"\n"


def _error(error: errors.StatusError) -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": error.status()}) + b"\n"


TOKEN_LIFE_S = 300
"""Seconds for which a continue token is valid. A real server loses it at etcd's compaction, every five minutes."""
_MAX_SNAPSHOTS = 64


class _Token(msgspec.Struct):
    snapshot: str
    offset: int


@dataclass(frozen=True)
class _ListSnapshot:
    revision: int
    entries: list[StoredObject]
    born: float
    narrowed: bool


@dataclass(frozen=True)
class ListChunk:
    """One chunk of a LIST answer: its objects, and its ListMeta (revision, continue token, number of remaining objects)."""

    entries: list[StoredObject]
    metadata: dict[str, Any]


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name) or "0"
    if not text.isdigit():
        raise errors.bad_request(f"invalid {name}: {text!r} is not a number")
    return int(text)


def revision_of(query: Mapping[str, str], current: int) -> int:
    """Return the request's parameter `resourceVersion` as a number, 0 if absent. `current` is the server's newest revision.

    Raises StatusError: 400 if it is not a number, 504 if this server has not reached that revision.
    """
    revision = _number(query, "resourceVersion")
    if revision > current:
        raise errors.too_new(revision, current)
    return revision


class ListSnapshots:
    """The frozen results of LIST requests whose chunks are not all fetched yet, so that later chunks agree with the first."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._snapshots: OrderedDict[str, _ListSnapshot] = OrderedDict()

    def page(self, resource: ServedResource, selection: Selection, query: Mapping[str, str]) -> ListChunk:
        """Return the chunk that a LIST request asks for: the first, or the one that its continue token names.

        Raises StatusError: 400 (malformed), 410 (token or exact revision too old) or 504 (revision not reached).
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
        snapshot = _ListSnapshot(self._store.revision, entries, time.monotonic(), selection.narrows)
        return self._cut(snapshot, "", 0, limit)

    def _cut(self, snapshot: _ListSnapshot, name: str, offset: int, limit: int) -> ListChunk:
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

    def _keep(self, snapshot: _ListSnapshot) -> str:
        while len(self._snapshots) >= _MAX_SNAPSHOTS:
            self._snapshots.popitem(last=False)
        self._snapshots[name := secrets.token_hex(8)] = snapshot
        return name

    def _next(self, text: str, limit: int) -> ListChunk:
        try:
            token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=_Token)
        except (binascii.Error, msgspec.DecodeError, UnicodeError) as error:
            raise errors.bad_request("continue key is not valid") from error
        snapshot = self._snapshots.get(token.snapshot)
        if snapshot is None or snapshot.born < time.monotonic() - TOKEN_LIFE_S:
            start_again = "You must start a new list without the continue parameter."
            raise errors.expired(f"The provided continue parameter is too old to display a consistent list result. {start_again}")
        return self._cut(snapshot, token.snapshot, token.offset, limit)

    def expire(self) -> None:
        """Invalidate all continue tokens: requests with one are answered with 410."""
        self._snapshots.clear()
