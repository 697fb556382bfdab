"""The Kubernetes client of a step: raw paged reads decoded by msgspec, and server-side apply."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.bounded_answers import ReadLimits
from steps.clients.kube import kubeconfig
from steps.clients.kube.api import FIELD_MANAGER, ApiError, Http
from steps.errors import Conflict, Garbled, NotUnderstood, Unreachable
from steps.stages.shared.kube_reader import AccessQuestion

if TYPE_CHECKING:
    from steps.clients.kube.pod_exec import CommandOutput

T = TypeVar("T")
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
PAGE = 500
"""Objects per LIST page. Measured: 5,000 nodes take 0.14 s in pages of 500, and 0.33 s in one page."""

_BEGINNING = 60
"""Bytes of an unreadable answer that an error shows: enough to recognise a proxy's page, too few for an object's content."""
_ELSE = "see with `kubectl get --raw PATH` whether the server has another version of this kind, or something else answers"

_SLOW = "the API server is overloaded or far away; the engine tries again"

Object = dict[str, Any]


class _PageMeta(Struct, frozen=True, rename="camel"):
    """The part of a list's metadata that paging needs."""

    continue_: str = msgspec.field(default="", name="continue")


class Page(Struct, Generic[T], frozen=True):
    """A page of a LIST. `kind` is required, so that JSON of another server without `items` is not taken for an empty list."""

    kind: str
    metadata: _PageMeta = _PageMeta()
    items: tuple[T, ...] = ()


class _EventMeta(Struct, frozen=True, rename="camel"):
    """Metadata of an event: the time by which events are ordered."""

    creation_timestamp: str = ""


class _KubeEvent(Struct, frozen=True, rename="camel"):
    """A core/v1 Event with its readable fields."""

    metadata: _EventMeta = _EventMeta()
    reason: str = ""
    message: str = ""


class _AccessDecision(Struct, frozen=True):
    """The answer of the authorizer. `allowed` is required, so that an answer without it is no refusal."""

    allowed: bool


class _AccessReview(Struct, frozen=True):
    """A SubjectAccessReview with its answer."""

    status: _AccessDecision


class Resource(Struct, frozen=True, rename="camel"):
    """A kind of object that an API group serves, as API discovery lists it."""

    name: str
    kind: str
    namespaced: bool


class ResourceList(Struct, frozen=True):
    """All kinds of one API group and version, as API discovery lists them."""

    resources: tuple[Resource, ...] = ()


