"""Handlers for the HTTP methods on Kubernetes resources: each request becomes one change of the cluster state and one answer."""

import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from aiohttp import web

from workflows.rehearsal.apiserver import bodies, errors, listing, patching, pod_commands, representations, subresources
from workflows.rehearsal.apiserver.cluster_state import ClusterState
from workflows.rehearsal.apiserver.lifecycle import Deletion
from workflows.rehearsal.apiserver.patching import PatchRequest
from workflows.rehearsal.apiserver.representations import Presenter
from workflows.rehearsal.apiserver.routing import RequestTarget
from workflows.rehearsal.apiserver.selectors import Selection, parse_fields, select
from workflows.rehearsal.apiserver.stored_object import Object, StoredObject
from workflows.rehearsal.apiserver.subresources import PodActions

_RETURNS_OBJECT = frozenset(
    {
        "csidrivers",
        "csinodes",
        "deviceclasses",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "pods",
        "podtemplates",
        "resourceclaims",
        "resourceclaimtemplates",
        "resourcequotas",
        "resourceslices",
        "serviceaccounts",
        "services",
        "storageclasses",
        "volumeattachments",
        "volumeattributesclasses",
    }
)
"""Built-in resources whose delete returns the object instead of a Status (`ReturnDeletedObject`)."""
_CREATED_BY_PUT = frozenset(
    {
        "clusterrolebindings",
        "clusterroles",
        "endpoints",
        "events",
        "leases",
        "limitranges",
        "rolebindings",
        "roles",
        "runtimeclasses",
        "services",
    }
)
"""Built-in resources that a PUT creates if they are missing (`AllowCreateOnUpdate`)."""
_QUOTED, _UNPRINTABLE = re.compile(r'([\\"])'), re.compile(r"[^ -~]")


PIECE = 1 << 20
"""Bytes of a large answer that are sent at a time: a list of 10,000 pods has 70 MB, of which each layer below would hold a copy."""


