"""Reads HTTP answers within limits of bytes and time, so that no server can use up a step's memory or time."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from steps import timeouts
from steps.errors import NotUnderstood, Unreachable

if TYPE_CHECKING:
    import urllib3

_CHUNK = 256 << 10


class ReadLimits(Struct, frozen=True, kw_only=True):
    """Limits of what a Kubernetes API server may answer. Honest servers stay far below.

    `answer_bytes` limits one answer: a page of 500 objects with 100 kB each has 50 MB, and etcd holds objects of at most 1.5 MB.
    `list_pages` and `list_bytes` limit one LIST: a million objects. `expired` is how often a LIST begins anew after 410, each time
    after a pause that grows from `backoff`. All times are in seconds.
    """

    answer_bytes: int = 256 << 20
    answer_seconds: float = timeouts.API_ANSWER
    list_pages: int = 2000
    list_bytes: int = 2 << 30
    list_seconds: float = timeouts.API_LIST
    expired: int = timeouts.API_EXPIRED
    backoff: float = timeouts.API_BACKOFF_FIRST
    tries: int = timeouts.API_TRIES


class AnswerTooLarge(NotUnderstood):
    """Raised if an answer has more bytes than any honest one, or is compressed although nobody asked for that; not tried again."""


def read(answer: urllib3.BaseHTTPResponse, what: str, *, most_bytes: int, deadline: float) -> bytes:
    """Return the body of an answer that was requested with `preload_content=False`, and free its connection.

    `what` names the request in errors, `deadline` is a time of the monotonic clock. Raises AnswerTooLarge, Unreachable after the
    deadline, and errors of urllib3. No compression is asked for, so a compressed answer, whose true size nobody knows, is refused.
    """
    chunks, size, is_whole = list[bytes](), 0, False
    try:
        encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            raise AnswerTooLarge(f"{what}: the answer is compressed ({encoding[:20]!r}), which was not asked for", hint=_HINT)
        while chunk := answer.read1(_CHUNK, decode_content=False):
            size += len(chunk)
            if size > most_bytes:
                raise AnswerTooLarge(f"{what}: the answer has more than {most_bytes >> 20} MiB", hint=_HINT)
            if time.monotonic() > deadline:
                raise Unreachable(f"{what}: the answer comes too slowly: {size} bytes so far", hint=_HINT)
            chunks.append(chunk)
        is_whole = True
    finally:
        if is_whole:
            answer.release_conn()
        else:
            answer.close()  # the rest is never read, so that the connection cannot serve another request
    return b"".join(chunks)


def pool_classes(seconds: float) -> dict[str, type[Any]]:
    """Return the classes of connection pools, by scheme, whose servers must send the whole head of an answer within `seconds`.

    A read time-out limits the silence between two bytes, and a server may send a byte of a header line every few seconds.
    """
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    class PlainConnection(HTTPConnection):
        """A connection without TLS whose answers' heads have a deadline."""

        def getresponse(self) -> Any:
            with cut_off(lambda: self.sock, seconds):
                return super().getresponse()

    class TlsConnection(HTTPSConnection):
        """A connection with TLS whose answers' heads have a deadline."""

        def getresponse(self) -> Any:
            with cut_off(lambda: self.sock, seconds):
                return super().getresponse()

    class PlainPool(HTTPConnectionPool):
        """A pool of plain connections."""

        ConnectionCls = PlainConnection

    class TlsPool(HTTPSConnectionPool):
        """A pool of connections with TLS."""

        ConnectionCls = TlsConnection

    return {"http": PlainPool, "https": TlsPool}


@contextmanager
def cut_off(connection: Callable[[], socket.socket | None], seconds: float) -> Iterator[None]:
    """Shut a socket down if the `with` block takes longer, so that reading in it ends as if the server had closed it.

    `connection` returns the socket; it is called when the time is up, since a block may make the connection itself. Raises
    TimeoutError if the block took longer and ended without an error: a head that is cut off can look whole.
    """
    is_cut = threading.Event()

    def cut() -> None:
        is_cut.set()
        with suppress(OSError):
            if (connected := connection()) is not None:
                # not the method of an SSLSocket, which would take TLS away from the thread that reads
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    timer = _TIMERS.start(seconds, cut)
    try:
        yield
    finally:
        _TIMERS.cancel(timer)
    if is_cut.is_set():
        raise TimeoutError(f"no whole answer within {seconds:g} s")


class _Timers:
    """Timers of one process that share a thread. A thread for each answer cost a tenth of a step's CPU time."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all timers and the thread."""
        self._changed = threading.Condition()
        self._running: dict[int, tuple[float, Callable[[], None]]] = {}
        self._wakes = math.inf
        self._last = 0
        self._thread: threading.Thread | None = None

    def start(self, seconds: float, act: Callable[[], None]) -> int:
        """Have `act` called after `seconds`, unless the number that this returns is cancelled before."""
        due = time.monotonic() + seconds
        with self._changed:
            self._last += 1
            self._running[self._last] = due, act
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="answer-deadlines", daemon=True)
                self._thread.start()
            elif due < self._wakes:
                self._changed.notify()
            return self._last

    def cancel(self, timer: int) -> None:
        """End a timer; nothing happens if it has run out."""
        with self._changed:
            self._running.pop(timer, None)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for timer, (due, act) in tuple(self._running.items()):
                    if due <= now:
                        del self._running[timer]
                        act()
                self._wakes = min((due for due, _ in self._running.values()), default=math.inf)
                self._changed.wait(None if self._wakes == math.inf else self._wakes - now)


_TIMERS = _Timers()
os.register_at_fork(after_in_child=_TIMERS.reset)  # the thread stays behind in the parent


_HINT = "does something else answer in the server's place (a proxy, a load balancer), or is it broken?"
