"""Endpoints below `/emulation/`, which no real API server has: logs, snapshots, disturbances, batches of writes, counts."""

import msgspec
from aiohttp import web

from workflows.rehearsal.apiserver import bodies, errors, pod_commands, write_batches
from workflows.rehearsal.apiserver.cluster_state import ApiDisturbance, ClusterState
from workflows.rehearsal.apiserver.container_logs import ContainerLog, LogPart
from workflows.rehearsal.apiserver.handlers import json_response
from workflows.rehearsal.apiserver.listing import TRUE_VALUES
from workflows.rehearsal.apiserver.stored_object import StoredObject
from workflows.rehearsal.apiserver.subresources import container_of

SNAPSHOT_FORMAT = 2


async def handle(request: web.Request, state: ClusterState, steps: list[str]) -> web.Response:
    """Answer a request below `/emulation/`; `steps` are the path segments after it. Raises StatusError: 400, 404 or 405."""
    match request.method, steps:
        case "POST", ["logs", namespace, pod, container]:
            return await _append_log(request, state, namespace, pod, container)
        case "GET", ["snapshot"]:
            return web.Response(body=take_snapshot(state), content_type="application/octet-stream")
        case "PUT", ["snapshot"]:
            # Not request.read(): a snapshot is far above the limit on a resource request.
            restore_snapshot(state, await _read_all(request))
            return json_response(errors.SUCCESS)
        case "POST", ["writes"]:
            writes = write_batches.decode_writes(await _read_all(request))
            return json_response(await write_batches.write_all(state, request.headers.get("User-Agent", ""), writes))
        case "GET", ["changes"]:
            return json_response({f"{plural}.{group}": count for (group, plural), count in state.store.changes.items()})
        case "GET", ["requests"]:
            return json_response([row._asdict() for row in sorted(state.requests)])
        case "DELETE", ["requests"]:
            state.requests.clear()
            return json_response(errors.SUCCESS)
        case "PUT", ["kubelet"]:
            await pod_commands.register(request, state)
            return json_response(errors.SUCCESS)
        case "GET", ["disturbance"]:
            return json_response(state.disturbance)
        case "PUT", ["disturbance"]:
            return _disturb(state, await bodies.read(request))
        case "DELETE", ["disturbance"]:
            state.disturb(ApiDisturbance())
            return json_response(errors.SUCCESS)
        case _, ["logs", _, _, _] | ["snapshot"] | ["requests"] | ["disturbance"] | ["writes"] | ["changes"] | ["kubelet"]:
            raise errors.method_not_allowed()
        case _:
            raise errors.no_such_path()


async def _read_all(request: web.Request) -> bytes:
    """Return a request body of any size."""
    return b"".join([chunk async for chunk in request.content.iter_any()])


async def _append_log(request: web.Request, state: ClusterState, namespace: str, pod: str, container: str) -> web.Response:
    """Append the request body to a container's log. With `?restart=true` the present log is first kept as the previous one."""
    entry = state.store.get(state.resources.core("pods"), namespace, pod)
    log = state.logs.container_log(namespace, pod, container_of(entry.decode(), container))
    text = await bodies.read(request)
    if request.query.get("restart") in TRUE_VALUES:
        log.restart()
    log.append(text)
    return json_response(errors.SUCCESS)


def _disturb(state: ClusterState, data: bytes) -> web.Response:
    try:
        disturbance = msgspec.json.decode(data, type=ApiDisturbance)
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"not a disturbance: {error}") from error
    disturbance.check()
    state.disturb(disturbance)
    return json_response(state.disturbance)


class _Table(msgspec.Struct):
    group: str
    plural: str
    entries: list[StoredObject]


class _Log(msgspec.Struct):
    namespace: str
    pod: str
    container: str
    parts: list[LogPart]
    previous: list[LogPart]


class _StateSnapshot(msgspec.Struct):
    format: int
    revision: int
    tables: list[_Table]
    logs: list[_Log]


def take_snapshot(state: ClusterState) -> bytes:
    """Return objects, revision and container logs of the cluster as MessagePack, for `restore_snapshot`."""
    tables = [_Table(group, plural, table.slice()) for (group, plural), table in state.store.tables() if len(table)]
    logs = [
        _Log(namespace, pod, container, log.parts, log.previous)
        for (namespace, pod), containers in state.logs.logs.items()
        for container, log in containers.items()
    ]
    return msgspec.msgpack.encode(_StateSnapshot(SNAPSHOT_FORMAT, state.store.revision, tables, logs))


def restore_snapshot(state: ClusterState, data: bytes) -> None:
    """Replace the cluster's content with that of a snapshot. Raises StatusError (400) if `data` is no snapshot of this format.

    Revisions go on from the larger counter. Watches and continue tokens end with 410, so clients list again.
    """
    try:
        snapshot = msgspec.msgpack.decode(data, type=_StateSnapshot)
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"not a snapshot: {error}") from error
    if snapshot.format != SNAPSHOT_FORMAT:
        raise errors.bad_request(f"snapshot format {snapshot.format} is not {SNAPSHOT_FORMAT}")
    state.store.replace({(table.group, table.plural): table.entries for table in snapshot.tables}, snapshot.revision)
    state.lists.expire()
    state.definitions.reload()
    state.logs.logs.clear()
    for row in snapshot.logs:
        state.logs.logs.setdefault((row.namespace, row.pod), {})[row.container] = ContainerLog(row.parts, row.previous)
