"""Many small writes at once: queued during one instant, sent over several connections; those to one object keep their order."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

from workflows.rehearsal.simulator.kinds import Obj

WORKERS = 3
"""Enough to overlap client and server work; more only contend for the interpreter."""

FEW = 24
"""Up to so many queued writes are sent to an emulated API server one after the other: threads would cost more."""

FEW_REAL = 2
"""A real one takes 5 ms for a write that the emulated one does in one, and has processors of its own meanwhile."""

Send = Callable[[], Obj | None]
Done = Callable[[Obj | None], None]


class Bulk:
    """A queue of writes. `send` runs in a worker thread and touches the network only; `done` runs in the caller's thread."""

    def __init__(self, few: int = FEW) -> None:
        self._few = few
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="simulator-writes")
        self._lanes: dict[Hashable, list[tuple[Send, Done]]] = {}

    def add(self, lane: Hashable, send: Send, done: Done) -> None:
        """Queue a write; those of one lane are sent in order."""
        self._lanes.setdefault(lane, []).append((send, done))

    def flush(self) -> bool:
        """Send everything; what the answers lead to may queue more. True when anything was sent."""
        sent = False
        while self._lanes:
            lanes, self._lanes = list(self._lanes.values()), {}
            results = map(_run, lanes) if len(lanes) <= self._few else self._pool.map(_run, lanes)
            for lane, made in zip(lanes, results, strict=True):
                for (_, done), obj in zip(lane, made, strict=True):
                    done(obj)
            sent = True
        return sent

    def close(self) -> None:
        """End the worker threads."""
        self._pool.shutdown()


def _run(lane: list[tuple[Send, Done]]) -> list[Obj | None]:
    return [send() for send, _ in lane]
