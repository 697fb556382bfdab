"""The thin API client of the simulator: JSON objects in and out, any Kubernetes API server on the other side."""

from __future__ import annotations

import http.client
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3
from msgspec import Struct

from steps.clients.kube import kubeconfig, tls
from workflows.rehearsal.simulator.connection import TIMEOUT, Connections
from workflows.rehearsal.simulator.kinds import CRDS, Kind, Obj, Ref

AGENT = "bringup-simulator"
"""User agent and field manager: the simulator's writes must not look like a step's."""

PAGE = 500
ESTABLISH_SECONDS = 10.0
"""A real API server serves a new definition within a second; emulated ones do at once."""

_DECODE = msgspec.json.Decoder(dict[str, Any])
_BUSY = frozenset({429, 503, 504})
_AGAIN = urllib3.Retry(total=5, backoff_factor=0.05, status_forcelist=_BUSY, allowed_methods=None, raise_on_status=False)
"""The simulator must live through an API server that is told to be overloaded; a repeated create ends as AlreadyExists."""


class ApiError(Exception):
    """The API server refused a request. `status` is the HTTP status, `reason` Kubernetes' word for it."""

    def __init__(self, message: str, status: int, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class Meta(Struct, frozen=True, rename="camel"):
    """What the cache needs to know of an object before it decodes the rest."""

    name: str
    namespace: str = ""
    resource_version: str = ""


class Head(Struct, frozen=True):
    """An object of which only the metadata is read."""

    metadata: Meta


class _ListMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(Struct, frozen=True):
    metadata: _ListMeta
    items: tuple[msgspec.Raw, ...] | None = None


class _Status(Struct, frozen=True):
    message: str = ""
    reason: str = ""


_PAGES = msgspec.json.Decoder(_Page)


class Api:
    """One API server, by keep-alive connections; safe for several threads."""

    def __init__(self, access: kubeconfig.Access, connections: int = 4) -> None:
        headers = {"Accept": "application/json", "User-Agent": AGENT}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        context = tls.context(access)
        pool = urllib3.PoolManager(
            1, headers=headers, maxsize=connections, block=True, retries=_AGAIN, ssl_context=context, timeout=TIMEOUT
        )
        self._connections = Connections(access.server, context)
        self._pool = pool
        self._server = access.server
        self._headers = headers

    @classmethod
    def from_kubeconfig(cls, path: Path, connections: int = 4) -> Api:
        """The server that a kubeconfig names."""
        return cls(kubeconfig.load(path), connections)

    @property
    def emulated(self) -> bool:
        """Whether it is one of ours: real API servers speak TLS only."""
        return self._server.startswith("http:")

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()
        self._pool.clear()

    def send(
        self, method: str, path: str, body: Any = None, *, query: dict[str, str] | None = None, content: str = "application/json"
    ) -> bytes:
        """The body of a successful answer. Raises ApiError for a refusal."""
        target = path + (f"?{urlencode(query)}" if query else "")
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        headers = self._headers if data is None else self._headers | {"Content-Type": content}
        status, answer = self._request(method, target, data, headers)
        if status < 300:
            return answer
        raise _error(f"{method} {path}", status, answer)

    def _request(self, method: str, target: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        """One try over a plain connection; what a server under load or a lost connection refuses is tried again."""
        try:
            status, answer = self._connections.request(method, target, data, headers)
        except (OSError, http.client.HTTPException):
            status, answer = 0, b""
        if status and status not in _BUSY:
            return status, answer
        again = self._pool.request(method, self._server + target, body=data, headers=headers)
        return again.status, again.data

    def get(self, kind: Kind, name: str, namespace: str = "") -> Obj | None:
        """One object; None when it does not exist."""
        try:
            return _DECODE.decode(self.send("GET", kind.path(namespace, name)))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: Kind, namespace: str = "", labels: str = "", fields: str = "") -> tuple[msgspec.Raw, ...] | None:
        """All objects of a collection, still encoded; None when the API does not serve it."""
        query = {"limit": str(PAGE)} | ({"labelSelector": labels} if labels else {}) | ({"fieldSelector": fields} if fields else {})
        found: list[msgspec.Raw] = []
        while True:
            try:
                page = _PAGES.decode(self.send("GET", kind.path(namespace), query=query))
            except ApiError as error:
                if error.status == 410 and "continue" in query:  # the pages' snapshot expired: start again
                    found.clear()
                    del query["continue"]
                    continue
                if error.status == 404:
                    return None
                raise
            found.extend(page.items or ())
            if not page.metadata.continue_:
                return tuple(found)
            query["continue"] = page.metadata.continue_

    def revision(self) -> str:
        """The server's newest resourceVersion, by the smallest possible LIST."""
        return _PAGES.decode(self.send("GET", "/api/v1/namespaces", query={"limit": "1"})).metadata.resource_version

    def create(self, kind: Kind, obj: Obj) -> Obj:
        """Create; ApiError 409 AlreadyExists when the name is taken."""
        body = {"apiVersion": kind.api_version, "kind": kind.kind} | obj
        made: Obj = _DECODE.decode(self.send("POST", kind.path(obj["metadata"].get("namespace", "")), body))
        if kind == CRDS:
            self._await_served(made["spec"])
        return made

    def _await_served(self, spec: Obj) -> None:
        """A real API server answers 404 for some 100 ms after a definition was created."""
        version = next(row["name"] for row in spec["versions"] if row["served"])
        kind = Kind(group=spec["group"], version=version, plural=spec["names"]["plural"], kind=spec["names"]["kind"])
        end = time.monotonic() + ESTABLISH_SECONDS
        while self.list(kind) is None and time.monotonic() < end:
            time.sleep(0.02)

    def merge(self, kind: Kind, at: Ref, patch: Obj, sub: str = "") -> Obj:
        """JSON merge patch of an object or of its sub-resource (`status`)."""
        data = self.send("PATCH", kind.path(at.namespace, at.name, sub), patch, content="application/merge-patch+json")
        return _DECODE.decode(data)

    def replace(self, kind: Kind, obj: Obj, sub: str = "") -> Obj:
        """PUT of a whole object or of its sub-resource (`finalize`)."""
        meta = obj["metadata"]
        body = {"apiVersion": kind.api_version, "kind": kind.kind} | obj
        return _DECODE.decode(self.send("PUT", kind.path(meta.get("namespace", ""), meta["name"], sub), body))

    def apply(self, kind: Kind, obj: Obj) -> Obj:
        """Server-side apply as the simulator, taking fields over from others."""
        meta = obj["metadata"]
        body = {"apiVersion": kind.api_version, "kind": kind.kind} | obj
        path = kind.path(meta.get("namespace", ""), meta["name"])
        query = {"fieldManager": AGENT, "force": "true"}
        return _DECODE.decode(self.send("PATCH", path, body, query=query, content="application/apply-patch+yaml"))

    def bind(self, pod: Ref, node: str) -> None:
        """Bind a pod to a node, as schedulers do."""
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name, "namespace": pod.namespace}, "target": target}
        self.send("POST", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/binding", body)

    def delete(self, kind: Kind, at: Ref) -> bool:
        """Delete at once, without grace; False when it was not there. What it owns is left to the garbage role."""
        body = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        try:
            self.send("DELETE", kind.path(at.namespace, at.name), body)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def write_log(self, pod: Ref, container: str, text: str) -> bool:
        """Give a container's log to the emulated server. False where there is no such end point, as on a real server.

        A real API server fetches logs from the kubelet of the pod's node: there `kubelet_port` serves them.
        """
        try:
            self.send("POST", f"/emulation/logs/{pod.namespace}/{pod.name}/{container}", text.encode(), content="text/plain")
        except ApiError as error:
            if error.status in (403, 404, 405):
                return False
            raise
        return True


def decode(raw: msgspec.Raw | bytes) -> Obj:
    """An encoded object as plain data."""
    return _DECODE.decode(raw)


def _error(what: str, status: int, data: bytes) -> ApiError:
    try:
        said = msgspec.json.decode(data, type=_Status)
    except msgspec.MsgspecError:
        said = _Status(message=data[:200].decode(errors="replace"))
    return ApiError(f"{what}: {status} {said.reason}: {said.message}", status, said.reason)
