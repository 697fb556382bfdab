"""No answer of an API server uses up a step's memory or time: bytes, compression, pages, expired lists, nesting, drips."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from steps.clients.bounded_answers import ReadLimits
from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Kube
from steps.errors import NotUnderstood, StepError, Unreachable
from steps.stages.shared.kube_objects import Conditioned
from tests.unit.served import served

PATH = "/api/v1/nodes"
Answer = Callable[[BaseHTTPRequestHandler, int], None]


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def answering(tmp_path: Path, answer: Answer, limits: ReadLimits = ReadLimits()) -> Iterator[tuple[Kube, list[str]]]:
    """Give a client of a server that answers by a function of the handler and the number of the request; and the requests."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            requests.append(self.path)
            try:
                answer(self, len(requests))
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with served(server):
        config = tmp_path / "kubeconfig"
        config.write_text(
            "{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], "
            f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{server.server_port}'}}}}], "
            "users: [{name: u, user: {}}]}"
        )
        try:
            yield Kube.from_file(config, limits=limits), requests
        finally:
            server.server_close()


def page(token: str) -> bytes:
    return b'{"kind": "NodeList", "metadata": {"continue": "%s"}, "items": [{"metadata": {"name": "n"}}]}' % token.encode()


def too_large(handler: BaseHTTPRequestHandler, _: int) -> None:
    send(handler, b'{"kind": "' + b"x" * (2 << 20) + b'"}')


def bomb(handler: BaseHTTPRequestHandler, _: int) -> None:
    send(handler, gzip.compress(b"0" * (4 << 20)), Content_Encoding="gzip")


def one_token(handler: BaseHTTPRequestHandler, _: int) -> None:
    send(handler, page("always"))


def new_tokens(handler: BaseHTTPRequestHandler, number: int) -> None:
    send(handler, page(str(number)))


def deep(handler: BaseHTTPRequestHandler, _: int) -> None:
    send(handler, b'{"kind": "NodeList", "surplus": ' + b"[" * 200_000 + b"]" * 200_000 + b"}")


def deep_error(handler: BaseHTTPRequestHandler, _: int) -> None:
    send(handler, b"[" * 200_000, status=400)


@pytest.mark.parametrize(
    ("answer", "sentence", "most"),
    [
        (too_large, "has more than 1 MiB", 1),
        (bomb, "compressed", 1),
        (one_token, "has no end", 2),
        (new_tokens, "has no end", 5),
        (deep, "nested", 1),
        (deep_error, "400", 1),
    ],
)
def test_an_answer_without_an_end_is_refused_soon(tmp_path: Path, answer: Answer, sentence: str, most: int) -> None:
    with answering(tmp_path, answer, ReadLimits(answer_bytes=1 << 20, list_pages=5)) as (kube, requests):
        with pytest.raises(StepError, match=sentence) as caught:
            kube.list(PATH, Conditioned)
        assert len(requests) == most
        assert isinstance(caught.value, NotUnderstood | ApiError)


def test_a_list_that_keeps_expiring_is_given_up_with_back_off(tmp_path: Path) -> None:
    def expiring(handler: BaseHTTPRequestHandler, _: int) -> None:
        if "continue" in handler.path:
            send(handler, b'{"kind": "Status", "code": 410, "reason": "Expired"}', status=410)
        else:
            send(handler, page("next"))

    with answering(tmp_path, expiring, ReadLimits(expired=2, backoff=0.02)) as (kube, requests):
        start_time = time.monotonic()
        with pytest.raises(Unreachable, match="expired 3 times"):
            kube.list(PATH, Conditioned)
        assert len(requests) == 6
        assert time.monotonic() - start_time >= 0.02 + 0.04


def test_an_answer_that_drips_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    never = threading.Event()

    def dripping(handler: BaseHTTPRequestHandler, _: int) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        while True:
            handler.wfile.write(b" ")
            never.wait(0.02)

    limits = ReadLimits(answer_seconds=0.1, tries=1)
    with answering(tmp_path, dripping, limits) as (kube, _), pytest.raises(Unreachable, match="too slowly"):
        kube.get(PATH, Conditioned)


def test_a_head_that_drips_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    never = threading.Event()

    def dripping(handler: BaseHTTPRequestHandler, _: int) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while True:
            handler.wfile.write(b"x")
            never.wait(0.02)

    limits, start_time = ReadLimits(answer_seconds=0.1, tries=1), time.monotonic()
    with answering(tmp_path, dripping, limits) as (kube, _), pytest.raises(Unreachable):
        kube.get(PATH, Conditioned)
    assert time.monotonic() - start_time < 10


def test_a_connection_serves_on_after_a_whole_answer(tmp_path: Path) -> None:
    with answering(tmp_path, lambda handler, _: send(handler, page(""))) as (kube, requests):
        for _ in range(3):
            assert len(kube.list(PATH, Conditioned) or ()) == 1
        assert len(requests) == 3
