"""The verbs on resources: one HTTP request on a target → one change of the state → one answer."""

import re
from typing import Any

import msgspec
from aiohttp import web

from workflows.rehearsal.apiserver import bodies, errors, forms, logserving, patching, scaling, watching
from workflows.rehearsal.apiserver.entry import Entry, Object
from workflows.rehearsal.apiserver.forms import Presenter
from workflows.rehearsal.apiserver.lifecycle import Deletion
from workflows.rehearsal.apiserver.patching import Patch
from workflows.rehearsal.apiserver.podactions import PodActions
from workflows.rehearsal.apiserver.routing import Target
from workflows.rehearsal.apiserver.selectors import Selection, parse_fields, select
from workflows.rehearsal.apiserver.state import State

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
"""Built-in resources whose delete answers with the object instead of a Status (`ReturnDeletedObject`)."""
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
"""Built-in resources that a PUT creates when they are missing (`AllowCreateOnUpdate`)."""
_UNSAFE = re.compile(r'[\\"]|[^ -~]')


def _escaped(found: re.Match[str]) -> str:
    return "\\" + found[0] if found[0] in '\\"' else "?"


def answer(body: bytes | Any, status: int = 200, warnings: list[str] | None = None) -> web.Response:
    """A JSON answer, with a `Warning` header for each warning."""
    response = web.Response(
        body=body if isinstance(body, bytes) else msgspec.json.encode(body), status=status, content_type="application/json"
    )
    for text in warnings or ():
        response.headers.add("Warning", f'299 - "{_UNSAFE.sub(_escaped, text)}"')
    return response


