"""A front before an emulated API server: hands every request on, remembers those that write, and refuses what a test says."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import urllib3

from tests.unit.rehearsal.apiserver.cluster_client import Cluster
from workflows.rehearsal.apiserver import RunningServer
from workflows.rehearsal.apiserver.emulated_server import kubeconfig_text

REFUSED = b'{"kind":"Status","reason":"Invalid","message":"refused by the test"}'


@dataclass
class Refusal:
    """Answers 422 to requests of this method whose path begins so, after `after` that pass."""

    method: str
    path: str
    after: int = 0


@dataclass
class Front:
    """`writes` are the requests that would change something; `user` is somebody at the server itself.

    `meanwhile` says what somebody does just before the first request of a name, `METHOD PATH`, gets through.
    """

    kubeconfig: str
    direct: str
    user: Cluster
    writes: list[str] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    meanwhile: dict[str, Callable[[], object]] = field(default_factory=dict)

    @property
    def uid(self) -> str:
        """Identity of the cluster."""
        return str(self.user.get("/api/v1/namespaces/kube-system").body["metadata"]["uid"])

    def refuses(self, method: str, path: str) -> bool:
        """Return True if a test wants this request refused; each call counts a matching refusal down."""
        for one in self.refusals:
            if method == one.method and path.startswith(one.path):
                one.after -= 1
                return one.after < 0
        return False


@contextmanager
def serving(running: RunningServer) -> Iterator[Front]:
    """A front while the context lasts."""
    pool = urllib3.PoolManager(16, retries=False)
    front = Front("", running.kubeconfig, Cluster(running.url, running.token))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.command != "GET":
                front.writes.append(f"{self.command} {self.path.partition('?')[0]}")
                front.meanwhile.pop(front.writes[-1], lambda: None)()
            if front.refuses(self.command, self.path):
                status, data, kind = 422, REFUSED, "application/json"
            else:
                named = {name: self.headers[name] for name in ("Authorization", "Content-Type", "Accept") if name in self.headers}
                got = pool.request(self.command, running.url + self.path, body=body or None, headers=named)
                status, data, kind = got.status, got.data, got.headers.get("Content-Type", "")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self.answer
            raise AttributeError(name)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    front.kubeconfig = kubeconfig_text(f"http://127.0.0.1:{server.server_address[1]}", running.token)
    yield front
    server.shutdown()
    thread.join()
    server.server_close()
    pool.clear()
    front.user.close()
