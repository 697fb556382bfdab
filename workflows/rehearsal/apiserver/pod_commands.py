"""The exec sub-resource of pods over WebSockets (`v5.channel.k8s.io`, `v4.channel.k8s.io`), without input and terminals.

A real API server passes the connection on to the kubelet of the pod's node. This one asks the program that plays all kubelets (its
address comes by `PUT /emulation/kubelet`), by one HTTP request for a whole command.
"""

from typing import Any

import aiohttp
import msgspec
from aiohttp import web
from msgspec import Struct

from workflows.rehearsal.apiserver import bodies, command_status, errors
from workflows.rehearsal.apiserver.cluster_state import ClusterState, KubeletEndpoint
from workflows.rehearsal.apiserver.stored_object import StoredObject
from workflows.rehearsal.apiserver.subresources import container_of

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDOUT, STDERR, ERROR = b"\x01", b"\x02", b"\x03"
CHUNK = 32 << 10
COMMAND_SECONDS = 120.0
"""Longest wait in real seconds for the answer of the program that plays kubelets."""


class PlayedCommand(Struct, frozen=True, kw_only=True):
    """The output of a played command, and its exit code. `refused`: why the kubelet could not run it."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0
    refused: str = ""


async def register(request: web.Request, state: ClusterState) -> None:
    """Remember the program that plays kubelets, by `{"url", "token"}` in the body. Raises StatusError (400)."""
    try:
        state.kubelet = msgspec.json.decode(await bodies.read(request), type=KubeletEndpoint)
    except msgspec.MsgspecError as error:
        raise errors.bad_request(f"kubelet: {error}") from error


async def serve(request: web.Request, state: ClusterState, entry: StoredObject) -> web.StreamResponse:
    """Run a command in a container and stream its output. Raises StatusError: 400, or 500 if no kubelet runs it."""
    pod = entry.decode()
    container = container_of(pod, request.query.get("container", ""))
    command = request.query.getall("command", [])
    if not command:
        raise errors.bad_request("you must specify at least 1 command for the container")
    if request.query.get("stdin") in ("1", "true") or request.query.get("tty") in ("1", "true"):
        raise errors.bad_request("the emulated server runs commands without input and terminal")
    if pod["status"].get("phase") in ("Succeeded", "Failed"):
        raise errors.bad_request(f"cannot exec into a container in a completed pod; current phase is {pod['status']['phase']}")
    body = {"namespace": entry.namespace, "pod": entry.name, "container": container, "command": command}
    played = await _play(state, body)
    if played.refused:
        raise errors.StatusError(500, "InternalError", played.refused)
    stream = web.WebSocketResponse(protocols=PROTOCOLS)
    await stream.prepare(request)
    for channel, text in ((STDOUT, played.stdout), (STDERR, played.stderr)):
        data = text.encode()
        for start in range(0, len(data), CHUNK):
            await stream.send_bytes(channel + data[start : start + CHUNK])
    await stream.send_bytes(ERROR + msgspec.json.encode(command_status.of_exit(played.code)))
    await stream.close()
    return stream


async def _play(state: ClusterState, body: dict[str, Any]) -> PlayedCommand:
    if state.kubelet is None:
        raise errors.StatusError(500, "InternalError", "error dialing backend: no program plays kubelets here")
    try:
        headers = {"Authorization": f"Bearer {state.kubelet.token}"}
        limit = aiohttp.ClientTimeout(total=COMMAND_SECONDS)
        # a simulator that serves other machines has a certificate of its own; the token stays on this machine
        async with aiohttp.ClientSession(headers=headers, timeout=limit) as session:
            url = f"{state.kubelet.url}/pods/exec"
            async with session.post(url, data=msgspec.json.encode(body), ssl=False) as answer:
                content = await answer.read()
                if answer.status >= 300:
                    raise errors.StatusError(500, "InternalError", f"error dialing backend: {answer.status}")
                return msgspec.json.decode(content, type=PlayedCommand)
    except (TimeoutError, aiohttp.ClientError, msgspec.MsgspecError) as error:
        raise errors.StatusError(500, "InternalError", f"error dialing backend: {error}") from error
