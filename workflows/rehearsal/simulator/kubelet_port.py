"""The kubelet port of every simulated node: where a real API server fetches the logs of the pods that it shows.

A real API server keeps no logs: it dials the InternalIP of the pod's node at the port that the node's status names. So there all
simulated nodes carry the address and the port of this server, in place of those that their machines would have. It serves logs of
simulated pods and nothing else, to whoever asks: it cannot tell an API server from others, and there is no secret in them.
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

from workflows.rehearsal.simulator.api import Api, ApiError
from workflows.rehearsal.simulator.kinds import NODES, Obj, Ref

Log = Callable[[str], bytes | None]
"""The log of a container, given as NAMESPACE/POD/CONTAINER; None where it has none."""
WAITING = b"container is waiting to start: ContainerCreating"
"""A kubelet's answer for a container that has no log."""


class Kept(Struct, frozen=True):
    """The log of one container, and the UID of its pod: a pod of the same name later has a log of its own."""

    uid: str
    text: str


class KubeletPort:
    """Logs as NAMESPACE/POD/CONTAINER, served over HTTPS at `address` and a free port from construction to `close`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.logs: dict[str, Kept] = {}
        self._lock = threading.Lock()
        self._server = log_server(address, self._log)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    @property
    def status(self) -> Obj:
        """What the status of each simulated node says of it; the host name is the node's own affair."""
        number = self._server.server_port
        return {
            "addresses": [{"type": "InternalIP", "address": self.address}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": number}},
        }

    def write(self, pod: Obj, container: str, text: str) -> None:
        """Add to a container's log."""
        meta = pod["metadata"]
        key, uid = f"{meta['namespace']}/{meta['name']}/{container}", str(meta.get("uid", ""))
        with self._lock:
            before = self.logs.get(key)
            self.logs[key] = Kept(uid, before.text + text if before is not None and before.uid == uid else text)

    def _log(self, place: str) -> bytes | None:
        kept = self.logs.get(place)
        return None if kept is None else kept.text.encode()

    def why_unreachable(self, api: Api) -> str:
        """Empty where the API server gets through to here, else what it says. Asks by a node that is gone afterwards."""
        name, sign = f"bringup-look-{secrets.token_hex(4)}", secrets.token_hex(8)
        place = {"namespace": "look", "name": name, "uid": ""}
        self.write({"metadata": place}, "look", sign)
        try:
            api.create(NODES, {"metadata": {"name": name}, "spec": {"unschedulable": True}, "status": self.status})
            said = api.send("GET", f"{NODES.path('', name)}/proxy/containerLogs/look/{name}/look")
            return "" if said == sign.encode() else f"somebody else answers at {self.address}"
        except ApiError as error:
            return str(error)
        finally:
            self.logs.pop(f"look/{name}/look")
            api.delete(NODES, Ref("", name))


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    log: Log


def log_server(address: str, log: Log) -> ThreadingHTTPServer:
    """Serves logs over HTTPS at an address and a free port, in threads of its own, until it is shut down and closed."""
    from workflows.rehearsal.apiserver.certificate import self_signed  # a tenth of a second that other rehearsals save

    server = _listening(address)
    server.log = log
    context = self_signed(datetime.datetime.now(datetime.UTC)).context()
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def _listening(address: str) -> _Server:
    """At the address itself, or at all of this machine's where the address is one that leads here through somebody else."""
    try:
        return _Server((address, 0), _Handler)
    except OSError:
        return _Server(("", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30

    def do_GET(self) -> None:
        """`/containerLogs/NAMESPACE/POD/CONTAINER?tailLines=N`, as an API server asks a kubelet; a log is served as it is now."""
        asked = urlsplit(self.path)
        _, top, *place = (unquote(part) for part in asked.path.split("/"))
        kept = self.server.log("/".join(place)) if top == "containerLogs" else None
        if kept is None:
            self._answer(400 if top == "containerLogs" else 404, WAITING)
            return
        query = parse_qs(asked.query)
        lines = kept.splitlines(keepends=True)
        tail, most = query.get("tailLines", [""])[0], query.get("limitBytes", [""])[0]
        body = b"".join(lines[-int(tail) :] if tail.isdigit() and int(tail) else [] if tail == "0" else lines)
        self._answer(200, body[: int(most)] if most.isdigit() else body)

    def log_message(self, format: str, *args: Any) -> None:
        """Every look of a gate asks: nothing worth a line."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def own_address(server: str) -> str:
    """This machine's address on the way to an API server; for one at loopback, on the way out of this machine.

    Raises OSError for a host without an address.
    """
    host, number = urlsplit(server).hostname or "", urlsplit(server).port or 443
    family, _, _, _, place = socket.getaddrinfo(host, number, type=socket.SOCK_DGRAM)[0]
    found = _towards(family, place)
    if not _is_loopback(found):
        return found
    with contextlib.suppress(OSError):  # a machine with no way out has loopback alone
        return _towards(socket.AF_INET, (OUTSIDE, 9))
    return found


OUTSIDE = "192.0.2.1"
"""An address of nobody's (RFC 5737): only the way to it is looked up, nothing is sent."""


def _towards(family: int, place: Any) -> str:
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(place)
        return str(probe.getsockname()[0])


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"
