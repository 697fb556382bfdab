"""Stand-in for the kubelet port of nodes without kubelet: serves logs that the Argo stand-in left in a folder."""

import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from kubelab import box

KUBELET = "10250"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    logs: Path


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        """`/containerLogs/NAMESPACE/POD/CONTAINER?tailLines=N`, as the API server asks a kubelet."""
        asked = urlsplit(self.path)
        _, _, *place = (unquote(part) for part in asked.path.split("/"))
        kept = self.server.logs.joinpath(*place)
        if len(place) != 3 or ".." in place or not kept.is_file():
            self._answer(400, b"container is waiting to start: ContainerCreating")
            return
        lines = kept.read_bytes().splitlines(keepends=True)
        tail = parse_qs(asked.query).get("tailLines", [""])[0]
        self._answer(200, b"".join(lines[-int(tail) :] if tail else lines))

    def log_message(self, format: str, *args: Any) -> None:
        """Every look of a gate asks: nothing worth a line."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(folder: Path) -> Iterator[Path]:
    """Serve while the context lasts, for every address but the real node's; yields the folder that logs go to."""
    logs, certificate, key = folder / "pods", folder / "tls.crt", folder / "tls.key"
    logs.mkdir(parents=True)
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=simulated", "-days", "2"]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    server = _Server((box.OUTSIDE, 0), _Handler)
    server.logs = logs
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rule = ["OUTPUT", "!", "-d", f"{box.ADDRESS}/32", "-p", "tcp", "--dport", KUBELET, "-j", "DNAT"]
    rule += ["--to-destination", f"{box.OUTSIDE}:{server.server_port}"]
    box.run("iptables", "-t", "nat", "-A", *rule)
    try:
        yield logs
    finally:
        box.run("iptables", "-t", "nat", "-D", *rule)
        server.shutdown()
        server.server_close()
