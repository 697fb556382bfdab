"""A stand-in for a chat system behind a webhook: it keeps what it is told, and answers as a test wants."""

import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from tests.unit.served import served

CANARY = "canary-5c1e"
"""Stands in the URL and in every answer: both are nobody's business."""
CUT = 0
"""In place of an HTTP status: the connection is closed without an answer."""


@dataclass
class Chat:
    """Answers with these statuses, the last again and again."""

    url: str
    answers: list[int] = field(default_factory=lambda: [204])
    got: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def serving(host: str = "127.0.0.1", signed: Path | None = None) -> Iterator[Chat]:
    """A chat that listens while the context lasts; by https with the key and certificate of a file `signed`."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            made.got.append(json.loads(body) | {"type": self.headers["Content-Type"]})
            status = made.answers.pop(0) if len(made.answers) > 1 else made.answers[0]
            if status == CUT:
                return
            self.send_response(status)
            self.send_header("Location", f"{made.url}/elsewhere")
            self.end_headers()
            if status != 204:
                self.wfile.write(f"no, {CANARY} is wrong".encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer((host, 0), Handler) as server:
        if signed is not None:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(signed)
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        made = Chat(f"{'http' if signed is None else 'https'}://{host}:{server.server_address[1]}/{CANARY}")
        with served(server):
            yield made