class Handlers:
    """Answers requests on resources."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._actions = PodActions(state.store, state.resources, state.lifecycle)

    async def handle(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Answers one request.

        Raises:
            ApiError: whatever is wrong with it.
        """
        if target.subresource in ("log", "binding", "eviction", "scale"):
            return await self._special(request, target)
        verbs = {"GET": self._get, "PUT": self._put, "PATCH": self._patch, "DELETE": self._delete, "HEAD": self._get}
        if not target.name:
            verbs = {"GET": self._collection, "POST": self._post, "DELETE": self._delete_collection}
        verb = verbs.get(request.method)
        if verb is None or (target.subresource and request.method == "DELETE"):
            raise errors.method_not_allowed()
        return await verb(request, target)

    def _entry(self, target: Target) -> Entry:
        return self._state.store.get(target.resource, target.namespace, target.name)

    def _presenter(self, request: web.Request, target: Target) -> Presenter:
        return Presenter(target.resource, forms.accepted(request.headers.get("Accept", "")))

    def _selection(self, request: web.Request, target: Target) -> Selection:
        query = request.query
        return select(target.resource, target.namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))

    async def _collection(self, request: web.Request, target: Target) -> web.StreamResponse:
        selection, presenter = self._selection(request, target), self._presenter(request, target)
        if request.query.get("watch") in watching.TRUE:
            return await self._watch(request, target, selection)
        page = self._state.lists.page(target.resource, selection, request.query)
        return answer(presenter.list(page.entries, page.metadata))

    async def _watch(self, request: web.Request, target: Target, selection: Selection) -> web.StreamResponse:
        store = self._state.store
        watch = watching.Watch(
            store, target.resource, selection, self._presenter(request, target), watching.wish(request.query, store)
        )
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await watch.run(response)
        await response.write_eof()
        return response

    async def _get(self, request: web.Request, target: Target) -> web.StreamResponse:
        if request.query.get("watch") in watching.TRUE:
            name = parse_fields(f"metadata.name={target.name}", target.resource)
            return await self._watch(request, target, Selection(target.namespace, (), name))
        return answer(self._presenter(request, target).object(self._entry(target)))

    async def _post(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.resource.namespaced and not target.namespace:
            raise errors.method_not_allowed()
        write, presenter = bodies.write_options(request), self._presenter(request, target)
        body = await bodies.read_object(request)
        entry = self._state.lifecycle.create(target.resource, target.namespace, body, write)
        return answer(presenter.object(entry), 201, write.warnings)

    async def _put(self, request: web.Request, target: Target) -> web.StreamResponse:
        write, presenter = bodies.write_options(request), self._presenter(request, target)
        body = await bodies.read_object(request)
        resource, lifecycle = target.resource, self._state.lifecycle
        held = self._state.store.table(resource.key).get(target.namespace, target.name)
        creates = not resource.custom and resource.plural in _CREATED_BY_PUT and not target.subresource
        if held is None and creates:
            return answer(presenter.object(lifecycle.create(resource, target.namespace, body, write)), 201, write.warnings)
        entry = lifecycle.update(resource, held or self._entry(target), body, target.subresource, write)
        return answer(presenter.object(entry), 200, write.warnings)

    async def _read_patch(self, request: web.Request, target: Target) -> Patch:
        content_type = request.content_type
        patching.check_content_type(content_type, target.resource)
        body = bodies.parse(await bodies.read(request), content_type)
        return Patch(content_type, body, request.query.get("force", "").lower() == "true")

    async def _patch(self, request: web.Request, target: Target) -> web.StreamResponse:
        write, presenter = bodies.write_options(request), self._presenter(request, target)
        patch = await self._read_patch(request, target)
        resource, lifecycle = target.resource, self._state.lifecycle
        held = self._state.store.table(resource.key).get(target.namespace, target.name)
        if not patch.applies:
            entry = held or self._entry(target)
            new = patching.patched(presenter.live(entry), patch, resource)
            return answer(presenter.object(lifecycle.update(resource, entry, new, target.subresource, write)), 200, write.warnings)
        live: Object = presenter.live(held) if held else {"metadata": {}}
        new = patching.applied(live, patch, resource, target.subresource, target.name, request.query.get("fieldManager", ""))
        if held:
            entry = lifecycle.update(resource, held, new, target.subresource, write, applied=True)
            return answer(presenter.object(entry), 200, write.warnings)
        if target.subresource:
            raise resource.missing(target.name)
        records = new["metadata"].pop("managedFields", [])
        entry = lifecycle.create(resource, target.namespace, new, write, records=records)
        return answer(presenter.object(entry), 201, write.warnings)

    async def _delete(self, request: web.Request, target: Target) -> web.StreamResponse:
        deletion = await bodies.delete_options(request)
        entry, gone = self._state.lifecycle.delete(target.resource, self._entry(target), deletion)
        if not gone or (not target.resource.custom and target.resource.plural in _RETURNS_OBJECT):
            return answer(self._presenter(request, target).object(entry))
        resource = target.resource
        details = {"name": entry.name, "group": resource.group, "kind": resource.plural, "uid": entry.decode()["metadata"]["uid"]}
        return answer(errors.SUCCESS | {"details": details})

    async def _delete_collection(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.resource.namespaced and not target.namespace:
            raise errors.method_not_allowed()
        deletion: Deletion = await bodies.delete_options(request)
        selection, presenter = self._selection(request, target), self._presenter(request, target)
        page = self._state.lists.page(target.resource, selection, request.query)
        entries = [self._state.lifecycle.delete(target.resource, entry, deletion)[0] for entry in page.entries]
        return answer(presenter.list(entries, page.metadata))

    async def _special(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.subresource == "log" and request.method == "GET":
            return await logserving.serve(request, self._state, self._entry(target))
        if target.subresource in ("binding", "eviction") and request.method == "POST":
            write, body = bodies.write_options(request), await bodies.read_object(request)
            act = self._actions.bind if target.subresource == "binding" else self._actions.evict
            act(self._entry(target), body, write)
            return answer(errors.SUCCESS | {"code": 201}, 201)
        if target.subresource == "scale" and request.method in ("GET", "PUT", "PATCH"):
            return await self._scale(request, target)
        raise errors.method_not_allowed()

    async def _scale(self, request: web.Request, target: Target) -> web.StreamResponse:
        presenter, resource = self._presenter(request, target), target.resource
        if request.method == "GET":
            return answer(scaling.scale_of(resource, presenter.live(self._entry(target))))
        write = bodies.write_options(request)
        if request.method == "PUT":
            scale = await bodies.read_object(request)
        else:
            patch = await self._read_patch(request, target)
            if patch.content_type not in (patching.JSON, patching.MERGE, patching.STRATEGIC):
                raise errors.unsupported_media_type((patching.JSON, patching.MERGE))
            plain = Patch(patching.MERGE if patch.content_type == patching.STRATEGIC else patch.content_type, patch.body)
            scale = patching.patched(scaling.scale_of(resource, presenter.live(self._entry(target))), plain, resource)
        entry = self._entry(target)
        new = scaling.with_replicas(resource, presenter.live(entry), scale)
        updated = self._state.lifecycle.update(resource, entry, new, "", write)
        return answer(scaling.scale_of(resource, presenter.live(updated)), 200, write.warnings)
