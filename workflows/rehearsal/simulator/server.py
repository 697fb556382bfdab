"""The simulator's control API on the loopback interface: the clock, plays, faults and snapshots, behind a bearer token."""

from __future__ import annotations

import hmac
import logging
import os
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import urllib3
from msgspec import Struct

from steps.contract.play import PlayRequest
from workflows.rehearsal.faults import registry
from workflows.rehearsal.simulator import engine, plays
from workflows.rehearsal.simulator.api import ApiError
from workflows.rehearsal.simulator.engine import Simulator
from workflows.rehearsal.simulator.pace import UNREST, Pace
from workflows.rehearsal.simulator.rke2_nodes import Beats

MAX_BODY = 16 << 20
TICK = 0.25
"""Wall seconds between two looks of the real-time loop and of the parent watch."""

LOOK = 0.02
STANDSTILL = 10.0
"""Wall seconds between two looks whether virtual time has come, and for how long it may stand still."""


_PASSING = (ApiError, urllib3.exceptions.HTTPError, RuntimeError)
"""What an API server that is away, or somebody who was quicker, makes of a write."""


class Sleep(Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /clock/sleep`, in virtual seconds."""

    seconds: float
    deadline: float | None = None


class FaultEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One fault of `PUT /faults`; `node` holds its victims, separated by commas; empty means its default ones."""

    name: str
    node: str = ""


class Control:
    """The operations behind the paths; one caller at a time has the world."""

    def __init__(self, simulator: Simulator, speed: float = 0.0, beats: Beats | None = None) -> None:
        """`beats` are given where real controllers act: time then waits for them."""
        self._simulator = simulator
        self._speed = speed
        self._pace = Pace(speed, patient=beats is not None)
        self._beats = beats
        self._lock = threading.Lock()

    def routes(self) -> dict[tuple[str, str], Callable[[bytes], bytes]]:
        """Handlers by method and path: bytes of the request body in, bytes of the answer out."""
        return {
            ("GET", "/healthz"): lambda _: b'"ok"',
            ("GET", "/clock"): self._read_clock,
            ("POST", "/clock/sleep"): self._sleep,
            ("POST", "/hosts/play"): self._play,
            ("GET", "/faults"): self._faults,
            ("PUT", "/faults"): self._set_faults,
            ("GET", "/state"): self._state,
            ("PUT", "/state"): self._restore,
        }

    def tick(self, wall_seconds: float) -> None:
        """Real-time mode: let virtual time follow the wall's. What goes wrong is logged and looked at again, as controllers do."""
        with self._lock:
            try:
                self._simulator.advance(self._pace.seconds(wall_seconds, self._simulator.others))
                if self._beats is not None:
                    self._beats.pass_on(self._simulator.world, wall_seconds)
            except _PASSING:
                logging.exception("tick")
                self._simulator.look_again()

    def _now(self) -> bytes:
        return msgspec.json.encode({"now": self._simulator.world.now})

    def _read_clock(self, _: bytes) -> bytes:
        with self._lock:
            return self._now()

    def _sleep(self, body: bytes) -> bytes:
        asked = msgspec.json.decode(body, type=Sleep)
        if self._speed:  # the ticking loop moves the time
            self._await(asked.seconds)
            return self._read_clock(b"")
        with self._lock:
            self._simulator.advance(asked.seconds, asked.deadline)
            return self._now()

    def _await(self, seconds: float) -> None:
        """Until so much virtual time has passed; where it stands still because the API server is away, not for ever."""
        world, slowest = self._simulator.world, self._speed * UNREST
        target, end = world.now + seconds, time.monotonic() + seconds / slowest + STANDSTILL
        while world.now < target and time.monotonic() < end:
            time.sleep(LOOK)

    def _play(self, body: bytes) -> bytes:
        request = msgspec.json.decode(body, type=PlayRequest)
        with self._lock:
            events = plays.run(self._simulator.world, request)
            self._simulator.settle()
        return b"".join(msgspec.json.encode(event) + b"\n" for event in events)

    def _faults(self, _: bytes) -> bytes:
        with self._lock:
            active = self._simulator.world.faults
        return msgspec.json.encode([{"name": one.fault.name, "node": ",".join(one.nodes)} for one in active])

    def _set_faults(self, body: bytes) -> bytes:
        wanted = msgspec.json.decode(body, type=list[FaultEntry])
        with self._lock:
            self._simulator.world.set_faults((one.name, tuple(filter(None, one.node.split(",")))) for one in wanted)
            self._simulator.settle()
        return self._faults(b"")

    def _state(self, _: bytes) -> bytes:
        with self._lock:
            self._simulator.settle()
            return engine.encode(self._simulator.state())

    def _restore(self, body: bytes) -> bytes:
        state = engine.decode(body)
        with self._lock:
            self._simulator.restore(state)
            return self._now()


class ControlServer(ThreadingHTTPServer):
    """Serves a Control on 127.0.0.1. `parent` is a process whose end ends the server; 0 for none."""

    daemon_threads = True

    def __init__(self, control: Control, token: str, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.token = token
        self.routes = control.routes()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def serve(self, control: Control, *, real_time: bool = False, parent: int = 0) -> None:
        """Serve until the parent ends or `shutdown` is called; in real time, let the world follow the wall's clock."""
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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ControlServer

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are too many to print; errors are in the answers."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        if length > MAX_BODY:
            self.close_connection = True
            self._answer(413, b'"request too large"')
            return
        body = self.rfile.read(length)
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self._answer(401, b'"wrong or missing bearer token"')
            return
        handler = self.server.routes.get((self.command, self.path.split("?")[0]))
        if handler is None:
            self._answer(404, b'"no such path"')
            return
        try:
            self._answer(200, handler(body))
        except (msgspec.MsgspecError, registry.UnknownFault, plays.NoSuchPlay) as error:
            self._answer(400, msgspec.json.encode(str(error)))
        except _PASSING as error:
            logging.exception("%s %s", self.command, self.path)
            self._answer(500, msgspec.json.encode(f"{type(error).__name__}: {error}"))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
