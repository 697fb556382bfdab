"""Virtual time: a deterministic queue of events by due time, and its pace beside real controllers; pure."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

Action = Callable[[], None]


class VirtualClock:
    """A clock with a queue of keyed events. `now` is in seconds since the epoch and moves by `take`, `jump` and `restart` only.

    A pending key is not scheduled again, so level-triggered callers may schedule as often as they like. Events of one instant run
    in the order of their keys, so the order of requests does not matter.
    """

    def __init__(self, start: float | None = None, quantum: float = 1.0) -> None:
        self.now = time.time() if start is None else start
        self.quantum = quantum
        self._heap: list[tuple[float, str]] = []
        self._pending: dict[str, Action] = {}

    def schedule(self, key: str, delay: float, action: Action) -> bool:
        """Run `action` after `delay` virtual seconds and return True; return False if `key` is pending.

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
        """Return when the next event is due, or None for an empty queue."""
        return self._heap[0][0] if self._heap else None

    def take(self, until: float) -> Iterator[Action]:
        """Yield the actions of the next instant not after `until`, and move time to that instant."""
        due = self.next_due()
        if due is None or due > until:
            return
        self.now = max(self.now, due)
        while self.next_due() == due:
            _, key = heapq.heappop(self._heap)
            yield self._pending.pop(key)

    def jump(self, to: float) -> None:
        """Move time forward, never back."""
        self.now = max(self.now, to)

    def restart(self, now: float) -> None:
        """Set the time and empty the queue."""
        self.now = now
        self._heap.clear()
        self._pending.clear()


def stamp(seconds: float) -> str:
    """Format seconds since the epoch as Kubernetes does, in whole seconds of UTC."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_stamp(text: str) -> float:
    """Return the seconds since the epoch of a Kubernetes time stamp, with or without fractions."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


UNREST = 0.2
"""Share of the full speed at which time passes while others change something."""

REST = 1.0
"""Wall seconds without a change by others after which they count as idle, or as waiting for time to pass."""

LONGEST = 0.5
"""Wall seconds that count for one step at most: a step that comes late had no processor, and neither had the others."""


class ClockPace:
    """The speed of virtual time beside real controllers: at least one virtual second per wall second, at most `speed`.

    A gate's deadline passes in virtual time. At a fixed speed of 30, ten minutes would be twenty wall seconds, and controllers
    without a processor for so long would fail a healthy cluster. So time slows down while others change what is simulated. Leases
    do not count: leaders renew them every two seconds, and time would never be fast.
    """

    def __init__(self, speed: float, *, patient: bool) -> None:
        self._speed = speed
        self._patient = patient
        self._others = 0
        self._quiet = 0.0

    def seconds(self, wall: float, others: int) -> float:
        """Return by how much virtual time moves after `wall` seconds. `others` counts the syncs that found changes by other
        clients.
        """
        if not self._patient or self._speed <= 1:
            return wall * self._speed
        self._quiet = self._quiet + min(wall, LONGEST) if others == self._others else 0.0
        self._others = others
        share = 1.0 if self._quiet >= REST else UNREST
        return max(wall, min(wall, LONGEST) * self._speed * share)
