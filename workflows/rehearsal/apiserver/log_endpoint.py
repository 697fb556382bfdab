"""The log sub-resource of pods: chooses the container and the part of its log, and follows the log while the container runs."""

import time
from collections.abc import Mapping

from aiohttp import web

from workflows.rehearsal.apiserver import container_logs, errors
from workflows.rehearsal.apiserver.cluster_state import ClusterState
from workflows.rehearsal.apiserver.container_logs import ContainerLog, LogWindow, PodLogs
from workflows.rehearsal.apiserver.stored_object import Object, StoredObject
from workflows.rehearsal.apiserver.watch_stream import TRUE_VALUES

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def container_of(pod: Object, named: str) -> str:
    """Return the container that a log request refers to.

    Raises StatusError (400) if the container does not exist or the request must name one.
    """
    name, spec = pod["metadata"]["name"], pod["spec"]
    containers = [row["name"] for row in spec["containers"]]
    known = containers + [row["name"] for part in ("initContainers", "ephemeralContainers") for row in spec.get(part, ())]
    named = named or pod["metadata"].get("annotations", {}).get(_DEFAULT_CONTAINER, "")
    if named:
        if named not in known:
            raise errors.bad_request(f"container {named} is not valid for pod {name}")
        return named
    if len(containers) > 1:
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]")
    return str(containers[0])


def _state(pod: Object, container: str) -> Object:
    rows = [row for part in ("containerStatuses", "initContainerStatuses") for row in pod["status"].get(part, ())]
    status: Object = next((row for row in rows if row["name"] == container), {})
    state: Object = status.get("state", {})
    return state


def _check_started(pod: Object, container: str, log: ContainerLog) -> None:
    """Raise StatusError (400) if the container still waits to start, because a kubelet has no log of it."""
    waiting = _state(pod, container).get("waiting")
    if waiting is not None and not log.lines and not log.previous:
        why = waiting.get("reason", "ContainerCreating")
        message = f'container "{container}" in pod "{pod["metadata"]["name"]}" is waiting to start: {why}'
        raise errors.bad_request(message)


def _over(pod: StoredObject | None, container: str) -> bool:
    if pod is None:
        return True
    obj = pod.decode()
    return obj["status"].get("phase") in ("Succeeded", "Failed") or "terminated" in _state(obj, container)


def _integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not text.isdigit():
        raise errors.bad_request(f"invalid {name}: {text!r}")
    return int(text)


def requested_window(query: Mapping[str, str]) -> LogWindow:
    """Return the part of the log that the request's query asks for. Raises StatusError (400) for a malformed number."""
    since = _integer(query, "sinceSeconds")
    return LogWindow(
        tail=_integer(query, "tailLines"),
        since=None if since is None else time.time() - since,
        limit_bytes=_integer(query, "limitBytes"),
        timestamps=query.get("timestamps") in TRUE_VALUES,
    )


async def serve_log(request: web.Request, state: ClusterState, entry: StoredObject) -> web.StreamResponse:
    """Answer a log request. Raises StatusError (400)."""
    query = request.query
    pod = entry.decode()
    container = container_of(pod, query.get("container", ""))
    log = _log(state.logs, entry, container)
    window = requested_window(query)
    if query.get("previous") in TRUE_VALUES:
        if not log.previous:
            raise errors.bad_request(f'previous terminated container "{container}" in pod "{entry.name}" not found')
        return web.Response(body=container_logs.window_text(log.previous, window), content_type="text/plain")
    _check_started(pod, container, log)
    if not pod["spec"].get("nodeName") and not log.lines:
        return web.Response(status=204)
    if query.get("follow") not in TRUE_VALUES:
        return web.Response(body=container_logs.window_text(log.lines, window), content_type="text/plain")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    await _follow(response, state, entry, container, window)
    await response.write_eof()
    return response


def _log(logs: PodLogs, entry: StoredObject, container: str) -> ContainerLog:
    return logs.of(entry.namespace, entry.name, container)


async def _follow(
    response: web.StreamResponse, state: ClusterState, entry: StoredObject, container: str, window: LogWindow
) -> None:
    log = _log(state.logs, entry, container)
    pods = state.resources.core("pods")
    sent = log.first + len(log.lines)
    await response.write(container_logs.window_text(log.lines, window))
    while True:
        changed = log.changed
        over = _over(state.store.table(pods.key).get(entry.namespace, entry.name), container)
        for line in list(log.lines)[max(0, sent - log.first) :]:
            await response.write(container_logs.timestamped(line) if window.timestamps else line.text)
        sent = log.first + len(log.lines)
        if over:
            return
        await changed.wait()
