"""Logs of containers as a kubelet keeps them, and the part of one that a client asks for.

A log is kept in the parts in which it came, because an object for each line takes several times the memory of its text: 10,000
pods that write 200 lines each would need 600 MB.
"""

import asyncio
import datetime
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.watchlog import ObjectChange

MAX_BYTES = 10 << 20
"""Bytes of a container's log that are kept, as by a kubelet (`containerLogMaxSize`); older lines are dropped."""


class LogPart(msgspec.Struct, frozen=True, gc=False):
    """Lines of a log that came at the same time, in seconds since the epoch. Only the last of a log may lack its newline."""

    time: float
    text: bytes

    @property
    def lines(self) -> list[bytes]:
        """Return the lines, each with its newline."""
        return self.text.splitlines(keepends=True)


class ContainerLog:
    """The log of one container, and in `previous` its log from before the last restart.

    `first` counts the lines dropped at the front.
    """

    def __init__(self, parts: Iterable[LogPart] = (), previous: Iterable[LogPart] = ()) -> None:
        self.parts = list(parts)
        self.previous = list(previous)
        self.first = 0
        self._changed: asyncio.Event | None = None
        self._size = sum(len(part.text) for part in self.parts)

    @property
    def changed(self) -> asyncio.Event:
        """Return the event that is set at the next change, for requests that follow the log."""
        if self._changed is None:  # most logs are followed by nobody, and an event takes a kilobyte
            self._changed = asyncio.Event()
        return self._changed

    def append(self, text: bytes) -> None:
        """Append bytes to the log and wake the requests that follow it. An unfinished last line is continued."""
        self._size += len(text)
        if self.parts and not self.parts[-1].text.endswith(b"\n"):
            text = self._unfinished() + text
        if text:
            self.parts.append(LogPart(time.time(), text))
        if self._size > MAX_BYTES:
            self._drop_oldest()
        self.wake()

    def _unfinished(self) -> bytes:
        """Remove the last line, which lacks its newline, and return it."""
        last = self.parts.pop()
        start = last.text.rfind(b"\n") + 1
        if start:
            self.parts.append(LogPart(last.time, last.text[:start]))
        return last.text[start:]

    def _drop_oldest(self) -> None:
        """Drop the oldest lines above `MAX_BYTES`, but never the last line."""
        while self._size > MAX_BYTES:
            oldest = self.parts.pop(0)
            lines = deque(oldest.lines)
            while self._size > MAX_BYTES and len(lines) > (0 if self.parts else 1):
                self._size -= len(lines.popleft())
                self.first += 1
            if lines:
                self.parts.insert(0, LogPart(oldest.time, b"".join(lines)))
                return

    def restart(self) -> None:
        """Keep the present lines as the previous log, in place of an earlier one, and start an empty log."""
        self.first += count(self.parts)
        self.previous, self.parts, self._size = self.parts, [], 0

    def wake(self) -> None:
        """Wake the requests that stream this log, so that they look for new lines."""
        # those who wait hold the old event; a set one would wake later ones at once
        waiting, self._changed = self._changed, None
        if waiting is not None:
            waiting.set()


@dataclass(frozen=True)
class LogWindow:
    """The part of a log that a client asks for; None means no limit.

    `tail` is a number of last lines, `since` a time in seconds since the epoch. With `timestamps` each line starts with its time.
    """

    tail: int | None = None
    since: float | None = None
    limit_bytes: int | None = None
    timestamps: bool = False


def count(parts: Iterable[LogPart]) -> int:
    """Return the number of lines in parts of a log."""
    return sum(len(part.lines) for part in parts)


def lines_of(parts: Iterable[LogPart], *, timestamps: bool) -> Iterator[bytes]:
    """Yield the lines in parts of a log; with `timestamps`, each after its time of arrival (RFC 3339, UTC) and a space."""
    for part in parts:
        stamp = f"{_stamp(part.time)} ".encode() if timestamps else b""
        yield from (stamp + line for line in part.lines)


def window_text(parts: Iterable[LogPart], window: LogWindow) -> bytes:
    """Return the bytes of a log that a client asks for."""
    kept = [part for part in parts if window.since is None or part.time >= window.since]
    if window.tail is None and not window.timestamps:
        text = b"".join([part.text for part in kept])
    else:
        rows = list(lines_of(kept, timestamps=window.timestamps))
        text = b"".join(rows if window.tail is None else rows[max(0, len(rows) - window.tail) :])
    return text if window.limit_bytes is None else text[: window.limit_bytes]


def _stamp(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


class PodLogs:
    """The logs of all containers in `logs`, by namespace and pod, then by container. The logs of a deleted pod are dropped."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, str], dict[str, ContainerLog]] = {}

    def container_log(self, namespace: str, pod: str, container: str) -> ContainerLog:
        """Return the log of one container of a pod; an empty one is created on first use."""
        return self.logs.setdefault((namespace, pod), {}).setdefault(container, ContainerLog())

    def on_change(self, resource: ServedResource, change: ObjectChange) -> None:
        """Drop the logs of a deleted pod, and wake the requests that follow a changed one (a listener of the object store)."""
        if resource.key != ("", "pods"):
            return
        key = (change.entry.namespace, change.entry.name)
        for log in self.logs.get(key, {}).values():
            log.wake()
        if change.kind == "DELETED":
            self.logs.pop(key, None)
