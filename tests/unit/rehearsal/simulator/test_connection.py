"""Connections that are kept alive: none stays open once they are closed, not even one that was in use then."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Event, Thread

import pytest

from workflows.rehearsal.simulator.api.api_client import Connections

SECONDS = 20.0


class Held(ThreadingHTTPServer):
    """A server that answers when it may, and knows when a connection has ended."""

    def __init__(self) -> None:
        self.asked = Event()
        self.may_answer = Event()
        self.ended: SimpleQueue[int] = SimpleQueue()
        super().__init__(("127.0.0.1", 0), Answers)


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Held

    def do_GET(self) -> None:
        self.server.asked.set()
        assert self.server.may_answer.wait(SECONDS)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def finish(self) -> None:
        super().finish()
        self.server.ended.put(self.client_address[1])

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def held() -> Iterator[Held]:
    with Held() as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_one_in_use_is_closed_with_its_answer(held: Held) -> None:
    connections = Connections(f"http://127.0.0.1:{held.server_port}", None)
    answers: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
    asking = Thread(target=lambda: answers.put(connections.request("GET", "/", None, {})))
    asking.start()
    assert held.asked.wait(SECONDS)
    connections.close()
    held.may_answer.set()
    assert answers.get(timeout=SECONDS) == (200, b"")
    held.ended.get(timeout=SECONDS)
    asking.join()


def test_an_idle_one_is_taken_again(held: Held) -> None:
    held.may_answer.set()
    connections = Connections(f"http://127.0.0.1:{held.server_port}", None)
    for _ in range(3):
        connections.request("GET", "/", None, {})
    connections.close()
    held.ended.get(timeout=SECONDS)
    assert held.ended.empty()
