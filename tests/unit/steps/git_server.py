"""Git's own server (git-http-backend) behind basic authentication; it can call a test at each request of a client."""

import base64
import os
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LOGIN = "ada:canary-7f3a9b2c1d"


def backend() -> str:
    """Path of git-http-backend; empty where git is not installed."""
    if shutil.which("git") is None:
        return ""
    folder = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    return shutil.which("git-http-backend", path=folder) or ""


@dataclass
class Served:
    """`at` is called with the number of each request (from 1) and whether it is answered already."""

    url: str = ""
    requests: list[str] = field(default_factory=list)
    at: Callable[[int, bool], None] = lambda _number, _answered: None


def bare(folder: Path) -> Path:
    """An empty bare repository with branch main."""
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(folder)], check=True, timeout=10)
    return folder


def certificate(folder: Path, name: str) -> Path:
    """A file of a new key and the certificate that it signs itself, for 127.0.0.1; the certificate alone lies beside it as .pem."""
    both, alone = folder / f"{name}.key", folder / f"{name}.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", str(both), "-out", str(alone)]
    names = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*made, *names], check=True, capture_output=True, timeout=30)
    both.write_text(both.read_text() + alone.read_text())
    return both


@contextmanager
def serving(folder: Path, login: str = LOGIN, signed: Path | None = None) -> Iterator[Served]:
    """Serve a bare repository while the context lasts; by https with the key and certificate of a file `signed`."""
    wanted, state, program = "Basic " + base64.b64encode(login.encode()).decode(), Served(), backend()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = _body(self)
            if self.headers.get("Authorization") != wanted:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="apps"')
                self.end_headers()
                self.wfile.write(f"no entry for {self.headers.get('Authorization')}".encode())
                return
            state.requests.append(f"{self.command} {self.path}")
            number = len(state.requests)
            state.at(number, False)
            done = subprocess.run([program], input=body, env=_cgi(self, folder), capture_output=True, check=True, timeout=30)
            state.at(number, True)
            head, _, data = done.stdout.partition(b"\r\n\r\n")
            lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
            self.send_response(int(lines.pop("Status", "200").split()[0]))
            for name, value in lines.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def __getattr__(self, name: str) -> Any:
            if name in ("do_GET", "do_POST"):
                return self.answer
            raise AttributeError(name)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

        def handle(self) -> None:
            try:
                super().handle()
            except (ConnectionError, ssl.SSLError):  # the test has ended the client, or it does not trust us
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if signed is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(signed)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http{'s' if signed else ''}://127.0.0.1:{server.server_address[1]}/{folder.name}"
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding") != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
    parts = []
    while size := int(request.rfile.readline(), 16):
        parts.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(parts)


def _cgi(request: BaseHTTPRequestHandler, folder: Path) -> dict[str, str]:
    parts = urlsplit(request.path)
    return {
        "PATH": os.environ["PATH"],
        "GIT_PROJECT_ROOT": str(folder.parent),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
        "REMOTE_USER": "ada",
        "REMOTE_ADDR": "127.0.0.1",
        "REQUEST_METHOD": request.command,
        "PATH_INFO": parts.path,
        "QUERY_STRING": parts.query,
        "CONTENT_TYPE": request.headers.get("Content-Type", ""),
    }
