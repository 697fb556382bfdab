"""The Ansible client in a rehearsal: a stand-in for the simulator's HTTP end, real requests, the same results."""

import http.server
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from steps.clients.ansible import playing
from steps.contract.host_play import FailureKind, HostStatus, PlayHost, PlayRequest, PlayResult, PlayStatus
from steps.errors import BadTask, StepError, Unreachable

EVENTS = (
    {"event": "playbook_on_start", "created": "2026-11-21T10:00:00+00:00", "event_data": {}},
    {"event": "runner_on_ok", "event_data": {"host": "n1", "task": "t", "res": {"changed": True, "observation": {"a": 1}}}},
    {"event": "runner_on_unreachable", "event_data": {"host": "n2", "task": "t", "res": {"msg": "Permission denied (publickey)."}}},
    {"event": "playbook_on_stats", "event_data": {"ok": {"n1": 1}, "dark": {"n2": 1}, "processed": {"n1": 1, "n2": 1}}},
)
REQUEST = PlayRequest(playbook="os_prep", hosts=tuple(PlayHost(name=name, address="192.0.2.1") for name in ("n1", "n2")))


class StandIn(http.server.ThreadingHTTPServer):
    """Answers one play with the given lines; then closes, or holds the line until released."""

    def __init__(self, lines: list[bytes], status: int, hold: bool, chunked: bool) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lines, self.status, self.hold, self.chunked = lines, status, hold, chunked
        self.released = threading.Event()
        self.asked: dict[str, Any] = {}


class Handler(http.server.BaseHTTPRequestHandler):
    """One POST."""

    protocol_version = "HTTP/1.1"
    server: StandIn

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked = {"path": self.path, "token": self.headers["Authorization"], "request": json.loads(body)}
        self.send_response(self.server.status)
        if self.server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for line in self.server.lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line) if self.server.chunked else line)
        if self.server.hold:
            self.server.released.wait(20)
        if self.server.chunked:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def simulator(*lines: object, status: int = 200, hold: bool = False, chunked: bool = False) -> Iterator[StandIn]:
    data = [line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines]
    with StandIn(data, status, hold, chunked) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()


def play(server: StandIn, request: PlayRequest = REQUEST, **words: Any) -> PlayResult:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    return playing.play(request, environ={"BRINGUP_SIMULATOR": url, "BRINGUP_SIMULATOR_TOKEN": "t0"}, **words)


def test_simulated_events_become_a_result() -> None:
    with simulator(*EVENTS) as server:
        result = play(server)

    assert (server.asked["path"], server.asked["token"]) == ("/hosts/play", "Bearer t0")
    assert [host["name"] for host in server.asked["request"]["hosts"]] == ["n1", "n2"]
    assert (result.transport, result.status) == ("simulated", PlayStatus.FAILED)
    assert [(host.status, host.kind, host.facts) for host in result.hosts] == [
        (HostStatus.OK, None, {"a": 1}),
        (HostStatus.UNREACHABLE, FailureKind.SSH_AUTH, {}),
    ]


@pytest.mark.parametrize("chunked", [False, True])
def test_events_are_handed_on_before_the_play_is_over(chunked: bool) -> None:
    seen = []
    with simulator(*EVENTS, hold=True, chunked=chunked) as server:

        def look(event: Any) -> None:
            seen.append(event.event)
            if event.event == "playbook_on_stats":
                server.released.set()

        play(server, on_event=look)

    assert seen[-1] == "playbook_on_stats"


def test_a_simulator_that_closes_early_leaves_nobody_ok() -> None:
    with simulator(*EVENTS[:2]) as server:
        result = play(server)

    assert [host.status for host in result.hosts] == [HostStatus.CANCELLED, HostStatus.CANCELLED]
    assert result.status is PlayStatus.FAILED
    assert "without its statistics" in result.message


def test_silence_is_a_timeout() -> None:
    request = PlayRequest(playbook="os_prep", hosts=REQUEST.hosts, idle_timeout_seconds=1)
    with simulator(*EVENTS[:2], hold=True) as server:
        result = play(server, request)

    assert result.status is PlayStatus.TIMEOUT
    assert result.hosts[0].kind is FailureKind.TIMEOUT


@pytest.mark.parametrize(("status", "error"), [(404, BadTask), (401, BadTask), (503, Unreachable), (429, Unreachable)])
def test_refusals_are_typed(status: int, error: type[StepError]) -> None:
    with simulator(status=status) as server, pytest.raises(error, match=str(status)):
        play(server)


def test_what_is_no_json_is_refused() -> None:
    with simulator(b"<html>\n") as server, pytest.raises(StepError, match="not a line of JSON"):
        play(server)


def test_nobody_there_is_temporary() -> None:
    with simulator() as server:
        pass
    with pytest.raises(Unreachable, match="simulated hosts"):
        play(server)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_silent_play(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with simulator(*EVENTS[:2], hold=True) as server:
        result = play(server, on_event=lambda event: os.kill(os.getpid(), number) if event.host else None)

    assert result.status is PlayStatus.CANCELLED
    assert [host.status for host in result.hosts] == [HostStatus.CANCELLED, HostStatus.CANCELLED]
    assert signal.getsignal(number) is before
