"""The pod log sub-resource: which container, which part, and following it while the container runs."""

import time
from collections.abc import Mapping

from aiohttp import web

from workflows.rehearsal.apiserver import errors, podlogs
from workflows.rehearsal.apiserver.entry import Entry, Object
from workflows.rehearsal.apiserver.podlogs import Log, PodLogs, Window
from workflows.rehearsal.apiserver.state import State
from workflows.rehearsal.apiserver.watching import TRUE

_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


def container_of(pod: Object, asked: str) -> str:
    """The container that a log request means.

    Raises:
        ApiError: 400, it does not exist, or the request must choose one.
    """
    name, spec = pod["metadata"]["name"], pod["spec"]
    containers = [row["name"] for row in spec["containers"]]
    known = containers + [row["name"] for part in ("initContainers", "ephemeralContainers") for row in spec.get(part, ())]
    asked = asked or pod["metadata"].get("annotations", {}).get(_DEFAULT_CONTAINER, "")
    if asked:
        if asked not in known:
            raise errors.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(containers) > 1:
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{' '.join(containers)}]")
    return str(containers[0])


def _state(pod: Object, container: str) -> Object:
    rows = [row for part in ("containerStatuses", "initContainerStatuses") for row in pod["status"].get(part, ())]
    found: Object = next((row for row in rows if row["name"] == container), {})
    state: Object = found.get("state", {})
    return state


def _check_started(pod: Object, container: str, log: Log) -> None:
    """A kubelet has no log of a container that never ran. A pod without a node has none either: 204."""
    waiting = _state(pod, container).get("waiting")
    if waiting is not None and not log.lines and not log.previous:
        why = waiting.get("reason", "ContainerCreating")
        message = f'container "{container}" in pod "{pod["metadata"]["name"]}" is waiting to start: {why}'
        raise errors.bad_request(message)


def _over(pod: Entry | None, container: str) -> bool:
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


def window(query: Mapping[str, str]) -> Window:
    """Which part of the log the request wants.

    Raises:
        ApiError: 400.
    """
    since = _integer(query, "sinceSeconds")
    return Window(
        tail=_integer(query, "tailLines"),
        since=None if since is None else time.time() - since,
        limit_bytes=_integer(query, "limitBytes"),
        timestamps=query.get("timestamps") in TRUE,
    )


async def serve(request: web.Request, state: State, entry: Entry) -> web.StreamResponse:
    """Answers a log request.

    Raises:
        ApiError: 400.
    """
    query = request.query
    pod = entry.decode()
    container = container_of(pod, query.get("container", ""))
    log = _log(state.logs, entry, container)
    wanted = window(query)
    if query.get("previous") in TRUE:
        if not log.previous:
            raise errors.bad_request(f'previous terminated container "{container}" in pod "{entry.name}" not found')
        return web.Response(body=podlogs.cut(log.previous, wanted), content_type="text/plain")
    _check_started(pod, container, log)
    if not pod["spec"].get("nodeName") and not log.lines:
        return web.Response(status=204)
    if query.get("follow") not in TRUE:
        return web.Response(body=podlogs.cut(log.lines, wanted), content_type="text/plain")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    await _follow(response, state, entry, container, wanted)
    await response.write_eof()
    return response


def _log(logs: PodLogs, entry: Entry, container: str) -> Log:
    return logs.of(entry.namespace, entry.name, container)


async def _follow(response: web.StreamResponse, state: State, entry: Entry, container: str, wanted: Window) -> None:
    log = _log(state.logs, entry, container)
    pods = state.resources.core("pods")
    sent = log.first + len(log.lines)
    await response.write(podlogs.cut(log.lines, wanted))
    while True:
        changed = log.changed
        over = _over(state.store.table(pods.key).get(entry.namespace, entry.name), container)
        for line in list(log.lines)[max(0, sent - log.first) :]:
            await response.write(podlogs.stamped(line) if wanted.timestamps else line.text)
        sent = log.first + len(log.lines)
        if over:
            return
        await changed.wait()
