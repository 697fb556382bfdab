"""LIST and WATCH an object or collection, through cut watches, expired revisions (410), restarts and refused credentials."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients import bounded_answers
from steps.clients.kube import client, kubeconfig
from steps.clients.kube.api import FIELD_MANAGER
from steps.errors import Refused, Unreachable
from workflows.engines.argo.home import Home

if TYPE_CHECKING:
    import urllib3

_LINE = 64 << 10
_LONGEST_EVENT = 32 << 20
"""Bytes of one event. etcd holds objects of at most 1.5 MB, and JSON makes them a few times larger."""


@dataclass(frozen=True, kw_only=True)
class WatchPace:
    """Timing of a watch in seconds: one round, first and longest pause after a failure, patience with refused credentials."""

    round: float = timeouts.WATCH_ROUND
    first: float = timeouts.WATCH_FIRST
    most: float = timeouts.WATCH_MAX
    credentials: float = timeouts.CREDENTIAL_RENEWAL


@dataclass(frozen=True, slots=True)
class ObjectState:
    """Event of a watch: the current state of an object, as JSON."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ObjectGone:
    """Event of a watch: the object does not exist or was deleted. `data` is its last state, empty if it was never seen."""

    data: bytes = b""


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """Event of a watch: one round is over. `trouble` says why the API server could not be watched; "" if the round went well."""

    trouble: str = ""


class _ListMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _List(Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] = ()


class _Error(Struct, frozen=True):
    code: int = 0
    message: str = ""
    metadata: _ListMeta = _ListMeta()


class _Event(Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Expired(Exception):
    """Exception: the revision to watch from is too old, so the objects must be listed again."""


@dataclass
class ResourceWatch:
    """A watch of one object, or of a whole collection if `name` is empty; `states` yields its events.

    `path` is the API path of the collection. `version` is the last revision seen, empty before the first LIST.
    """

    home: Home
    path: str
    name: str = ""
    pace: WatchPace = field(default_factory=WatchPace)
    version: str = ""
    _heard: bool = False
    _pause: float = 0.0
    _refused_since: float | None = None

    def states(self) -> Iterator[ObjectState | ObjectGone | RoundEnded]:
        """Yield events without end. Raises Refused if credentials stay refused for `pace.credentials` seconds."""
        while True:
            began, self._heard, listed = time.monotonic(), False, not self.version
            try:
                if not self.version:
                    yield from self._list()
                yield from self._watch()
            except _Expired:
                self.version, trouble, self._pause = "", "", self._pause if listed else 0.0  # only a fresh list can fail by this
            except Unreachable as error:
                trouble = str(error)
            except Refused as error:
                trouble = self._refused(error)
            else:
                trouble, self._refused_since = "", None
            yield RoundEnded(trouble)
            # a watch that ends early without any event counts as failed, so that retries back off
            failed = trouble != "" or (not self._heard and time.monotonic() - began < self.pace.round / 2)
            self._pause = min(self.pace.most, self._pause * 2 or self.pace.first) if failed else 0.0
            time.sleep(self._pause)

    def _list(self) -> Iterator[ObjectState | ObjectGone]:
        listing = client.decode(f"GET {self.path}", self.home.fetch(self.path, self._selection() or None), _List)
        self.version = listing.metadata.resource_version
        self._refused_since = None
        yield from (ObjectState(bytes(item)) for item in listing.items)
        if self.name and not listing.items:
            yield ObjectGone()

    def _selection(self) -> dict[str, str]:
        return {"fieldSelector": f"metadata.name={self.name}"} if self.name else {}

    def _watch(self) -> Iterator[ObjectState | ObjectGone]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",  # they keep `version` from expiring while the object does not change
            **self._selection(),
            "resourceVersion": self.version,
            "timeoutSeconds": str(max(1, round(self.pace.round))),
        }
        for line in self._lines(query):
            event = client.decode(f"watch of {self.path}", line, _Event)
            if event.type == "ERROR":
                error = msgspec.json.decode(event.object, type=_Error)
                if error.code == 410:
                    raise _Expired
                raise Unreachable(f"the watch of {self.name} ended: {error.code} {error.message}")
            self._heard, self._pause = True, 0.0
            self.version = msgspec.json.decode(event.object, type=_Error).metadata.resource_version or self.version
            if event.type == "DELETED":
                yield ObjectGone(bytes(event.object))
            elif event.type in ("ADDED", "MODIFIED"):
                yield ObjectState(bytes(event.object))

    def _refused(self, error: Refused) -> str:
        """Renew the credentials and return what to report; raise `error` if they have been refused for too long.

        The first renewal is reported as "" (no trouble), since credentials expire in normal operation.
        """
        now = time.monotonic()
        first, self._refused_since = self._refused_since is None, self._refused_since or now
        if now - self._refused_since > self.pace.credentials:
            raise error
        return "" if self.home.renew() and first else str(error)

    def _lines(self, query: dict[str, str]) -> Iterator[bytes]:
        """Yield the lines of the streamed response to a watch request. Raises Unreachable, Refused, _Expired."""
        import urllib3

        access = self.home.access
        headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER}
        headers |= {"Authorization": f"Bearer {access.token}"} if access.token else {}
        # the server ends a watch after `round` seconds, so a longer silence means that the connection is dead
        timeout = urllib3.Timeout(connect=timeouts.API_CONNECT, read=self.pace.round + timeouts.API_READ)
        context = kubeconfig.tls_context(access)
        with urllib3.PoolManager(1, headers=headers, timeout=timeout, retries=False, ssl_context=context) as pool:
            pool.pool_classes_by_scheme = bounded_answers.pool_classes(timeouts.API_ANSWER)
            try:
                answer = pool.request("GET", access.server + self.path, fields=query, preload_content=False)
                try:
                    _check(answer, self.path)
                    self._refused_since = None
                    # an honest server ends the watch by itself; a flood of events without an end must not keep the round open
                    yield from _split(answer, time.monotonic() + self.pace.round + timeouts.API_READ)
                finally:
                    answer.close()
            except urllib3.exceptions.HTTPError as error:
                hint = f"is {access.server} up and reachable from here?"
                raise Unreachable(f"watch of {self.path}: {error}", hint=hint) from error


def _check(answer: "urllib3.BaseHTTPResponse", path: str) -> None:
    if answer.status == 410:
        raise _Expired
    if answer.status in (401, 403):
        raise Refused(f"watch of {path}: {answer.status}", hint="check the kubeconfig of the home cluster and its rights")
    if answer.status != 200:
        raise Unreachable(f"watch of {path}: {answer.status}")


def _split(answer: "urllib3.BaseHTTPResponse", deadline: float) -> Iterator[bytes]:
    """Yield the whole lines of a response; half a line at the end of a cut response is dropped, as it is no complete event.

    A line beyond `_LONGEST_EVENT`, or the deadline (monotonic clock), ends the watch. Raises Unreachable.
    """
    parts, size = list[bytes](), 0
    while chunk := answer.read1(_LINE, decode_content=False):  # what has come, also of a piece that is still coming
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            if whole := b"".join((*parts, line)):
                yield whole
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > _LONGEST_EVENT or time.monotonic() > deadline:
            raise Unreachable("the watch sends an event, or a stream of them, that does not end")
