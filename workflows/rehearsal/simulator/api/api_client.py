"""A thin Kubernetes API client for the simulator: JSON objects in and out, for an emulated or a real API server.

It sends tens of thousands of small requests over keep-alive connections of the standard library. These cost half the CPU time of
pooled urllib3 requests (0.15 ms against 0.32 ms), and CPU time limits a rehearsal at 1,000 nodes. The standard library does not
retry, so a failed request is repeated through urllib3.
"""

from __future__ import annotations

import functools
import http.client
import ssl
import time
from collections import deque
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3
from msgspec import Struct

from steps.clients.kube import kubeconfig
from workflows.rehearsal.simulator.api.api_kinds import CRDS, Obj, ObjectKind, Ref

AGENT = "bringup-simulator"
"""User-Agent and field manager of the simulator, so that its writes can be told from those of a step."""

PAGE = 500
ESTABLISH_SECONDS = 10.0
"""Longest wait in seconds until a new CustomResourceDefinition is served. A real API server needs up to one second."""

_DECODE = msgspec.json.Decoder(dict[str, Any])
_DECODE_ANY = msgspec.json.Decoder(Any)
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
SHARED_FROM, SHARED_TO = 40, 16_384
"""Bytes of encoded parts that decoded objects share. Smaller ones are numbers and names, larger ones are schemas."""


class _Every:
    """A container of all names."""

    def __contains__(self, name: object) -> bool:
        return True


SHARED: Mapping[str, Container[str]] = {
    "spec": _Every(),
    "status": frozenset({"conditions", "capacity", "allocatable", "daemonEndpoints"}),
    "metadata": frozenset({"ownerReferences"}),
}
"""Parts that objects share, by section. In the others most objects differ, and looking for an equal one would cost more."""
_BUSY = frozenset({429, 503, 504})
NO_ENDPOINT = frozenset({403, 404, 405})
"""Statuses with which a real API server refuses a path that only the emulated one has."""
_AGAIN = urllib3.Retry(total=5, backoff_factor=0.05, status_forcelist=_BUSY, allowed_methods=None, raise_on_status=False)
"""Retries for an API server that is overloaded or closed the connection.

A create that is repeated after it had succeeded fails with AlreadyExists, which callers expect.
"""


