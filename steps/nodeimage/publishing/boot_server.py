"""Small HTTP server for rehearsals and tests: serves a release folder as a boot server does, and keeps the reports of nodes.

It is not for production: one process, no encryption, no access rules. Any HTTP server can serve a release folder.
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
from steps.clients.releases.release_tree import MOST_REPORT
from steps.contract import release_layout
from steps.contract.canonical import canonical
from steps.nodeimage.contract import boot_test_protocol, boot_tree
from steps.nodeimage.contract.boot_tests import REPORT_PATH, NodeReport
from steps.nodeimage.contract.boot_tree import NodeSeen

_NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_FILE = re.compile(rf"/{release_layout.NODES}/({_NODE.pattern})\.json")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def server(root: Path, address: str = "127.0.0.1", port: int = 0, say: Callable[[str], None] | None = None) -> ThreadingHTTPServer:
    """Return a listening HTTP server for the folder `root`; `serve_forever` answers requests, `server_address` is its address."""
    listening = ThreadingHTTPServer((address, port), partial(_ReleaseFileHandler, root=root.resolve(), say=say or _silent))
    listening.daemon_threads = True
    return listening


def keep(root: Path, report: NodeReport, now: float) -> NodeSeen:
    """Replace a node's report in the folder by this one and return what was written; `now` is in UTC seconds.

    Raises ReportError for a report without a usable host name or MAC address.
    """
    name = report.node or boot_tree.machine_name(report.mac)
    if not _NODE.fullmatch(name) or not _MAC.fullmatch(report.mac):
        raise boot_test_protocol.ReportError("the report names no host and no MAC address")
    record = NodeSeen(node=name, image=report.image, mac=report.mac, at=round(now - report.uptime, 1))
    _write(root, name, canonical(record) + b"\n")
    return record


def _write(root: Path, name: str, data: bytes) -> None:
    folder = root / release_layout.NODES
    folder.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".", delete=False) as beside:
        beside.write(data)
    Path(beside.name).chmod(0o644)
    Path(beside.name).replace(folder / f"{name}.json")


class _ReleaseFileHandler(SimpleHTTPRequestHandler):
    """Handler that serves files of the release folder, but none in `incoming` and none outside of it."""

    timeout = timeouts.SERVE_SILENCE
    protocol_version = "HTTP/1.1"

    def __init__(self, *words: object, root: Path, say: Callable[[str], None]) -> None:
        self._root, self._say = root, say
        super().__init__(*words, directory=str(root))  # type: ignore[arg-type]  # what socketserver gives goes on as it is

    def translate_path(self, path: str) -> str:
        """Return the path of the file at a URL; for anything that is not served, a path at which there is no file."""
        # `resolve` follows links before the folder is compared, and fails at a zero byte
        file = (self._root / unquote(urlsplit(path).path).replace("\0", "").lstrip("/")).resolve()
        inside = file.is_relative_to(self._root) and release_layout.INCOMING not in file.relative_to(self._root).parts
        return str(file if inside and file.is_file() else self._root / ".nothing")

    def do_POST(self) -> None:
        data = self._body(boot_test_protocol.MAX_REPORT) if self.path.endswith(REPORT_PATH) else None
        if data is None:
            self._refuse()
            return
        try:
            record = keep(self._root, boot_test_protocol.read(data), time.time())
        except boot_test_protocol.ReportError as error:
            self._answer(HTTPStatus.BAD_REQUEST, str(error))
            return
        self._say(f"{record.node} runs {record.image}")
        self._answer(HTTPStatus.OK, "heard")

    def do_PUT(self) -> None:
        """Store a node's report that is sent as a file, as a plain web server with PUT does."""
        match = _FILE.fullmatch(self.path)
        data = self._body(MOST_REPORT) if match else None
        if not match or data is None:
            self._refuse()
            return
        _write(self._root, match[1], data)
        self._say(f"{match[1]} was put")
        self._answer(HTTPStatus.CREATED, "kept")

    def _body(self, most: int) -> bytes | None:
        """Return the body of the request; None if it is longer than `most` bytes, has no length, or was cut off."""
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch(r"[0-9]{1,9}", length) or int(length) > most:
            return None
        data = self.rfile.read(int(length))
        return data if len(data) == int(length) else None

    def _refuse(self) -> None:
        self.close_connection = True  # the next request must not be looked for in the unread body
        self.send_error(HTTPStatus.BAD_REQUEST)

    def log_message(self, format: str, *args: object) -> None:
        """Pass the log line of a request to the function `say` of `server`."""
        self._say(format % args)

    def _answer(self, status: HTTPStatus, text: str) -> None:
        data = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _silent(_: str) -> None:
    """Drop a log line of the server, whose caller gave no `say`."""
