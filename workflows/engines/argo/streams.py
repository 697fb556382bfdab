"""LIST and WATCH of one object or collection: every state as it comes, through cut watches, 410, restarts, renewed credentials."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.kube import client, tls
from steps.clients.kube.api import FIELD_MANAGER
from steps.errors import Refused, Unreachable
from workflows.engines.argo.home import Home

if TYPE_CHECKING:
    import urllib3

_LINE = 64 << 10


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How patient a stream is, in seconds."""

    round: float = timeouts.WATCH_ROUND
    first: float = timeouts.WATCH_FIRST
    most: float = timeouts.WATCH_MAX
    credentials: float = timeouts.CREDENTIAL_RENEWAL


@dataclass(frozen=True, slots=True)
class State:
    """The object as it is now, as JSON."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Gone:
    """The object does not exist (any more); `data` is its last state, empty where it was never seen."""

    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Quiet:
    """A round is over; nothing need have happened. `trouble` says why the API server could not be watched, empty when it could."""

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
    """The revision is too old: list again."""


@dataclass
class Stream:
    """One object by its collection's path and its name, or the whole collection where the name is empty.

    `version` is the last revision seen, empty before a LIST.
    """

    home: Home
    path: str
    name: str = ""
    pace: Pace = field(default_factory=Pace)
    version: str = ""
    _heard: bool = False
    _pause: float = 0.0
    _refused_since: float | None = None

    def states(self) -> Iterator[State | Gone | Quiet]:
        """Without an end: the caller leaves. Raises Refused when credentials stay refused for `pace.credentials`."""
        while True:
            began, self._heard, listed = time.monotonic(), False, not self.version
            try:
                if not self.version:
                    yield from self._list()
                yield from self._watch()
            except _Expired:
                self.version, trouble, self._pause = "", "", self._pause if listed else 0.0  # once is no failure
            except Unreachable as error:
                trouble = str(error)
            except Refused as error:
                trouble = self._refused(error)
            else:
                trouble, self._refused_since = "", None
            yield Quiet(trouble)
            cut = not self._heard and time.monotonic() - began < self.pace.round / 2
            self._wait(cut or trouble != "")

    def _list(self) -> Iterator[State | Gone]:
        found = client.decoded(f"GET {self.path}", self.home.fetch(self.path, self._selection() or None), _List)
        self.version = found.metadata.resource_version
        self._refused_since = None
        yield from (State(bytes(item)) for item in found.items)
        if self.name and not found.items:
            yield Gone()

    def _selection(self) -> dict[str, str]:
        return {"fieldSelector": f"metadata.name={self.name}"} if self.name else {}

    def _watch(self) -> Iterator[State | Gone]:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            **self._selection(),
            "resourceVersion": self.version,
            "timeoutSeconds": str(max(1, round(self.pace.round))),
        }
        for line in _lines(self.home, self.path, query, self.pace.round + timeouts.API_READ, self._accepted):
            event = client.decoded(f"watch of {self.path}", line, _Event)
            if event.type == "ERROR":
                error = msgspec.json.decode(event.object, type=_Error)
                if error.code == 410:
                    raise _Expired
                raise Unreachable(f"the watch of {self.name} ended: {error.code} {error.message}")
            self._heard, self._pause = True, 0.0
            self.version = msgspec.json.decode(event.object, type=_Error).metadata.resource_version or self.version
            if event.type == "DELETED":
                yield Gone(bytes(event.object))
            elif event.type in ("ADDED", "MODIFIED"):
                yield State(bytes(event.object))

    def _accepted(self) -> None:
        self._refused_since = None

    def _refused(self, error: Refused) -> str:
        """Renew the credentials, or bear with them for a while.

        The first renewal is silent, since credentials expire; what is refused again ends like what was never renewed, since some
        plug-ins give another token each time.
        """
        now = time.monotonic()
        first, self._refused_since = self._refused_since is None, self._refused_since or now
        if now - self._refused_since > self.pace.credentials:
            raise error
        return "" if self.home.renew() and first else str(error)

    def _wait(self, failed: bool) -> None:
        self._pause = min(self.pace.most, self._pause * 2 or self.pace.first) if failed else 0.0
        if self._pause:
            time.sleep(self._pause)


def _lines(home: Home, path: str, query: dict[str, str], patience: float, accepted: Callable[[], None]) -> Iterator[bytes]:
    """The lines of a streamed answer, once it is `accepted`. Raises Unreachable, Refused, _Expired."""
    import urllib3

    access = home.access
    headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER}
    headers |= {"Authorization": f"Bearer {access.token}"} if access.token else {}
    timeout = urllib3.Timeout(connect=timeouts.API_CONNECT, read=patience)
    with urllib3.PoolManager(1, headers=headers, timeout=timeout, retries=False, ssl_context=tls.context(access)) as pool:
        try:
            answer = pool.request("GET", access.server + path, fields=query, preload_content=False)
            try:
                _check(answer, path)
                accepted()
                yield from _split(answer)
            finally:
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"watch of {path}: {error}", hint=f"is {access.server} up and reachable from here?") from error


def _check(answer: "urllib3.BaseHTTPResponse", path: str) -> None:
    if answer.status == 410:
        raise _Expired
    if answer.status in (401, 403):
        raise Refused(f"watch of {path}: {answer.status}", hint="check the kubeconfig of the home cluster and its rights")
    if answer.status != 200:
        raise Unreachable(f"watch of {path}: {answer.status}")


def _split(answer: "urllib3.BaseHTTPResponse") -> Iterator[bytes]:
    """Whole lines; a half line at the end of a cut answer is no event."""
    rest = b""
    for chunk in answer.stream(_LINE):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line)
