"""The endpoints below `/emulation/`, which no real API server has: container logs, snapshots, disturbances, and who
asked for what."""

import msgspec
from aiohttp import web

from workflows.rehearsal.apiserver import bodies, errors, snapshot
from workflows.rehearsal.apiserver.disturbance import Disturbance
from workflows.rehearsal.apiserver.handlers import answer
from workflows.rehearsal.apiserver.logserving import container_of
from workflows.rehearsal.apiserver.state import State
from workflows.rehearsal.apiserver.watching import TRUE


async def handle(request: web.Request, state: State, steps: list[str]) -> web.Response:
    """Answers one request; `steps` are the path's steps after `emulation`.

    Raises:
        ApiError: 400, 404, 405.
    """
    match request.method, steps:
        case "POST", ["logs", namespace, pod, container]:
            return await _append_log(request, state, namespace, pod, container)
        case "GET", ["snapshot"]:
            return web.Response(body=snapshot.take(state), content_type="application/octet-stream")
        case "PUT", ["snapshot"]:
            # Not request.read(): a snapshot is far above the limit on a resource request.
            snapshot.restore(state, b"".join([chunk async for chunk in request.content.iter_any()]))
            return answer(errors.SUCCESS)
        case "GET", ["asked"]:
            return answer([row._asdict() for row in sorted(state.asked)])
        case "GET", ["disturbance"]:
            return answer(state.disturbance)
        case "PUT", ["disturbance"]:
            return _disturb(state, await bodies.read(request))
        case "DELETE", ["disturbance"]:
            state.disturb(Disturbance())
            return answer(errors.SUCCESS)
        case _, ["logs", _, _, _] | ["snapshot"] | ["asked"] | ["disturbance"]:
            raise errors.method_not_allowed()
        case _:
            raise errors.no_such_path()


async def _append_log(request: web.Request, state: State, namespace: str, pod: str, container: str) -> web.Response:
    """Appends the body to a container's log; `?restart=true` first makes what is there the previous log."""
    entry = state.store.get(state.resources.core("pods"), namespace, pod)
    log = state.logs.of(namespace, pod, container_of(entry.decode(), container))
    text = await bodies.read(request)
    if request.query.get("restart") in TRUE:
        log.restart()
    log.append(text)
    return answer(errors.SUCCESS)


def _disturb(state: State, data: bytes) -> web.Response:
    try:
        wanted = msgspec.json.decode(data, type=Disturbance)
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"not a disturbance: {error}") from error
    wanted.check()
    state.disturb(wanted)
    return answer(state.disturbance)