def json_response(body: bytes | Any, status: int = 200, warnings: list[str] | None = None) -> web.Response:
    """Return an HTTP answer with a JSON body and one `Warning` header for each warning; `bytes` are taken as encoded JSON."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    response = web.Response(body=data if len(data) <= PIECE else _pieces(data), status=status, content_type="application/json")
    for text in warnings or ():
        escaped = _UNPRINTABLE.sub("?", _QUOTED.sub(r"\\\1", text))
        response.headers.add("Warning", f'299 - "{escaped}"')
    return response


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    """Yield the pieces of a body."""
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


class ResourceHandlers:
    """The handlers of every request below `/api` and `/apis` that names a resource, object or sub-resource of one cluster."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._actions = PodActions(state.store, state.resources, state.lifecycle)

    async def handle(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        """Answer one request on `target`; a watch or a followed log is streamed until it ends. Raises StatusError to refuse it."""
        if target.subresource in ("log", "exec", "binding", "eviction", "scale"):
            return await self._special(request, target)
        verbs = {"GET": self._get, "PUT": self._put, "PATCH": self._patch, "DELETE": self._delete, "HEAD": self._get}
        if not target.name:
            verbs = {"GET": self._collection, "POST": self._post, "DELETE": self._delete_collection}
        verb = verbs.get(request.method)
        if verb is None or (target.subresource and request.method == "DELETE"):
            raise errors.method_not_allowed()
        return await verb(request, target)

    def _entry(self, target: RequestTarget) -> StoredObject:
        return self._state.store.get(target.resource, target.namespace, target.name)

    def _presenter(self, request: web.Request, target: RequestTarget) -> Presenter:
        return Presenter(target.resource, representations.accepted_representation(request.headers.get("Accept", "")))

    def _selection(self, request: web.Request, target: RequestTarget) -> Selection:
        query = request.query
        return select(target.resource, target.namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))

    async def _collection(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        selection, presenter = self._selection(request, target), self._presenter(request, target)
        if request.query.get("watch") in listing.TRUE_VALUES:
            return await self._watch(request, target, selection)
        page = self._state.lists.page(target.resource, selection, request.query)
        return json_response(presenter.list(page.entries, page.metadata))

    async def _watch(self, request: web.Request, target: RequestTarget, selection: Selection) -> web.StreamResponse:
        store, presenter = self._state.store, self._presenter(request, target)
        watch = listing.WatchStream(store, target.resource, selection, presenter, listing.watch_options(request.query, store))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await watch.run(response)
        await response.write_eof()
        return response

    async def _get(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        if request.query.get("watch") in listing.TRUE_VALUES:
            name = parse_fields(f"metadata.name={target.name}", target.resource)
            return await self._watch(request, target, Selection(target.namespace, (), name))
        return json_response(self._presenter(request, target).object(self._entry(target)))

    async def _post(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        if target.resource.namespaced and not target.namespace:
            raise errors.method_not_allowed()
        write, presenter = bodies.write_options(request), self._presenter(request, target)
        body = await bodies.read_object(request)
        entry = self._state.lifecycle.create(target.resource, target.namespace, body, write)
        return json_response(presenter.object(entry), 201, write.warnings)

    async def _put(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        write, presenter = bodies.write_options(request), self._presenter(request, target)
        body = await bodies.read_object(request)
        resource, lifecycle = target.resource, self._state.lifecycle
        existing = self._state.store.table(resource.key).get(target.namespace, target.name)
        creates = not resource.custom and resource.plural in _CREATED_BY_PUT and not target.subresource
        if existing is None and creates:
            return json_response(presenter.object(lifecycle.create(resource, target.namespace, body, write)), 201, write.warnings)
        entry = lifecycle.update(resource, existing or self._entry(target), body, target.subresource, write)
        return json_response(presenter.object(entry), 200, write.warnings)

    async def _read_patch(self, request: web.Request, target: RequestTarget) -> PatchRequest:
        content_type = request.content_type
        patching.check_content_type(content_type, target.resource)
        body = bodies.parse(await bodies.read(request), content_type)
        return PatchRequest(content_type, body, request.query.get("force", "").lower() == "true")

    async def _patch(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        write, presenter = bodies.write_options(request), self._presenter(request, target)
        patch = await self._read_patch(request, target)
        resource, lifecycle = target.resource, self._state.lifecycle
        existing = self._state.store.table(resource.key).get(target.namespace, target.name)
        if not patch.applies:
            entry = existing or self._entry(target)
            old = entry.decode() if patch.content_type == patching.MERGE_PATCH else None
            new = patching.apply_patch(presenter.live(entry) if old is None else presenter.shown(old), patch, resource)
            updated = lifecycle.update(resource, entry, new, target.subresource, write, old=old)
            return json_response(presenter.object(updated), 200, write.warnings)
        live: Object = presenter.live(existing) if existing else {"metadata": {}}
        manager = request.query.get("fieldManager", "")
        new = patching.apply_configuration(live, patch, resource, target.subresource, target.name, manager)
        if existing:
            entry = lifecycle.update(resource, existing, new, target.subresource, write, applied=True)
            return json_response(presenter.object(entry), 200, write.warnings)
        if target.subresource:
            raise resource.missing(target.name)
        # a create drops managedFields from the body, so the records are passed beside it
        records = new["metadata"].pop("managedFields", [])
        entry = lifecycle.create(resource, target.namespace, new, write, records=records)
        return json_response(presenter.object(entry), 201, write.warnings)

    async def _delete(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        deletion = await bodies.delete_options(request)
        entry, gone = self._state.lifecycle.delete(target.resource, self._entry(target), deletion)
        if not gone or (not target.resource.custom and target.resource.plural in _RETURNS_OBJECT):
            return json_response(self._presenter(request, target).object(entry))
        details = {"name": entry.name, "group": target.resource.group, "kind": target.resource.plural}
        return json_response(errors.SUCCESS | {"details": details | {"uid": entry.decode()["metadata"]["uid"]}})

    async def _delete_collection(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        if target.resource.namespaced and not target.namespace:
            raise errors.method_not_allowed()
        deletion: Deletion = await bodies.delete_options(request)
        selection, presenter = self._selection(request, target), self._presenter(request, target)
        page = self._state.lists.page(target.resource, selection, request.query)
        entries = [self._state.lifecycle.delete(target.resource, entry, deletion)[0] for entry in page.entries]
        return json_response(presenter.list(entries, page.metadata))

    async def _special(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        if target.subresource == "log" and request.method == "GET":
            return await subresources.serve_log(request, self._state, self._entry(target))
        if target.subresource == "exec" and request.method == "GET":
            return await pod_commands.serve(request, self._state, self._entry(target))
        if target.subresource in ("binding", "eviction") and request.method == "POST":
            write, body = bodies.write_options(request), await bodies.read_object(request)
            act = self._actions.bind if target.subresource == "binding" else self._actions.evict
            act(self._entry(target), body, write)
            return json_response(errors.SUCCESS | {"code": 201}, 201)
        if target.subresource == "scale" and request.method in ("GET", "PUT", "PATCH"):
            return await self._scale(request, target)
        raise errors.method_not_allowed()

    async def _scale(self, request: web.Request, target: RequestTarget) -> web.StreamResponse:
        presenter, resource = self._presenter(request, target), target.resource
        if request.method == "GET":
            return json_response(subresources.scale_of(resource, presenter.live(self._entry(target))))
        write = bodies.write_options(request)
        if request.method == "PUT":
            scale = await bodies.read_object(request)
        else:
            patch = await self._read_patch(request, target)
            if patch.applies:
                raise errors.unsupported_media_type((patching.JSON_PATCH, patching.MERGE_PATCH))
            plain = patch if patch.content_type == patching.JSON_PATCH else PatchRequest(patching.MERGE_PATCH, patch.body)
            scale = patching.apply_patch(subresources.scale_of(resource, presenter.live(self._entry(target))), plain, resource)
        entry = self._entry(target)
        new = subresources.with_replicas(resource, presenter.live(entry), scale)
        updated = self._state.lifecycle.update(resource, entry, new, "", write)
        return json_response(subresources.scale_of(resource, presenter.live(updated)), 200, write.warnings)
