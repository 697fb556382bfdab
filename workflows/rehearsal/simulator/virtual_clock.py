"""Virtual time: a deterministic queue of events, and the speed of time beside real controllers. Nothing here does I/O."""

from __future__ import annotations

import functools
import heapq
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

Action = Callable[[], None]


class VirtualClock:
    """A clock with a queue of events, each under a key. `now` is in seconds since the epoch and moves by `take`, `jump`, `restart`.

    A key that is pending is not scheduled again, so callers may schedule the same event as often as they like. Events of one
    instant run in the order of their keys, so the order in which they were scheduled does not matter.
    """

    def __init__(self, start: float | None = None, quantum: float = 1.0) -> None:
        self.now = time.time() if start is None else start
        self.quantum = quantum
        self._heap: list[tuple[float, str]] = []
        self._pending: dict[str, Action] = {}

    def schedule(self, key: str, delay: float, action: Action) -> bool:
        """Queue `action` for `delay` virtual seconds from now and return True; return False if `key` is pending already.

        Due times are rounded up to the quantum, so that in a large fleet thousands of events share few instants.
        """
        if key in self._pending:
            return False
        due = self.now + max(0.0, delay)
        if delay > 0:
            due = -(-due // self.quantum) * self.quantum
        self._pending[key] = action
        heapq.heappush(self._heap, (due, key))
        return True

    def next_due(self) -> float | None:
        """Return the time of the next event in seconds since the epoch, or None if there is none."""
        return self._heap[0][0] if self._heap else None

    def take(self, until: float) -> Iterator[Action]:
        """Move time to the next event, unless it is due after `until`, and yield the actions of all events at that instant."""
        due = self.next_due()
        if due is None or due > until:
            return
        self.now = max(self.now, due)
        while self.next_due() == due:
            _, key = heapq.heappop(self._heap)
            yield self._pending.pop(key)

    def jump(self, to: float) -> None:
        """Set the time to `to` if that is later than now; never go back."""
        self.now = max(self.now, to)

    def restart(self, now: float) -> None:
        """Set the time, also to an earlier one, and drop all events."""
        self.now = now
        self._heap.clear()
        self._pending.clear()


def stamp(seconds: float) -> str:
    """Return seconds since the epoch as a Kubernetes timestamp in UTC, cut to whole seconds."""
    return _of_second(int(seconds))


@functools.lru_cache(maxsize=64)
def _of_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_stamp(text: str) -> float:
    """Return a Kubernetes timestamp, with or without fractions, in seconds since the epoch."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


UNREST = 0.2
"""Share of the full speed of virtual time while other clients change something."""

REST = 1.0
"""Real seconds without a change by other clients, after which time runs at full speed."""

LONGEST = 0.5
"""Most real seconds that count for one step. A step that comes later had no processor, and neither had the other programs."""


class ClockPace:
    """The speed of virtual time beside real controllers: at least one virtual second in a real one, at most `speed`.

    A gate's deadline passes in virtual time. At a fixed speed of 30, ten minutes would be twenty real seconds, and controllers
    without a processor for so long would fail a healthy cluster. So time slows down while others change what is simulated. Leases
    do not count: leaders renew them every two seconds, and time would never be fast.
    """

    def __init__(self, speed: float, *, patient: bool) -> None:
        self._speed = speed
        self._patient = patient
        self._others = 0
        self._quiet = 0.0

    def seconds(self, wall: float, others: int) -> float:
        """Return by how many virtual seconds to move the clock after `wall` real seconds.

        `others` is the number of syncs so far that found changes by other clients; if it grows, time slows down.
        """
        if not self._patient or self._speed <= 1:
            return wall * self._speed
        self._quiet = self._quiet + min(wall, LONGEST) if others == self._others else 0.0
        self._others = others
        share = 1.0 if self._quiet >= REST else UNREST
        return max(wall, min(wall, LONGEST) * self._speed * share)
