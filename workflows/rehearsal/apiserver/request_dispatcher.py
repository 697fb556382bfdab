"""The HTTP application of the emulated server: it checks the token, applies disturbances, and hands a request on by its path."""

import hmac
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from workflows.rehearsal.apiserver import access_reviews, bodies, emulation, errors, representations, routing
from workflows.rehearsal.apiserver.cluster_state import ClusterState
from workflows.rehearsal.apiserver.handlers import ResourceHandlers, json_response

_ROOT = {"paths": ["/api", "/apis", "/emulation", "/healthz", "/livez", "/readyz", "/version"]}


class RequestDispatcher:
    """Answers every HTTP request to one emulated cluster, by its path."""

    def __init__(self, state: ClusterState, token: str, git_version: str) -> None:
        self._state = state
        self._handlers = ResourceHandlers(state)
        self._authorization = f"Bearer {token}".encode()
        self._git_version = git_version

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request; a StatusError that refuses it is answered as a `Status` object with its HTTP status."""
        try:
            return await self._answer(request)
        except errors.StatusError as error:
            response = json_response(error.status(), error.code)
            response.headers.update(error.headers)
            return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode(errors="surrogateescape"), self._authorization):
            raise errors.unauthorized()
        # split before decoding: an encoded slash belongs to a name
        steps = [unquote(step) for step in request.rel_url.raw_path.split("/") if step]
        if steps[:1] == ["emulation"]:
            return await emulation.handle(request, self._state, steps[1:])
        agent = request.headers.get("User-Agent", "")
        self._state.requests.add(routing.request_kind(agent, request.method, steps, request.query))
        await self._state.disturbance.before(request.method, request.path)
        if steps[:1] in (["healthz"], ["livez"], ["readyz"]):
            return web.Response(text="ok")
        if steps == access_reviews.PATH and request.method == "POST":
            return json_response(access_reviews.answer(self._state.store, await bodies.read_object(request)), 201)
        document = self._document(steps)
        if document is not None:
            if request.method not in ("GET", "HEAD"):
                raise errors.method_not_allowed()
            return json_response(document)
        return await self._handlers.handle(request, routing.request_target(steps, self._state.resources))

    def _document(self, steps: list[str]) -> Any:
        """Return the discovery document at a path, or None if it names a resource. Raises StatusError (404) for any other path."""
        resources = self._state.resources
        match steps:
            case []:
                return _ROOT
            case ["version"]:
                return representations.version(self._git_version)
            case ["api"]:
                return representations.CORE_VERSIONS
            case ["apis"]:
                return representations.groups(resources)
            case ["apis", group]:
                return representations.group(resources, group)
            case ["api", version]:
                return representations.resource_list(resources, "", version)
            case ["apis", group, version]:
                return representations.resource_list(resources, group, version)
            case ["api" | "apis", *_]:
                return None
            case _:
                raise errors.no_such_path()


def web_application(dispatcher: RequestDispatcher) -> web.Application:
    """Return the aiohttp application that passes every request to the dispatcher."""
    app = web.Application(client_max_size=bodies.MAX_BYTES)
    app.router.add_route("*", "/{path:.*}", dispatcher.handle)
    return app
