"""The simulator's control API at 127.0.0.1 behind a bearer token: virtual clock, playbook runs, faults and snapshots."""

from __future__ import annotations

import hmac
import logging
import os
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import urllib3
from msgspec import Struct

from steps.contract.host_play import PlayRequest
from workflows.rehearsal.faults import fault_registry
from workflows.rehearsal.simulator import playbook_runs
from workflows.rehearsal.simulator.api.api_client import SimulatorApiError
from workflows.rehearsal.simulator.controllers import container_commands
from workflows.rehearsal.simulator.controllers.node_objects import Heartbeats
from workflows.rehearsal.simulator.machines.kubelet_port import QuietHandler
from workflows.rehearsal.simulator.machines.played_commands import CommandRequest, PlayedOutput
from workflows.rehearsal.simulator.simulation import Simulator, SimulatorState
from workflows.rehearsal.simulator.virtual_clock import UNREST, ClockPace

MAX_BODY = 16 << 20
TICK = 0.25
"""Real seconds between two steps of the real-time loop, which also looks if the parent process still runs."""

LOOK = 0.02
"""Real seconds between two looks at the clock while a caller sleeps."""
STANDSTILL = 10.0
"""Real seconds that a sleep may last longer because virtual time stands still while the API server does not answer."""


_PASSING = (SimulatorApiError, urllib3.exceptions.HTTPError, RuntimeError)
"""Errors of an unreachable API server or of a concurrent write. They pass, so the role tries again."""


class SleepRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /clock/sleep`: how many virtual seconds to let pass.

    `deadline` is the time (seconds since the epoch) up to which the clock may jump while the cluster is at rest; None: no jump.
    """

    seconds: float
    deadline: float | None = None


class FaultEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One fault in the body of `PUT /faults`. `node` holds its victims, separated by commas; empty means its default victims."""

    name: str
    node: str = ""


class ControlApi:
    """The operations of the control API on one simulator. A lock lets in one caller at a time."""

    def __init__(self, simulator: Simulator, speed: float = 0.0, beats: Heartbeats | None = None) -> None:
        """Wrap a simulator. `speed` is in virtual seconds per real second; 0 means that only callers move the clock.

        Give `beats` if real controllers take part: virtual time then slows down while they work.
        """
        self._simulator = simulator
        self._speed = speed
        self._pace = ClockPace(speed, patient=beats is not None)
        self._beats = beats
        self._lock = threading.Lock()

    def routes(self) -> dict[tuple[str, str], Callable[[bytes], bytes]]:
        """Return a handler for each pair of HTTP method and path. It takes the request body and returns that of the answer."""
        return {
            ("GET", "/healthz"): lambda _: b'"ok"',
            ("GET", "/clock"): self._read_clock,
            ("POST", "/clock/sleep"): self._sleep,
            ("POST", "/hosts/play"): self._play,
            ("POST", "/pods/exec"): self._execute,
            ("GET", "/faults"): self._faults,
            ("PUT", "/faults"): self._set_faults,
            ("GET", "/state"): self._state,
            ("PUT", "/state"): self._restore,
        }

    def tick(self, wall_seconds: float) -> None:
        """Let virtual time pass for `wall_seconds` of real time. Errors are logged, and the next call tries again."""
        with self._lock:
            try:
                self._simulator.advance(self._pace.seconds(wall_seconds, self._simulator.others))
                if self._beats is not None:
                    self._beats.renew_leases(self._simulator.world, wall_seconds)
            except _PASSING:
                logging.exception("tick")
                self._simulator.look_again()

    def _now(self) -> bytes:
        return msgspec.json.encode({"now": self._simulator.world.now})

    def _read_clock(self, _: bytes) -> bytes:
        with self._lock:
            return self._now()

    def _sleep(self, body: bytes) -> bytes:
        request = msgspec.json.decode(body, type=SleepRequest)
        if self._speed:  # in real-time mode `tick` moves the clock
            self._await(request.seconds)
            return self._read_clock(b"")
        with self._lock:
            self._simulator.advance(request.seconds, request.deadline)
            return self._now()

    def _await(self, seconds: float) -> None:
        """Wait until `seconds` of virtual time have passed, or until the clock has stood still for too long."""
        world, slowest = self._simulator.world, self._speed * UNREST
        target, end = world.now + seconds, time.monotonic() + seconds / slowest + STANDSTILL
        while world.now < target and time.monotonic() < end:
            time.sleep(LOOK)

    def _play(self, body: bytes) -> bytes:
        request = msgspec.json.decode(body, type=PlayRequest)
        with self._lock:
            events = playbook_runs.run_play(self._simulator.world, request)
            self._simulator.settle()
        return b"".join(msgspec.json.encode(event) + b"\n" for event in events)

    def _execute(self, body: bytes) -> bytes:
        return msgspec.json.encode(self.execute(msgspec.json.decode(body, type=CommandRequest)))

    def execute(self, request: CommandRequest) -> PlayedOutput:
        """Play a command in a container of a simulated pod, and let the time pass that it takes."""
        with self._lock:
            self._simulator.settle()
            played = container_commands.play(self._simulator.world, request)
            if not self._speed:  # in real-time mode `tick` moves the clock
                self._simulator.advance(played.seconds * self._simulator.world.delay_scale)
        return played

    def _faults(self, _: bytes) -> bytes:
        with self._lock:
            active = self._simulator.world.faults
        return msgspec.json.encode([{"name": fault.fault.name, "node": ",".join(fault.nodes)} for fault in active])

    def _set_faults(self, body: bytes) -> bytes:
        wanted = msgspec.json.decode(body, type=list[FaultEntry])
        with self._lock:
            self._simulator.world.set_faults((entry.name, tuple(filter(None, entry.node.split(",")))) for entry in wanted)
            self._simulator.settle()
        return self._faults(b"")

    def _state(self, _: bytes) -> bytes:
        with self._lock:
            self._simulator.settle()
            return msgspec.json.encode(self._simulator.state())

    def _restore(self, body: bytes) -> bytes:
        state = msgspec.json.decode(body, type=SimulatorState)
        with self._lock:
            self._simulator.restore(state)
            return self._now()


class ControlServer(ThreadingHTTPServer):
    """The server of a ControlApi: HTTP on a port of 127.0.0.1, or TLS on all addresses with a certificate."""

    daemon_threads = True

    def __init__(self, control: ControlApi, token: str, port: int = 0, certificate: Path | None = None) -> None:
        """Listen on `port`. `certificate` is a folder with tls.crt and tls.key."""
        super().__init__(("0.0.0.0" if certificate else "127.0.0.1", port), _ControlHandler)  # a Service leads here
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
            # a client that is slow to shake hands must not hold up the others
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self._scheme = "https" if certificate else "http"
        self.token = token
        self.routes = control.routes()

    @property
    def url(self) -> str:
        """The base URL of the control API, without a slash at its end."""
        return f"{self._scheme}://127.0.0.1:{self.server_address[1]}"

    def serve(self, control: ControlApi, *, real_time: bool = False, parent: int = 0) -> None:
        """Serve until `shutdown` is called or the process `parent` ends (0: none). With `real_time`, move the clock meanwhile."""
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        last, ours = time.monotonic(), os.getppid() == parent
        while thread.is_alive() and (not parent or (os.getppid() == parent if ours else _alive(parent))):
            thread.join(TICK)
            if real_time:
                last, before = time.monotonic(), last
                control.tick(last - before)
        self.shutdown()
        self.server_close()


class _ControlHandler(QuietHandler, BaseHTTPRequestHandler):
    content_type = "application/json"
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ControlServer

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.close_connection = True
            self.answer(413, b'"request too large"')
            return
        body = self.rfile.read(length)
        authorization = self.headers.get("Authorization", "")
        if not hmac.compare_digest(authorization.encode(), f"Bearer {self.server.token}".encode()):
            self.answer(401, b'"wrong or missing bearer token"')
            return
        handler = self.server.routes.get((self.command, self.path.split("?")[0]))
        if handler is None:
            self.answer(404, b'"no such path"')
            return
        try:
            self.answer(200, handler(body))
        except (msgspec.MsgspecError, fault_registry.UnknownFault, playbook_runs.UnknownPlayError) as error:
            self.answer(400, msgspec.json.encode(str(error)))
        except _PASSING as error:
            logging.exception("%s %s", self.command, self.path)
            self.answer(500, msgspec.json.encode(f"{type(error).__name__}: {error}"))


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