class Kube:
    """Client of the target cluster. Reads satisfy `shared.kube_reader.KubeReader`; writes use the field manager `bringup`."""

    def __init__(self, access: kubeconfig.Access, who: str = "", limits: ReadLimits = ReadLimits()) -> None:
        self._access, self._who = access, who
        self._http = Http(access, who, limits)
        self._limits = limits
        self._resources: dict[str, tuple[Resource, ...]] = {}

    @classmethod
    def from_file(cls, path: Path, who: str = "", limits: ReadLimits = ReadLimits()) -> "Kube":
        """Return the client of the cluster that a kubeconfig names. `who` appears in the cluster's audit log."""
        return cls(kubeconfig.load(path), who, limits)

    def get(self, path: str, kind: type[T]) -> T | None:
        """Return one object, None if it does not exist. Raises NotUnderstood if it does not fit `kind`."""
        try:
            return decode(f"GET {path}", self._http.request("GET", path), kind)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...] | None:
        """Return all objects of a collection, None if the API serves none. Raises NotUnderstood if one does not fit `kind`."""
        query = {"limit": str(PAGE)}
        query |= {"labelSelector": labels} if labels else {}
        query |= {"fieldSelector": fields} if fields else {}
        deadline = time.monotonic() + self._limits.list_seconds
        for beginning in range(self._limits.expired + 1):
            try:
                return self._pages(path, kind, query, deadline)
            except ApiError as error:
                if error.status == 404:
                    return None
                if error.status != 410:  # Gone: the snapshot behind the pages has expired
                    raise
            time.sleep(min(timeouts.API_BACKOFF_MAX, self._limits.backoff * 2**beginning))
        raise Unreachable(
            f"GET {path}: the list expired {self._limits.expired + 1} times before its last page",
            hint="the API server forgets its snapshots faster than they are read: is it overloaded, or its etcd compacted often?",
        )

    def _pages(self, path: str, kind: type[T], query: dict[str, str], deadline: float) -> tuple[T, ...]:
        """Return the objects of all pages of one snapshot. Raises ApiError 410 if it expires meanwhile."""
        page_of = Page[kind]  # type: ignore[valid-type]  # a run-time type parameter
        objects: list[T] = []
        tokens, size = {""}, 0
        while True:
            data = self._http.request("GET", path, query=query)
            page: Page[T] = decode(f"GET {path}", data, page_of)
            # something else may answer in the API server's place
            if not page.kind.endswith("List"):
                raise NotUnderstood(f"GET {path}: this is a {page.kind}, no list", hint=_ELSE)
            objects.extend(page.items)
            if not page.metadata.continue_:
                return tuple(objects)
            size += len(data)
            if page.metadata.continue_ in tokens or len(tokens) >= self._limits.list_pages or size > self._limits.list_bytes:
                raise NotUnderstood(f"GET {path}: the list has no end: {len(objects)} objects in {len(tokens)} pages", hint=_ELSE)
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"GET {path}: {len(objects)} objects in {self._limits.list_seconds:.0f} s, and more to come", hint=_SLOW
                )
            tokens.add(page.metadata.continue_)
            query = query | {"continue": page.metadata.continue_}

    def text(self, path: str) -> str | None:
        """Return the text of a GET (`/readyz?verbose`), also of a 500, which lists what is not ready; None on 404."""
        return self._http.text(path)

    def log(self, namespace: str, pod: str, container: str = "", tail: int = 200, previous: bool = False) -> str:
        """Return the last lines of a pod's log (`previous`: before its last restart); empty if there is none.

        It is also empty if the kubelet does not answer soon: otherwise one dead node would delay the observation of all nodes.
        """
        query = {"tailLines": str(tail)} | ({"container": container} if container else {})
        query |= {"previous": "true"} if previous else {}
        data = self._http.glance(f"/api/v1/namespaces/{namespace}/pods/{pod}/log", query, timeouts.POD_LOG)
        return (data or b"").decode(errors="replace")

    def events(self, namespace: str, name: str) -> tuple[str, ...]:
        """Return the events about one object as `Reason: message`, oldest first."""
        events = self.list(f"/api/v1/namespaces/{namespace}/events", _KubeEvent, fields=f"involvedObject.name={name}") or ()
        ordered = sorted(events, key=lambda event: event.metadata.creation_timestamp)
        return tuple(f"{event.reason}: {event.message}" for event in ordered)

    def may(self, access: AccessQuestion) -> bool:
        """Return True if the authorizer of the API server allows a request; nothing is carried out or stored."""
        attributes = {
            "verb": access.verb,
            "group": access.api_group,
            "resource": access.resource,
            "subresource": access.subresource,
            "namespace": access.namespace,
        }
        question = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": access.user,
                "groups": list(access.groups),
                "resourceAttributes": {key: value for key, value in attributes.items() if value},
            },
        }
        data = self._http.request("POST", REVIEWS, body=question)
        return decode(f"POST {REVIEWS}", data, _AccessReview).status.allowed

    def execute(self, namespace: str, pod: str, container: str, command: Sequence[str], seconds: float) -> "CommandOutput":
        """Run a command in a container and return its output; see `pod_exec.run` for the errors."""
        from steps.clients.kube import pod_exec

        agent = f"{FIELD_MANAGER} {self._who}".rstrip()
        return pod_exec.run(self._access, namespace, pod, container, command, seconds=seconds, agent=agent)

    def apply(self, manifest: Object, *, force: bool = False, dry_run: bool = False) -> Object:
        """Apply an object on the server side and return it. Raises Conflict if another manager owns a field that would change."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false", "fieldValidation": "Strict"}
        query |= {"dryRun": "All"} if dry_run else {}
        try:
            path = self.path(manifest)
            data = self._http.request("PATCH", path, query=query, body=manifest, content_type="application/apply-patch+yaml")
        except ApiError as error:
            if error.status == 409:
                raise Conflict(
                    str(error), hint="somebody else owns these fields: settle who owns the release, then run again"
                ) from error
            raise
        return decode(f"apply to {path}", data, Object)

    def create(self, manifest: Object) -> Object:
        """Create an object. Raises ApiError 409 if it exists, 400 for an unknown field, which the server would drop silently."""
        path = self.path(manifest).rsplit("/", 1)[0]
        query = {"fieldValidation": "Strict"}
        return decode(f"POST {path}", self._http.request("POST", path, query=query, body=manifest), Object)

    def merge(self, path: str, patch: Object) -> Object:
        """Apply a JSON merge patch to the object at an API path and return the object."""
        data = self._http.request("PATCH", path, body=patch, content_type="application/merge-patch+json")
        return decode(f"PATCH {path}", data, Object)

    def delete(self, path: str) -> bool:
        """Delete one object and what it owns; return False if it does not exist."""
        try:
            self._http.request("DELETE", path, body={"propagationPolicy": "Background"})
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return True

    def delete_all(self, path: str, labels: str) -> None:
        """Delete every object at an API path that a label selector takes."""
        self._http.request("DELETE", path, query={"labelSelector": labels})

    def path(self, manifest: Object) -> str:
        """Return the API path of an object, by discovery. Raises ApiError 404 if the server does not know its kind."""
        version, kind, meta = str(manifest["apiVersion"]), str(manifest["kind"]), manifest["metadata"]
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        resource = self._resource(base, kind)
        namespace = f"/namespaces/{meta['namespace']}" if resource.namespaced else ""
        return f"{base}{namespace}/{resource.name}/{meta['name']}"

    def _resource(self, base: str, kind: str) -> Resource:
        if base not in self._resources:
            self._resources[base] = decode(f"GET {base}", self._http.request("GET", base), ResourceList).resources
        for resource in self._resources[base]:
            # a subresource such as `pods/status` has the kind of its resource
            if resource.kind == kind and "/" not in resource.name:
                return resource
        del self._resources[base]  # forget the discovery: a CRD may appear later
        raise ApiError(f"{base} does not serve {kind}", 404, "NotFound")


def decode(what: str, data: bytes, kind: type[T]) -> T:
    """Return the API's answer to `what` as type `kind`.

    Null values count as missing fields, because the conditions of a fresh CRD are null. Raises Garbled if the answer is no JSON,
    NotUnderstood if it has another form.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        plain = _plain(what, data)
    except RecursionError as error:
        raise _too_deep(what) from error
    try:
        # slow path for the few answers with null in place of a list or text
        return msgspec.convert(_without_nulls(plain), type=kind)
    except RecursionError as error:
        raise _too_deep(what) from error
    except msgspec.ValidationError as error:
        named = str(plain.get("kind") or "object") if isinstance(plain, dict) else "answer"
        raise NotUnderstood(f"{what}: this {named} has a form that is not known here: {error}", hint=_ELSE) from error


def _too_deep(what: str) -> NotUnderstood:
    return NotUnderstood(f"{what}: the answer is nested more deeply than any object of Kubernetes", hint=_ELSE)


def _plain(what: str, data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise _too_deep(what) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        begins = data[:_BEGINNING].decode(errors="replace")
        raise Garbled(
            f"{what}: the answer is no JSON ({error}); it begins {begins!r}",
            hint="something may stand between here and the API server (a proxy, a load balancer) and answer in its place",
        ) from error


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
