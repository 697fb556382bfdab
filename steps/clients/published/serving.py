"""A small HTTP server for rehearsals and tests: serves a tree as a boot server does, and keeps what nodes report of themselves.

It is not for production: one process, no encryption, no access rules. Any HTTP server can serve a tree.
"""

import re
import tempfile
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from steps import timeouts
from steps.clients.published.tree import MOST_REPORT
from steps.contract.canonical import canonical
from steps.contract.image import on_node, published
from steps.contract.image.booting import REPORT_PATH, NodeReport
from steps.contract.image.published import NodeSeen

_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_FILE = re.compile(rf"/{published.NODES}/({_NODE.pattern})\.json")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def server(root: Path, address: str = "127.0.0.1", port: int = 0, say: Callable[[str], None] | None = None) -> ThreadingHTTPServer:
    """A server of the tree below `root` that listens already; `serve_forever` answers, `server_address` says where."""
    made = ThreadingHTTPServer((address, port), partial(_Handler, root=root.resolve(), say=say or _silent))
    made.daemon_threads = True
    return made


def keep(root: Path, report: NodeReport, now: float) -> NodeSeen:
    """Keep what a node reported, in place of what it reported before. Raises ReportError for one that cannot be named."""
    name = report.node or published.machine_name(report.mac)
    if not _NODE.fullmatch(name) or not _MAC.fullmatch(report.mac):
        raise on_node.ReportError("the report names no host and no MAC address")
    seen = NodeSeen(node=name, image=report.image, mac=report.mac, at=round(now - report.uptime, 1))
    _write(root, name, canonical(seen) + b"\n")
    return seen


def _write(root: Path, name: str, data: bytes) -> None:
    folder = root / published.NODES
    folder.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as beside:
        beside.write(data)
    Path(beside.name).chmod(0o644)
    Path(beside.name).replace(folder / f"{name}.json")


class _Handler(SimpleHTTPRequestHandler):
    """Files of the tree, never of what is being copied in, and nothing outside of it."""

    timeout = timeouts.SERVE_SILENCE
    protocol_version = "HTTP/1.1"

    def __init__(self, *words: object, root: Path, say: Callable[[str], None]) -> None:
        self._root, self._say = root, say
        super().__init__(*words, directory=str(root))  # type: ignore[arg-type]  # what socketserver gives goes on as it is

    def translate_path(self, path: str) -> str:
        """The file of an address; one that is not there stands for everything that is not to be had."""
        found = (self._root / unquote(urlsplit(path).path).replace("\0", "").lstrip("/")).resolve()
        inside = found.is_relative_to(self._root) and published.INCOMING not in found.relative_to(self._root).parts
        return str(found if inside and found.is_file() else self._root / ".nothing")

    def do_POST(self) -> None:
        """A node's report."""
        data = self._body(on_node.MAX_REPORT) if self.path.endswith(REPORT_PATH) else None
        if data is None:
            self._refuse()
            return
        try:
            seen = keep(self._root, on_node.read(data), time.time())
        except on_node.ReportError as error:
            self._answer(HTTPStatus.BAD_REQUEST, str(error))
            return
        self._say(f"{seen.node} runs {seen.image}")
        self._answer(HTTPStatus.OK, "heard")

    def do_PUT(self) -> None:
        """A node's file, as a web server keeps it that knows nothing of nodes."""
        found = _FILE.fullmatch(self.path)
        data = self._body(MOST_REPORT) if found else None
        if not found or data is None:
            self._refuse()
            return
        _write(self._root, found[1], data)
        self._say(f"{found[1]} was put")
        self._answer(HTTPStatus.CREATED, "kept")

    def _body(self, most: int) -> bytes | None:
        """What was sent, as long as it was said to be; None where it is longer than `most`, or was cut off."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,9}", length) or int(length) > most:
            return None
        data = self.rfile.read(int(length))
        return data if len(data) == int(length) else None

    def _refuse(self) -> None:
        self.close_connection = True
        self.send_error(HTTPStatus.BAD_REQUEST)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are told in one line, by whoever wants to hear them."""
        self._say(format % args)

    def _answer(self, status: HTTPStatus, text: str) -> None:
        data = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _silent(_: str) -> None:
    """Nobody wants to hear it."""
