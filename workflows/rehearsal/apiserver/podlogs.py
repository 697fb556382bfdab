"""Container logs, kept by the server because no kubelet is there to serve them; a client appends them."""

import asyncio
import datetime
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from workflows.rehearsal.apiserver.resources import Resource
from workflows.rehearsal.apiserver.watchlog import Change

MAX_BYTES = 10 << 20
"""A kubelet keeps 10 MiB of a container's log (`containerLogMaxSize`)."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line with its newline (the last may lack it) and when it came, in seconds since the epoch."""

    time: float
    text: bytes


class Log:
    """The log of one container, and its previous one after a restart."""

    def __init__(self, lines: Iterable[Line] = (), previous: Iterable[Line] = ()) -> None:
        self.lines: deque[Line] = deque(lines)
        self.previous: list[Line] = list(previous)
        self.first = 0
        self.changed = asyncio.Event()
        self._size = sum(len(line.text) for line in self.lines)

    def append(self, text: bytes) -> None:
        """Adds bytes; an unfinished last line is continued."""
        now = time.time()
        if self.lines and not self.lines[-1].text.endswith(b"\n"):
            text = self.lines.pop().text + text
            self._size = sum(len(line.text) for line in self.lines)
        for line in text.splitlines(keepends=True):
            self.lines.append(Line(now, line))
            self._size += len(line)
        while self._size > MAX_BYTES and len(self.lines) > 1:
            self._size -= len(self.lines.popleft().text)
            self.first += 1
        self.wake()

    def restart(self) -> None:
        """Makes the log the previous one and starts an empty one."""
        self.previous = list(self.lines)
        self.first += len(self.lines)
        self.lines.clear()
        self._size = 0

    def wake(self) -> None:
        """Wakes those who follow the log."""
        self.changed.set()
        self.changed = asyncio.Event()


@dataclass(frozen=True)
class Window:
    """Which part of a log a client wants. `since` is in seconds since the epoch; None means no limit."""

    tail: int | None = None
    since: float | None = None
    limit_bytes: int | None = None
    timestamps: bool = False


def cut(lines: Iterable[Line], window: Window) -> bytes:
    """The text of the wanted part."""
    kept = [line for line in lines if window.since is None or line.time >= window.since]
    if window.tail is not None:
        kept = kept[len(kept) - min(window.tail, len(kept)) :]
    text = b"".join(stamped(line) if window.timestamps else line.text for line in kept)
    return text if window.limit_bytes is None else text[: window.limit_bytes]


def stamped(line: Line) -> bytes:
    """The line with its time before it."""
    time_text = datetime.datetime.fromtimestamp(line.time, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
    return time_text.encode() + b" " + line.text


class PodLogs:
    """The logs of all containers; those of a deleted pod go with it."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, str], dict[str, Log]] = {}

    def of(self, namespace: str, pod: str, container: str) -> Log:
        """The log of one container, made when it is first asked for."""
        return self.logs.setdefault((namespace, pod), {}).setdefault(container, Log())

    def on_change(self, resource: Resource, change: Change) -> None:
        """Store listener: drops the logs of deleted pods, and lets followers see a pod's new phase."""
        if resource.key != ("", "pods"):
            return
        key = (change.entry.namespace, change.entry.name)
        for log in self.logs.get(key, {}).values():
            log.wake()
        if change.kind == "DELETED":
            self.logs.pop(key, None)
