"""Keep-alive connections to one API server, for the tens of thousands of small requests of a simulator.

The standard library's connection costs half the CPU time of a pooled request of urllib3 (0.15 ms against 0.32 ms), which at 1,000
nodes is what limits a rehearsal. It knows no retries: whoever uses it repeats what went wrong through urllib3.
"""

from __future__ import annotations

import http.client
import ssl
from collections import deque
from collections.abc import Mapping
from urllib.parse import urlsplit

TIMEOUT = 60.0
"""A LIST of thousands of objects takes under a second; a minute means that the server hangs."""


class Connections:
    """Requests to one server; safe for several threads."""

    def __init__(self, server: str, context: ssl.SSLContext | None) -> None:
        self._url = urlsplit(server)
        self._context = context
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._closed = False

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body of one answer. Raises OSError or http.client.HTTPException, and forgets the connection then."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._make()
        try:
            connection.request(method, self._url.path + path, body, headers)
            answer = connection.getresponse()
            found = answer.status, answer.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        if self._closed:  # by another thread, after it has closed those that were idle
            self.close()
        return found

    def close(self) -> None:
        """Close all idle connections, and those in use as soon as they have their answers."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def _make(self) -> http.client.HTTPConnection:
        host = self._url.hostname or ""
        if self._context is None:
            return http.client.HTTPConnection(host, self._url.port, timeout=TIMEOUT)
        return http.client.HTTPSConnection(host, self._url.port, timeout=TIMEOUT, context=self._context)
