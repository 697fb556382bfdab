"""The HTTP application: authentication, disturbances, and which part answers which path."""

import hmac
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from workflows.rehearsal.apiserver import asked, bodies, discovery, emulation, errors, routing
from workflows.rehearsal.apiserver.handlers import Handlers, answer
from workflows.rehearsal.apiserver.state import State

_ROOT = {"paths": ["/api", "/apis", "/emulation", "/healthz", "/livez", "/readyz", "/version"]}


class Front:
    """Receives every request."""

    def __init__(self, state: State, token: str, git_version: str) -> None:
        self._state = state
        self._handlers = Handlers(state)
        self._authorization = f"Bearer {token}".encode()
        self._git_version = git_version

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answers a request; errors become a Status."""
        try:
            return await self._answer(request)
        except errors.ApiError as error:
            response = answer(error.status(), error.code)
            response.headers.update(error.headers)
            return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        if not hmac.compare_digest(request.headers.get("Authorization", "").encode(errors="surrogateescape"), self._authorization):
            raise errors.unauthorized()
        steps = [unquote(step) for step in request.rel_url.raw_path.split("/") if step]
        if steps[:1] == ["emulation"]:
            return await emulation.handle(request, self._state, steps[1:])
        self._state.asked.add(asked.kind(request.headers.get("User-Agent", ""), request.method, steps, request.query))
        await self._state.disturbance.before(request.method, request.path)
        if steps[:1] in (["healthz"], ["livez"], ["readyz"]):
            return web.Response(text="ok")
        document = self._document(steps)
        if document is not None:
            if request.method not in ("GET", "HEAD"):
                raise errors.method_not_allowed()
            return answer(document)
        return await self._handlers.handle(request, routing.find(steps, self._state.resources))

    def _document(self, steps: list[str]) -> Any:
        """The discovery document at a path; None when the path names a resource.

        Raises:
            ApiError: 404.
        """
        resources = self._state.resources
        match steps:
            case []:
                return _ROOT
            case ["version"]:
                return discovery.version(self._git_version)
            case ["api"]:
                return discovery.core_versions()
            case ["apis"]:
                return discovery.groups(resources)
            case ["apis", group]:
                return discovery.group(resources, group)
            case ["api", version]:
                return discovery.resource_list(resources, "", version)
            case ["apis", group, version]:
                return discovery.resource_list(resources, group, version)
            case ["api" | "apis", *_]:
                return None
            case _:
                raise errors.no_such_path()


def application(front: Front) -> web.Application:
    """The aiohttp application of a front."""
    app = web.Application(client_max_size=bodies.MAX_BYTES)
    app.router.add_route("*", "/{path:.*}", front.handle)
    return app
