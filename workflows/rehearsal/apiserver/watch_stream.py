"""WATCH requests: a stream of changes to one client until its time is over, the client falls behind, or the server ends it."""

import asyncio
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec
from aiohttp import web

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.listing import revision_of
from workflows.rehearsal.apiserver.object_store import ObjectStore
from workflows.rehearsal.apiserver.representations import Presenter
from workflows.rehearsal.apiserver.selectors import Selection
from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.watchlog import ObjectChange, Subscription, WatchLog

BOOKMARK_EVERY_S = 30.0
_MIN_LIFE_S = 1800
_CHUNK = 1 << 20
TRUE_VALUES = frozenset({"1", "true", "True"})


@dataclass(frozen=True)
class WatchOptions:
    """Options of a watch request.

    `revision` None means from now on. `initial` sends the present objects first, as ADDED. `life_s` is in seconds.
    """

    revision: int | None
    initial: bool
    mark_end: bool
    bookmarks: bool
    life_s: float


def watch_options(query: Mapping[str, str], store: ObjectStore) -> WatchOptions:
    """Return the options of a watch request. Raises StatusError (400 or 422) for parameters that contradict each other."""
    revision = revision_of(query, store.revision)
    send = query.get("sendInitialEvents")
    if send is not None and query.get("resourceVersionMatch") != "NotOlderThan":
        message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise errors.invalid("meta.k8s.io", "ListOptions", "", [f"resourceVersionMatch: Forbidden: {message}"])
    initial = send in TRUE_VALUES if send is not None else not revision
    seconds = query.get("timeoutSeconds") or "0"
    if not seconds.isdigit():
        raise errors.bad_request(f"invalid timeoutSeconds: {seconds!r}")
    life_s = float(seconds) or _MIN_LIFE_S * (1 + random.random())
    bookmarks = query.get("allowWatchBookmarks") in TRUE_VALUES
    return WatchOptions(
        None if initial or not revision else revision, initial, bookmarks and send in TRUE_VALUES, bookmarks, life_s
    )


class WatchStream:
    """The stream of one watch request."""

    def __init__(
        self, store: ObjectStore, resource: ServedResource, selection: Selection, presenter: Presenter, options: WatchOptions
    ) -> None:
        self._store = store
        self._resource = resource
        self._present = presenter
        self._options = options
        self._subscription = Subscription(selection)

    async def run(self, response: web.StreamResponse) -> None:
        """Write events to a prepared response until the watch ends."""
        table = self._store.table(self._resource.key)
        selection = self._subscription.selection
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
            body = self._present.event_object(change.entry)
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
