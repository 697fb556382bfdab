"""The recent changes of one resource, and the watchers that receive new ones.

A watcher that resumes from a revision before the log's floor gets 410 and lists again, as after an etcd compaction.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, replace

import msgspec

from workflows.rehearsal.apiserver.selectors import Selection
from workflows.rehearsal.apiserver.stored_object import StoredObject

MAX_CHANGES = 20_000
MAX_BYTES = 8 << 20
MAX_BACKLOG = 100_000
"""Number of events that may wait for a slow watcher; one more makes the server end its watch."""


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """One change of a stored object. `kind` is ADDED, MODIFIED or DELETED.

    `entry` is the new state (the last one for DELETED), `previous` the state before, None for ADDED.
    """

    kind: str
    entry: StoredObject
    previous: StoredObject | None

    def seen_through(self, selection: Selection) -> "ObjectChange | None":
        """Return the change as a watcher with this selection sees it, or None if it does not concern the watcher.

        An object that starts or stops matching is ADDED or DELETED for that watcher.
        """
        matches = selection.matches(self.entry)
        before = self.previous is not None and selection.matches(self.previous)
        if self.kind != "MODIFIED":
            return self if (matches if self.kind == "ADDED" else before) else None
        if matches:
            return self if before else replace(self, kind="ADDED")
        if before and self.previous is not None:
            return replace(self, kind="DELETED", entry=_restamped(self.previous, self.entry.revision))
        return None


def _restamped(entry: StoredObject, revision: int) -> StoredObject:
    """Return an object's last matching state under the revision at which it stopped matching, as a real watch cache sends it."""
    obj = entry.decode()
    obj["metadata"]["resourceVersion"] = str(revision)
    return msgspec.structs.replace(entry, revision=revision, raw=msgspec.json.encode(obj))


class Subscription:
    """One watcher: its selection, and its events that are not sent yet.

    `ended` says why the server ends the watch (`expired` or `closed`); it is empty while the watch runs. `wake` is set if there is
    something to do.
    """

    def __init__(self, selection: Selection, *, max_backlog: int = MAX_BACKLOG) -> None:
        self.selection = selection
        self._max_backlog = max_backlog
        self.waiting: deque[ObjectChange] = deque()
        self.wake = asyncio.Event()
        self.ended = ""

    def offer(self, change: ObjectChange) -> None:
        """Queue a change if it concerns the watcher's selection. A watcher with too many waiting events is ended."""
        event = change.seen_through(self.selection)
        if event is None:
            return
        self.waiting.append(event)
        if len(self.waiting) > self._max_backlog:
            self.waiting.clear()
            self.end("closed")
        self.wake.set()

    def end(self, why: str) -> None:
        """End the watch for the reason `expired` (answered with 410) or `closed`, and wake its request."""
        self.ended = why
        self.wake.set()

    def take(self) -> list[ObjectChange]:
        """Return the waiting events and empty the queue."""
        self.wake.clear()
        taken = list(self.waiting)
        self.waiting.clear()
        return taken


class WatchLog:
    """The recent changes of one resource in order, bounded by number and bytes, and the watchers that receive new ones.

    `floor` is the revision up to which changes are forgotten, `last` that of the newest change.
    """

    def __init__(self, revision: int, *, max_changes: int = MAX_CHANGES, max_bytes: int = MAX_BYTES) -> None:
        self.floor = revision
        self.last = revision
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        self._changes: deque[ObjectChange] = deque()
        self._bytes = 0
        self._followers: set[Subscription] = set()

    def append(self, change: ObjectChange) -> None:
        """Add a change, forget the oldest ones above the bounds, and queue it for every watcher."""
        self._changes.append(change)
        self._bytes += len(change.entry.raw)
        self.last = change.entry.revision
        while len(self._changes) > self._max_changes or self._bytes > self._max_bytes:
            dropped = self._changes.popleft()
            self._bytes -= len(dropped.entry.raw)
            self.floor = dropped.entry.revision
        for follower in self._followers:
            follower.offer(change)

    def follow(self, subscription: Subscription, revision: int | None) -> bool:
        """Register a watcher, and queue for it the changes after `revision` (None: new ones only).

        Return False, and do nothing, if some of those changes are forgotten already.
        """
        if revision is not None:
            if revision < self.floor:
                return False
            for change in self._changes:
                if change.entry.revision > revision:
                    subscription.offer(change)
        self._followers.add(subscription)
        return True

    def unfollow(self, subscription: Subscription) -> None:
        """Send a watcher no more changes."""
        self._followers.discard(subscription)

    def compact(self, revision: int) -> None:
        """Forget all recorded changes and set the floor to `revision`; watchers that are up to date go on."""
        self._changes.clear()
        self._bytes = 0
        self.floor = revision

    def close(self) -> None:
        """End all watches as a server that restarts does; clients can resume from their last revision."""
        for follower in self._followers:
            follower.end("closed")

    def expire(self, revision: int) -> None:
        """End all watches with 410 and forget the changes up to `revision`, so that clients list again."""
        self.compact(revision)
        self.last = revision
        for follower in self._followers:
            follower.end("expired")
