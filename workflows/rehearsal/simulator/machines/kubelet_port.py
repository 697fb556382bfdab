"""A server that stands for the kubelets of all simulated nodes: a real API server fetches logs and runs commands of pods there.

A real API server keeps no logs: it dials the InternalIP of the pod's node at the port in the node's status. So all simulated nodes
carry the address and port of this server. It serves logs of simulated pods and plays commands in them (exec) for every caller: it
cannot authenticate an API server, the logs hold no secrets, and a played command touches nothing but the simulation.
"""

from __future__ import annotations

import contextlib
import datetime
import secrets
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from msgspec import Struct

from workflows.rehearsal.simulator.api.api_client import Api, SimulatorApiError
from workflows.rehearsal.simulator.api.api_kinds import NODES, Obj, Ref
from workflows.rehearsal.simulator.machines import kubelet_exec
from workflows.rehearsal.simulator.machines.played_commands import CommandRequest, PlayedOutput

LogLookup = Callable[[str], bytes | None]
"""A function that returns the log of the container `NAMESPACE/POD/CONTAINER`, or None if it has none."""
CommandRun = Callable[[CommandRequest], PlayedOutput]
"""A function that plays a command in a container."""
WAITING = b"container is waiting to start: ContainerCreating"
"""The answer of a kubelet if a container has no log yet."""


class SimulatedPodLog(Struct, frozen=True):
    """The log of one container. `uid` is its pod's, because a later pod of the same name begins a new log."""

    uid: str
    text: str


class KubeletPort:
    """The logs of simulated pods, and the HTTPS server that serves them at `address` and a free port until `close`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.logs: dict[str, SimulatedPodLog] = {}
        self._lock = threading.Lock()
        self._server = log_server(address, self._log)

    def play_by(self, run: CommandRun) -> None:
        """Let `run` play the commands that an API server asks for. Before that, every command is refused."""
        self._server.run = run

    def close(self) -> None:
        """Stop the server and free its port."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def status(self) -> Obj:
        """The part of a Node's status that leads an API server to this port: addresses and kubelet endpoint."""
        endpoint = {"kubeletEndpoint": {"Port": self._server.server_port}}
        return {"addresses": [{"type": "InternalIP", "address": self.address}], "daemonEndpoints": endpoint}

    def write(self, pod: Obj, container: str, text: str) -> None:
        """Append text to the log of a pod's container."""
        meta = pod["metadata"]
        key, uid = f"{meta['namespace']}/{meta['name']}/{container}", str(meta.get("uid", ""))
        with self._lock:
            before = self.logs.get(key)
            self.logs[key] = SimulatedPodLog(uid, before.text + text if before is not None and before.uid == uid else text)

    def _log(self, place: str) -> bytes | None:
        kept = self.logs.get(place)
        return None if kept is None else kept.text.encode()

    def why_unreachable(self, api: Api) -> str:
        """Return why the API server cannot read logs here; empty if it can. To find out, a Node is created and deleted again."""
        name, sign = f"bringup-look-{secrets.token_hex(4)}", secrets.token_hex(8)
        place = {"namespace": "look", "name": name, "uid": ""}
        self.write({"metadata": place}, "look", sign)
        try:
            api.create(NODES, {"metadata": {"name": name}, "spec": {"unschedulable": True}, "status": self.status})
            answer = api.send("GET", f"{NODES.path('', name)}/proxy/containerLogs/look/{name}/look")
            return "" if answer == sign.encode() else f"another server answers at {self.address}"
        except SimulatorApiError as error:
            return str(error)
        finally:
            self.logs.pop(f"look/{name}/look")
            api.delete(NODES, Ref("", name))


class _KubeletServer(ThreadingHTTPServer):
    daemon_threads = True
    log: LogLookup
    run: CommandRun | None = None


def log_server(address: str, log: LogLookup) -> _KubeletServer:
    """Start an HTTPS server for logs at `address` and a free port, in threads, and return it; it runs until it is shut down."""
    from workflows.rehearsal.apiserver.emulated_server import self_signed  # slow to import, and most rehearsals need no port

    try:
        server = _KubeletServer((address, 0), _ContainerLogHandler)
    except OSError:  # the address belongs to another machine, which forwards to this one
        server = _KubeletServer(("", 0), _ContainerLogHandler)
    server.log = log
    context = self_signed(datetime.datetime.now(datetime.UTC)).context()
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class QuietHandler(BaseHTTPRequestHandler):
    """A handler that prints no line for each request, because there are too many; the answers hold the errors."""

    content_type = "text/plain"
    wbufsize = -1
    """Buffered until a request is answered, so that headers and body leave, and wake the client, together."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, where the base class prints a line for each request."""

    def answer(self, status: int, body: bytes) -> None:
        """Send a whole answer: HTTP status, headers and body."""
        self.send_response(status)
        self.send_header("Content-Type", self.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _ContainerLogHandler(QuietHandler):
    server: _KubeletServer
    timeout = 30

    def do_GET(self) -> None:
        """Answer what an API server asks a kubelet.

        - `/containerLogs/NAMESPACE/POD/CONTAINER?tailLines=N&limitBytes=N`
        - `/exec/NAMESPACE/POD/CONTAINER?command=WORD&command=WORD`, over a WebSocket
        """
        url = urlsplit(self.path)
        _, top, *place = (unquote(part) for part in url.path.split("/"))
        if top == "exec" and len(place) == 3:
            self._execute(place, parse_qs(url.query).get("command", []))
            return
        log = self.server.log("/".join(place)) if top == "containerLogs" else None
        if log is None:
            self.answer(400 if top == "containerLogs" else 404, WAITING)
            return
        query = parse_qs(url.query)
        lines = log.splitlines(keepends=True)
        tail, most = query.get("tailLines", [""])[0], query.get("limitBytes", [""])[0]
        body = b"".join(lines[-int(tail) :] if tail.isdigit() and int(tail) else [] if tail == "0" else lines)
        self.answer(200, body[: int(most)] if most.isdigit() else body)

    def _execute(self, place: list[str], command: list[str]) -> None:
        namespace, pod, container = place
        if self.server.run is None or not command or not kubelet_exec.offers(self):
            self.answer(400, b"this server plays commands over WebSockets of version 4 alone")
            return
        played = self.server.run(CommandRequest(namespace=namespace, pod=pod, container=container, command=tuple(command)))
        if played.refused:
            self.answer(500, played.refused.encode())
            return
        kubelet_exec.stream(self, played)


def own_address(server: str) -> str:
    """Return the address of this machine on the route to the API server with the URL `server`.

    For a server on the loopback interface, return the address on the default route. Raises OSError for a host without address.
    """
    host, number = urlsplit(server).hostname or "", urlsplit(server).port or 443
    family, _, _, _, place = socket.getaddrinfo(host, number, type=socket.SOCK_DGRAM)[0]
    address = _towards(family, place)
    if not address.startswith("127.") and address != "::1":
        return address
    with contextlib.suppress(OSError):  # a machine with no way out has loopback alone
        return _towards(socket.AF_INET, (OUTSIDE, 9))
    return address


OUTSIDE = "192.0.2.1"
"""An address that nobody has (RFC 5737), to find the default route. Nothing is sent to it."""


def _towards(family: int, place: Any) -> str:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(place)
        return str(probe.getsockname()[0])
