"""A stand-in for simulated hosts: takes the requests of plays, and answers each with the events that a test says."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.unit.served import served

Answer = Callable[[list[str]], Iterable[tuple[str, dict[str, Any]]]]
"""Names of the played hosts → events with their data."""


@contextmanager
def answered(answer: Answer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of the stand-in and the requests that came in, while the context lasts."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            for event, data in answer(names(requests[-1])):
                self.wfile.write(json.dumps({"event": event, "event_data": data}).encode() + b"\n")

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, served(server):
        yield f"http://127.0.0.1:{server.server_address[1]}", requests


def names(request: dict[str, Any], field: str = "hosts") -> list[str]:
    """Names of the hosts of a request; `field` may be `helpers`."""
    return [one["name"] for one in request.get(field, ())]
