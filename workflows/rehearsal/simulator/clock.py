"""Virtual time: a queue of events by due time; pure, and the same on every run."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

Action = Callable[[], None]


class Clock:
    """`now` is in seconds since the epoch; it starts at the wall's time and moves only by `run_until` and `jump`.

    Every event has a key. A key that is pending is not scheduled again, so level-triggered callers may ask as often as they like.
    Events of the same instant run in the order of their keys, so the order of API users' requests does not matter.
    """

    def __init__(self, start: float | None = None, quantum: float = 1.0) -> None:
        self.now = time.time() if start is None else start
        self.quantum = quantum
        self._heap: list[tuple[float, str]] = []
        self._pending: dict[str, tuple[float, Action]] = {}

    def schedule(self, key: str, delay: float, action: Action) -> bool:
        """Run `action` after `delay` virtual seconds, unless `key` is pending. True when it was added.

        Due times are rounded up to the quantum: at fleet size thousands of events then share few instants.
        """
        if key in self._pending:
            return False
        due = self.now + max(0.0, delay)
        if delay > 0:
            due = -(-due // self.quantum) * self.quantum
        self._pending[key] = (due, action)
        heapq.heappush(self._heap, (due, key))
        return True

    def cancel(self, key: str) -> None:
        """Forget a pending event; nothing happens when there is none."""
        self._pending.pop(key, None)

    def pending(self, key: str) -> bool:
        """Whether an event of this key waits."""
        return key in self._pending

    def __len__(self) -> int:
        return len(self._pending)

    def next_due(self) -> float | None:
        """When the next event is due; None when the queue is empty."""
        while self._heap:
            due, key = self._heap[0]
            if self._pending.get(key, (None,))[0] == due:
                return due
            heapq.heappop(self._heap)
        return None

    def take(self, until: float) -> Iterator[Action]:
        """The actions of the next instant not after `until`; time moves to that instant. Empty when there is none."""
        due = self.next_due()
        if due is None or due > until:
            return
        self.now = max(self.now, due)
        while self.next_due() == due:
            _, key = heapq.heappop(self._heap)
            yield self._pending.pop(key)[1]

    def jump(self, to: float) -> None:
        """Move time forward; never back."""
        self.now = max(self.now, to)

    def restart(self, now: float) -> None:
        """Begin at another time with an empty queue."""
        self.now = now
        self._heap.clear()
        self._pending.clear()

    def stamp(self, offset: float = 0.0) -> str:
        """`now` as Kubernetes writes it: `2026-11-21T13:00:00Z`."""
        return stamp(self.now + offset)


def stamp(seconds: float) -> str:
    """A time as Kubernetes writes it, in whole seconds of UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> float:
    """Seconds since the epoch of a Kubernetes time stamp; fractions are allowed."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
