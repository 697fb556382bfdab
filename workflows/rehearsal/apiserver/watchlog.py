"""The recent changes of one resource, and those who follow them.

A watcher that comes back with a revision from before the log's floor gets 410 and lists again, as after an etcd compaction.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, replace

import msgspec

from workflows.rehearsal.apiserver.entry import Entry
from workflows.rehearsal.apiserver.selectors import Selection

MAX_CHANGES = 20_000
MAX_BYTES = 24 << 20
MAX_BACKLOG = 100_000
"""Events that a slow watcher may have waiting before the server ends its watch."""


@dataclass(frozen=True, slots=True)
class Change:
    """`kind` is ADDED, MODIFIED or DELETED; `entry` the new (for DELETED the last) state, `previous` the one before."""

    kind: str
    entry: Entry
    previous: Entry | None

    def seen_through(self, selection: Selection) -> "Change | None":
        """What a watcher with this selection sees: an object that starts or stops matching is ADDED or DELETED to it."""
        now = selection.matches(self.entry)
        before = self.previous is not None and selection.matches(self.previous)
        if self.kind != "MODIFIED":
            return self if (now if self.kind == "ADDED" else before) else None
        if now:
            return self if before else replace(self, kind="ADDED")
        if before and self.previous is not None:
            return replace(self, kind="DELETED", entry=_restamped(self.previous, self.entry.revision))
        return None


def _restamped(entry: Entry, revision: int) -> Entry:
    """The old state under the revision at which it stopped matching, which is what a real watch cache sends."""
    obj = entry.decode()
    obj["metadata"]["resourceVersion"] = str(revision)
    return msgspec.structs.replace(entry, revision=revision, raw=msgspec.json.encode(obj))


class Subscription:
    """One watcher's waiting events. `ended` is why the server stops it: `expired` or `closed`; empty while it runs."""

    def __init__(self, selection: Selection, *, max_backlog: int = MAX_BACKLOG) -> None:
        self.selection = selection
        self._max_backlog = max_backlog
        self.waiting: deque[Change] = deque()
        self.wake = asyncio.Event()
        self.ended = ""

    def offer(self, change: Change) -> None:
        """Queues a change if the selection sees it."""
        seen = change.seen_through(self.selection)
        if seen is None:
            return
        self.waiting.append(seen)
        if len(self.waiting) > self._max_backlog:
            self.waiting.clear()
            self.end("closed")
        self.wake.set()

    def end(self, why: str) -> None:
        """Stops the watch."""
        self.ended = why
        self.wake.set()

    def take(self) -> list[Change]:
        """The waiting changes, taken."""
        self.wake.clear()
        taken = list(self.waiting)
        self.waiting.clear()
        return taken


class WatchLog:
    """Changes in order, bounded by count and bytes."""

    def __init__(self, revision: int, *, max_changes: int = MAX_CHANGES, max_bytes: int = MAX_BYTES) -> None:
        self.floor = revision
        self.last = revision
        self._max_changes = max_changes
        self._max_bytes = max_bytes
        self._changes: deque[Change] = deque()
        self._bytes = 0
        self._followers: set[Subscription] = set()

    def append(self, change: Change) -> None:
        """Adds a change and tells the followers."""
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
        """Subscribes from after `revision` (None: from now); False when the log no longer reaches back so far."""
        if revision is not None:
            if revision < self.floor:
                return False
            for change in self._changes:
                if change.entry.revision > revision:
                    subscription.offer(change)
        self._followers.add(subscription)
        return True

    def unfollow(self, subscription: Subscription) -> None:
        """Ends a subscription."""
        self._followers.discard(subscription)

    def compact(self, revision: int) -> None:
        """Forgets all changes up to now; followers stay."""
        self._changes.clear()
        self._bytes = 0
        self.floor = revision

    def close(self) -> None:
        """Ends all watches, as a restarted server does; clients resume from their last revision."""
        for follower in self._followers:
            follower.end("closed")

    def expire(self, revision: int) -> None:
        """Ends all watches with 410 and forgets the changes."""
        self.compact(revision)
        self.last = revision
        for follower in self._followers:
            follower.end("expired")
