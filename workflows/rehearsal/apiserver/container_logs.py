"""Container logs, kept by the server because no kubelet exists to serve them; a client appends the text."""

import asyncio
import datetime
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.watchlog import ObjectChange

MAX_BYTES = 10 << 20
"""The 10 MiB that a kubelet keeps of a container's log (`containerLogMaxSize`)."""


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """A line of a log with its newline (the last line may lack it), and its arrival in seconds since the epoch."""

    time: float
    text: bytes


class ContainerLog:
    """The log of one container, and the previous log from before its last restart."""

    def __init__(self, lines: Iterable[LogLine] = (), previous: Iterable[LogLine] = ()) -> None:
        self.lines: deque[LogLine] = deque(lines)
        self.previous: list[LogLine] = list(previous)
        self.first = 0
        self.changed = asyncio.Event()
        self._size = sum(len(line.text) for line in self.lines)

    def append(self, text: bytes) -> None:
        """Append bytes to the log; an unfinished last line is continued."""
        now = time.time()
        if self.lines and not self.lines[-1].text.endswith(b"\n"):
            text = self.lines.pop().text + text
            self._size = sum(len(line.text) for line in self.lines)
        for line in text.splitlines(keepends=True):
            self.lines.append(LogLine(now, line))
            self._size += len(line)
        while self._size > MAX_BYTES and len(self.lines) > 1:
            self._size -= len(self.lines.popleft().text)
            self.first += 1
        self.wake()

    def restart(self) -> None:
        """Make the log the previous one and start an empty log."""
        self.previous = list(self.lines)
        self.first += len(self.lines)
        self.lines.clear()
        self._size = 0

    def wake(self) -> None:
        """Wake the requests that follow the log."""
        self.changed.set()
        self.changed = asyncio.Event()


@dataclass(frozen=True)
class LogWindow:
    """The part of a log that a client asks for. `since` is in seconds since the epoch; None means no limit."""

    tail: int | None = None
    since: float | None = None
    limit_bytes: int | None = None
    timestamps: bool = False


def window_text(lines: Iterable[LogLine], window: LogWindow) -> bytes:
    """Return the text of the lines in the window."""
    kept = [line for line in lines if window.since is None or line.time >= window.since]
    if window.tail is not None:
        kept = kept[len(kept) - min(window.tail, len(kept)) :]
    text = b"".join(timestamped(line) if window.timestamps else line.text for line in kept)
    return text if window.limit_bytes is None else text[: window.limit_bytes]


def timestamped(line: LogLine) -> bytes:
    """Return the line with its time in front."""
    time_text = datetime.datetime.fromtimestamp(line.time, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
    return time_text.encode() + b" " + line.text


class PodLogs:
    """The logs of all containers; logs of a deleted pod are dropped."""

    def __init__(self) -> None:
        self.logs: dict[tuple[str, str], dict[str, ContainerLog]] = {}

    def of(self, namespace: str, pod: str, container: str) -> ContainerLog:
        """Return the log of one container; a new one is created on first use."""
        return self.logs.setdefault((namespace, pod), {}).setdefault(container, ContainerLog())

    def on_change(self, resource: ServedResource, change: ObjectChange) -> None:
        """Drop the logs of a deleted pod and wake followers of a changed one (a store listener)."""
        if resource.key != ("", "pods"):
            return
        key = (change.entry.namespace, change.entry.name)
        for log in self.logs.get(key, {}).values():
            log.wake()
        if change.kind == "DELETED":
            self.logs.pop(key, None)