class SimulatorApiError(Exception):
    """Raised if the API server refuses a request. `status` is the HTTP status, `reason` that of the Kubernetes Status object."""

    def __init__(self, message: str, status: int, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class ListExpired(SimulatorApiError):
    """Raised between two pages of a list if the snapshot behind them expired: the caller starts again."""


class Write(Struct, frozen=True):
    """A write as an HTTP request: method, path and body (None: no body) with its content type."""

    method: str
    path: str
    body: Any = None
    content: str = "application/json"


class ServerAnswer(Struct, frozen=True):
    """The answer to a request: the request's method and path, the HTTP status, and the body."""

    request: str
    status: int
    data: bytes

    def checked(self) -> bytes:
        """Return the body. Raises SimulatorApiError if the server refused the request."""
        if self.status < 300:
            return self.data
        raise _error(self.request, self.status, self.data)


class _BatchedWrite(Struct, frozen=True):
    method: str
    path: str
    body: Any


class _BatchedAnswer(Struct, frozen=True):
    status: int
    body: msgspec.Raw


_BATCHES = msgspec.json.Decoder(list[_BatchedAnswer])


class _HeadMetadata(Struct, frozen=True, rename="camel"):
    """The part of an object's metadata that says if a cached copy is still current."""

    name: str
    namespace: str = ""
    resource_version: str = ""


class ObjectHead(Struct, frozen=True):
    """An object decoded to its name and resourceVersion only, so that unchanged objects of a LIST cost little."""

    metadata: _HeadMetadata


class _ChunkMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(Struct, frozen=True):
    metadata: _ChunkMeta
    items: tuple[msgspec.Raw, ...] | None = None


class _Status(Struct, frozen=True):
    message: str = ""
    reason: str = ""


_PAGES = msgspec.json.Decoder(_Page)
_COUNTS = msgspec.json.Decoder(dict[str, int])


class Api:
    """A Kubernetes API client of the simulator for one server; safe for several threads."""

    def __init__(self, access: kubeconfig.Access) -> None:
        headers = {"Accept": "application/json", "User-Agent": AGENT}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        context = kubeconfig.tls_context(access)
        self._connections = Connections(access.server, context)
        self._pool = urllib3.PoolManager(
            1, headers=headers, maxsize=4, block=True, retries=_AGAIN, ssl_context=context, timeout=REQUEST_TIMEOUT
        )
        self._server = access.server
        self._headers = headers
        self._batches = self.emulated

    @classmethod
    def from_kubeconfig(cls, path: Path) -> Self:
        """Return a client for the server and user of a kubeconfig file."""
        return cls(kubeconfig.load(path))

    @property
    def emulated(self) -> bool:
        """Return True if the server speaks plain HTTP, which among API servers only the emulated one does."""
        return self._server.startswith("http:")

    def close(self) -> None:
        """Close all connections to the server."""
        self._connections.close()
        self._pool.clear()

    def send(
        self, method: str, path: str, body: Any = None, *, query: dict[str, str] | None = None, content: str = "application/json"
    ) -> bytes:
        """Send a request and return the body of the answer. Raises SimulatorApiError if the server refuses it.

        `body` is encoded as JSON unless it is bytes; `content` is its content type.
        """
        target = path + (f"?{urlencode(query)}" if query else "")
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        headers = self._headers if data is None else self._headers | {"Content-Type": content}
        return ServerAnswer(f"{method} {path}", *self._request(method, target, data, headers)).checked()

    def write(self, write: Write) -> ServerAnswer:
        """Send one write and return the answer, also that of a server that refuses it."""
        data = None if write.body is None else msgspec.json.encode(write.body)
        headers = self._headers if data is None else self._headers | {"Content-Type": write.content}
        return ServerAnswer(f"{write.method} {write.path}", *self._request(write.method, write.path, data, headers))

    def write_all(self, writes: Sequence[Write]) -> list[ServerAnswer]:
        """Send writes in order and return their answers. The emulated server takes all of them in one request."""
        if not self._batches or len(writes) == 1:
            return [self.write(write) for write in writes]
        batch = [_BatchedWrite(write.method, write.path, write.body) for write in writes]
        try:
            data = self.send("POST", "/emulation/writes", batch)
        except SimulatorApiError as error:
            if error.status not in NO_ENDPOINT:
                raise
            self._batches = False  # a real server behind a proxy that speaks plain HTTP
            return [self.write(write) for write in writes]
        answers = zip(writes, _BATCHES.decode(data), strict=True)
        return [self.write(write) if answer.status in _BUSY else _own(write, answer) for write, answer in answers]

    def _request(self, method: str, target: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        """Send a request once over a keep-alive connection, again through urllib3 if that fails; return HTTP status and body.

        It fails if the connection breaks or the server is overloaded (429, 503, 504).
        """
        try:
            status, answer = self._connections.request(method, target, data, headers)
        except (OSError, http.client.HTTPException):
            status, answer = 0, b""
        if status and status not in _BUSY:
            return status, answer
        again = self._pool.request(method, self._server + target, body=data, headers=headers)
        return again.status, again.data

    def get(self, kind: ObjectKind, name: str, namespace: str = "") -> Obj | None:
        """Return one object from the server, or None if it does not exist."""
        try:
            return _DECODE.decode(self.send("GET", kind.path(namespace, name)))
        except SimulatorApiError as error:
            if error.status != 404:
                raise
            return None

    def list(self, kind: ObjectKind, namespace: str = "", labels: str = "") -> tuple[msgspec.Raw, ...] | None:
        """Return all objects of a kind as encoded JSON, or None if the server does not serve the kind.

        `namespace` (empty: all) and the label selector `labels` narrow the list.
        """
        while True:
            try:
                return tuple(raw for page in self.pages(kind, namespace, labels) for raw in page)
            except ListExpired:
                continue
            except SimulatorApiError as error:
                if error.status == 404:
                    return None
                raise

    def pages(self, kind: ObjectKind, namespace: str = "", labels: str = "") -> Iterator[tuple[msgspec.Raw, ...]]:
        """Yield the objects that `list` returns in pages, so that a caller need not hold all of them: 40,000 pods have 250 MB.

        Raises ListExpired if the server forgot the rest of the list meanwhile, SimulatorApiError if it refuses the request.
        """
        query = {"limit": str(PAGE)} | ({"labelSelector": labels} if labels else {})
        while True:
            try:
                page = _PAGES.decode(self.send("GET", kind.path(namespace), query=query))
            except SimulatorApiError as error:
                if error.status == 410 and "continue" in query:
                    raise ListExpired(str(error), error.status, error.reason) from error
                raise
            yield page.items or ()
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    def revision(self) -> str:
        """Return the server's newest resourceVersion, which a LIST of one namespace shows."""
        return _PAGES.decode(self.send("GET", "/api/v1/namespaces", query={"limit": "1"})).metadata.resource_version

    def change_counts(self) -> dict[str, int] | None:
        """Return how often objects of each resource have changed so far, by PLURAL.GROUP; None if the server does not count."""
        if not self._batches:
            return None
        try:
            return _COUNTS.decode(self.send("GET", "/emulation/changes"))
        except SimulatorApiError as error:
            if error.status not in NO_ENDPOINT:
                raise
            self._batches = False
            return None

    def create(self, kind: ObjectKind, obj: Obj) -> Obj:
        """Create an object and return it; it must not be changed. Raises SimulatorApiError with status 409 if the name is taken."""
        return self.created(kind, self.write(creation(kind, obj)))

    def created(self, kind: ObjectKind, answer: ServerAnswer) -> Obj:
        """Return the object that a write of `creation` created. Raises SimulatorApiError with status 409 if the name is taken."""
        created = decode_object(answer.checked())
        if kind == CRDS:
            self._await_served(created["spec"])
        return created

    def _await_served(self, spec: Obj) -> None:
        """Wait until a new custom kind is served, at most `ESTABLISH_SECONDS`. A real API server answers 404 for about 100 ms."""
        version = next(row["name"] for row in spec["versions"] if row["served"])
        kind = ObjectKind(group=spec["group"], version=version, plural=spec["names"]["plural"], kind=spec["names"]["kind"])
        end = time.monotonic() + ESTABLISH_SECONDS
        while self.list(kind) is None and time.monotonic() < end:
            time.sleep(0.02)

    def merge(self, kind: ObjectKind, at: Ref, patch: Obj, sub: str = "") -> Obj:
        """Apply a JSON merge patch to an object, or to its sub-resource `sub` (`status`), and return the patched object."""
        return decode_object(self.write(merging(kind, at, patch, sub)).checked())

    def replace(self, kind: ObjectKind, obj: Obj, sub: str = "") -> Obj:
        """Replace an object, or its sub-resource `sub` (`finalize`), and return the stored object."""
        meta = obj["metadata"]
        body = {"apiVersion": kind.api_version, "kind": kind.kind} | obj
        return decode_object(self.send("PUT", kind.path(meta.get("namespace", ""), meta["name"], sub), body))

    def delete(self, kind: ObjectKind, at: Ref) -> bool:
        """Delete an object without grace period; return False if it was missing. Dependents are left to the garbage collector."""
        return deleted(self.write(deletion(kind, at)))

    def write_log(self, pod: Ref, container: str, text: str) -> bool:
        """Append to a container's log in the emulated server and return True; return False if the server has no such endpoint.

        A real API server fetches logs from the kubelet of the pod's node; `kubelet_port` serves them there.
        """
        try:
            self.send("POST", f"/emulation/logs/{pod.namespace}/{pod.name}/{container}", text.encode(), content="text/plain")
        except SimulatorApiError as error:
            if error.status in NO_ENDPOINT:
                return False
            raise
        return True

    def offer_kubelet(self, url: str, token: str) -> bool:
        """Tell the emulated server who plays commands in pods; return False if the server has no such endpoint."""
        try:
            self.send("PUT", "/emulation/kubelet", {"url": url, "token": token})
        except SimulatorApiError as error:
            if error.status in NO_ENDPOINT:
                return False
            raise
        return True


def creation(kind: ObjectKind, obj: Obj) -> Write:
    """Return the write that creates an object."""
    body = {"apiVersion": kind.api_version, "kind": kind.kind} | obj
    return Write("POST", kind.path(obj["metadata"].get("namespace", "")), body)


def merging(kind: ObjectKind, at: Ref, patch: Obj, sub: str = "") -> Write:
    """Return the write that applies a JSON merge patch to an object, or to its sub-resource `sub` (`status`)."""
    return Write("PATCH", kind.path(at.namespace, at.name, sub), patch, "application/merge-patch+json")


def binding(pod: Ref, node: str, at: str) -> Write:
    """Return the write that assigns a pod to a node, as schedulers do. The server refuses it if the pod is gone or assigned.

    `at` is the simulated timestamp, which the emulated server takes for the condition PodScheduled. Real servers take their own.
    """
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    metadata = {"name": pod.name, "namespace": pod.namespace, "creationTimestamp": at}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return Write("POST", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding", body)


def deletion(kind: ObjectKind, at: Ref) -> Write:
    """Return the write that deletes an object without grace period and leaves its dependents to the garbage collector."""
    return Write("DELETE", kind.path(at.namespace, at.name), {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})


def deleted(answer: ServerAnswer) -> bool:
    """Return True if a write of `deletion` was accepted, False if its object was missing. Raises SimulatorApiError otherwise."""
    if answer.status == 404:
        return False
    answer.checked()
    return True


def _own(write: Write, answer: _BatchedAnswer) -> ServerAnswer:
    return ServerAnswer(f"{write.method} {write.path}", answer.status, bytes(answer.body))


def decode_object(raw: msgspec.Raw | bytes) -> Obj:
    """Return the object in encoded JSON as a dict, which must not be changed: objects share equal parts.

    Pods of one Job or DaemonSet differ in few fields, and a pod of its own takes 15 KB: a fleet of 10,000 nodes has 40,000.
    """
    return {key: _section(part, SHARED.get(key)) for key, part in _PARTS.decode(raw).items()}


def _section(raw: msgspec.Raw, shared: Container[str] | None) -> Any:
    """Return a decoded section of an object, of which other objects may have the `shared` parts too."""
    if shared is None:
        return _DECODE_ANY.decode(raw)
    try:
        parts = _PARTS.decode(raw)
    except msgspec.ValidationError:
        return _DECODE_ANY.decode(raw)  # a custom resource whose spec is no object
    return {key: _shared(bytes(part)) if _is_shared(key, part, shared) else _DECODE_ANY.decode(part) for key, part in parts.items()}


def _is_shared(key: str, part: msgspec.Raw, shared: Container[str]) -> bool:
    return SHARED_FROM <= len(part) <= SHARED_TO and key in shared


@functools.lru_cache(maxsize=4096)
def _shared(raw: bytes) -> Any:
    return _DECODE_ANY.decode(raw)


def _error(request: str, status: int, data: bytes) -> SimulatorApiError:
    try:
        status_object = msgspec.json.decode(data, type=_Status)
    except msgspec.MsgspecError:
        status_object = _Status(message=data[:200].decode(errors="replace"))
    return SimulatorApiError(f"{request}: {status} {status_object.reason}: {status_object.message}", status, status_object.reason)


REQUEST_TIMEOUT = 60.0
"""Seconds after which a request fails. A LIST of thousands of objects takes under one, so a minute means that the server hangs."""


class Connections:
    """A pool of HTTP keep-alive connections to one server, opened as needed; safe for several threads."""

    def __init__(self, server: str, context: ssl.SSLContext | None) -> None:
        self._url = urlsplit(server)
        self._context = context
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._closed = False

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send one request and return HTTP status and body. Raises OSError or http.client.HTTPException if that fails."""
        try:
            connection = self._idle.pop()
        except IndexError:
            host, port = self._url.hostname or "", self._url.port
            if self._context is None:
                connection = http.client.HTTPConnection(host, port, timeout=REQUEST_TIMEOUT)
            else:
                connection = http.client.HTTPSConnection(host, port, timeout=REQUEST_TIMEOUT, context=self._context)
        try:
            connection.request(method, self._url.path + path, body, headers)
            answer = connection.getresponse()
            result = answer.status, answer.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        if self._closed:  # by another thread, after it has closed those that were idle
            self.close()
        return result

    def close(self) -> None:
        """Close idle connections now, and busy ones after their answers."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()
