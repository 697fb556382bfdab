"""The Kubernetes client of a step: raw paged reads decoded by msgspec, and server-side apply."""

from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients import kubeconfig
from steps.clients.kube_http import FIELD_MANAGER, ApiError, Http
from steps.errors import Conflict

T = TypeVar("T")
PAGE = 500
"""Objects per LIST page: 5,000 nodes take 0.14 s in pages of 500 (embedded_k8s §5)."""

Object = dict[str, Any]


class ListMeta(Struct, frozen=True, rename="camel"):
    """The part of a list's metadata that paging needs."""

    continue_: str = msgspec.field(default="", name="continue")


class Page(Struct, Generic[T], frozen=True):
    """One page of a LIST."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()


class EventMeta(Struct, frozen=True, rename="camel"):
    """An event's time stamp for ordering."""

    creation_timestamp: str = ""


class Event(Struct, frozen=True, rename="camel"):
    """The readable part of a core/v1 Event."""

    metadata: EventMeta = EventMeta()
    reason: str = ""
    message: str = ""


class Resource(Struct, frozen=True, rename="camel"):
    """One entry of API discovery."""

    name: str
    kind: str
    namespaced: bool


class ResourceList(Struct, frozen=True):
    """API discovery of one group version."""

    resources: tuple[Resource, ...] = ()


class Kube:
    """The target cluster. Reads satisfy `steps.probes.reader.KubeReader`; writes are applied with our field manager."""

    def __init__(self, access: kubeconfig.Access, who: str = "") -> None:
        self._http = Http(access, who)
        self._resources: dict[str, tuple[Resource, ...]] = {}

    @classmethod
    def from_file(cls, path: Path, who: str = "") -> "Kube":
        """The cluster that a kubeconfig names; `who` asks is told to its audit log."""
        return cls(kubeconfig.load(path), who)

    def get(self, path: str, kind: type[T]) -> T | None:
        """One object, None when it does not exist."""
        try:
            return decoded(self._http.request("GET", path), kind)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...] | None:
        """All objects of a collection, None when the API does not serve it."""
        query = {"limit": str(PAGE)}
        query |= {"labelSelector": labels} if labels else {}
        query |= {"fieldSelector": fields} if fields else {}
        page_of = Page[kind]  # type: ignore[valid-type]  # a run-time type parameter
        found: list[T] = []
        while True:
            try:
                page: Page[T] = decoded(self._http.request("GET", path, query=query), page_of)
            except ApiError as error:
                if error.status == 404:
                    return None
                if error.status == 410 and "continue" in query:  # the snapshot behind the pages expired: start again
                    found.clear()
                    del query["continue"]
                    continue
                raise
            found.extend(page.items)
            if not page.metadata.continue_:
                return tuple(found)
            query["continue"] = page.metadata.continue_

    def text(self, path: str) -> str | None:
        """The body of a GET that is no JSON (`/readyz?verbose`), also of a 500, which says there what is not ready; None on 404."""
        return self._http.text(path)

    def log(self, namespace: str, pod: str, container: str = "", tail: int = 200, previous: bool = False) -> str:
        """The last lines of a pod's log (`previous`: of its container before the last restart); empty when there is none.

        Also empty where the kubelet does not answer soon: the API server would wait for it, and a look at all nodes with it.
        """
        query = {"tailLines": str(tail)} | ({"container": container} if container else {})
        query |= {"previous": "true"} if previous else {}
        data = self._http.glance(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query, timeouts.POD_LOG)
        return (data or b"").decode(errors="replace")

    def events(self, namespace: str, name: str) -> tuple[str, ...]:
        """Events about one object as `Reason: message`, oldest first."""
        found = self.list(f"/api/v1/namespaces/{namespace}/events", Event, fields=f"involvedObject.name={name}") or ()
        ordered = sorted(found, key=lambda event: event.metadata.creation_timestamp)
        return tuple(f"{event.reason}: {event.message}" for event in ordered)

    def apply(self, manifest: Object, *, force: bool = False, dry_run: bool = False) -> Object:
        """Server-side apply. Raises Conflict when another manager owns a field that we would change."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false", "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        try:
            data = self._http.request(
                "PATCH", self.path(manifest), query=query, body=manifest, content_type="application/apply-patch+yaml"
            )
        except ApiError as error:
            if error.status == 409:
                raise Conflict(
                    str(error), hint="somebody else owns these fields: settle who owns the release, then run again"
                ) from error
            raise
        return _object(data)

    def create(self, manifest: Object) -> Object:
        """Create an object; ApiError 409 when it exists."""
        return _object(self._http.request("POST", self.path(manifest).rsplit("/", 1)[0], body=manifest))

    def merge(self, path: str, patch: Object) -> Object:
        """JSON merge patch of one object."""
        return _object(self._http.request("PATCH", path, body=patch, content_type="application/merge-patch+json"))

    def delete(self, path: str) -> bool:
        """Delete one object and what it owns; False when it was not there."""
        try:
            self._http.request("DELETE", path, body={"propagationPolicy": "Background"})
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def delete_all(self, path: str, labels: str) -> None:
        """Delete every object of a collection that a label selector takes."""
        self._http.request("DELETE", path, query={"labelSelector": labels})

    def path(self, manifest: Object) -> str:
        """API path of an object, by discovery. Raises ApiError 404 when the server does not know its kind."""
        version, kind, meta = str(manifest["apiVersion"]), str(manifest["kind"]), manifest["metadata"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        resource = self._resource(base, kind)
        namespace = f"/namespaces/{meta['namespace']}" if resource.namespaced else ""
        return f"{base}{namespace}/{resource.name}/{meta['name']}"

    def _resource(self, base: str, kind: str) -> Resource:
        if base not in self._resources:
            found = msgspec.json.decode(self._http.request("GET", base), type=ResourceList).resources
            self._resources[base] = found
        for resource in self._resources[base]:
            if resource.kind == kind and "/" not in resource.name:
                return resource
        del self._resources[base]  # a CRD may appear later
        raise ApiError(f"{base} does not serve {kind}", 404, "NotFound")


def decoded(data: bytes, kind: type[T]) -> T:
    """An answer of the API. An empty list may be null there (a fresh CRD's conditions are), which says as much as no field.

    Raises msgspec.ValidationError.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        return msgspec.convert(_without_nulls(msgspec.json.decode(data)), type=kind)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _object(data: bytes) -> Object:
    decoded: Object = msgspec.json.decode(data)
    return decoded
