"""HTTP server of a test boot: serves each machine its boot script, files and tests, records requests, and receives reports."""

import secrets
import socket
import struct
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self

from msgspec import Struct

from steps import timeouts
from steps.contract import plain_text
from steps.nodeimage.contract import boot_test_protocol
from steps.nodeimage.contract.boot_tests import REPORT_PATH, TESTS_PATH, BootEvent, NodeReport

CHUNK = 1 << 18
_MOST_DIGITS = 12


class ServedFile(Struct, frozen=True, kw_only=True):
    """File as a test boot serves it: its first `size` bytes; after `gone_after` bytes the server stops (None: never)."""

    what: str
    path: Path
    size: int
    gone_after: int | None = None


class Orders(Struct, frozen=True, kw_only=True):
    """Responses for one machine: its boot script, its list of tests, and the files of the image by name."""

    script: str
    tests: bytes
    parts: Mapping[str, ServedFile]


class Heard(Struct, kw_only=True):
    """Record of one machine at the test server: events as [seconds, what, sent, size], and its report, or why that was refused."""

    rows: list[list[float | str | int]]
    report: NodeReport | None = None
    clock: float = 0.0
    problem: str = ""


class BootTestServer:
    """Context manager that serves `http://127.0.0.1:PORT/SECRET/MACHINE/…`; `news` is set whenever a report came.

    Every account of this host reaches the port, so requests without the secret get nothing.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_hex(16)
        self._orders: dict[str, Orders] = {}
        self._heard: dict[str, Heard] = {}
        self._began = time.monotonic()
        self.news = threading.Event()
        server = self

        class Handler(_BootTestHandler):
            home = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads, self._http.block_on_close = True, False
        self._thread = threading.Thread(target=self._http.serve_forever, name="netboot-http", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leave()

    @property
    def port(self) -> int:
        """TCP port of the server."""
        return int(self._http.server_address[1])

    def place(self, machine: str) -> str:
        """Return the URL path of a machine's folder, which begins with the server's secret."""
        return f"/{self._secret}/{machine}"

    def machine(self, path: str) -> tuple[str, str]:
        """Return the machine whose folder a URL path leads into, and the rest of the path; an empty machine for other paths."""
        machine, slash, rest = path.removeprefix(self.place("")).partition("/")
        return (machine, slash + rest) if path.startswith(self.place("")) else ("", path)

    def serve(self, machine: str, orders: Orders) -> None:
        """Set the responses that a machine gets from now on, and forget what it sent before."""
        self._orders[machine] = orders
        self._heard[machine] = Heard(rows=[])

    def start(self) -> None:
        """Set the time 0 of all events: the machines are started now."""
        self._began = time.monotonic()

    def leave(self) -> None:
        """Stop listening; a request that is being answered is finished."""
        self._http.shutdown()
        self._http.server_close()

    def orders(self, machine: str) -> Orders | None:
        """Return the responses for a machine; None for an unknown machine."""
        return self._orders.get(machine)

    def note(self, machine: str, what: str, size: int, sent: int | None = None) -> list[float | str | int]:
        """Record an event of a machine now and return its row, whose third item the caller may raise as bytes are sent.

        Without `sent` all `size` bytes count as sent.
        """
        row: list[float | str | int] = [round(time.monotonic() - self._began, 2), what, size if sent is None else sent, size]
        self._heard[machine].rows.append(row)
        return row

    def refuse(self, machine: str, why: str) -> bytes:
        """Record why a machine's report is not read at all, and return the body of the answer that says so."""
        self._heard[machine].problem = plain_text.line(why)
        return f"{plain_text.line(why)}\n".encode()

    def take(self, machine: str, data: bytes) -> str:
        """Record a machine's report if it is valid and the first one; return why it is refused, empty if it is not."""
        heard, clock = self._heard[machine], time.time()
        try:
            report = boot_test_protocol.read(data)
        except boot_test_protocol.ReportError as error:
            heard.problem = str(error)
            return heard.problem
        finally:
            self.note(machine, "report", len(data))
        if heard.report is None:
            heard.clock, heard.report = clock, report
        self.news.set()
        return ""

    def heard(self, machine: str) -> Heard:
        """Return what the server has recorded about a machine: its requests, and its report."""
        return self._heard[machine]

    def events(self, machine: str) -> tuple[BootEvent, ...]:
        """Return the requests and reports of a machine so far as events."""
        rows = [list(row) for row in self._heard[machine].rows]
        return tuple(BootEvent(at=float(at), what=str(what), sent=int(sent), size=int(size)) for at, what, sent, size in rows)


class _BootTestHandler(BaseHTTPRequestHandler):
    """Handler of one machine's connection; serves `boot.ipxe`, `tests` and files, and takes `report`."""

    protocol_version = "HTTP/1.1"
    timeout = timeouts.BOOT_SILENCE
    home: BootTestServer

    def do_GET(self) -> None:  # the library's name
        machine, path = self.home.machine(self.path)
        orders = self.home.orders(machine)
        if orders is None:
            self._answer(404, b"no such machine\n")
        elif path == "/boot.ipxe":
            self.home.note(machine, "script", len(orders.script))
            self._answer(200, orders.script.encode())
        elif path == TESTS_PATH:
            self.home.note(machine, "tests", len(orders.tests))
            self._answer(200, orders.tests)
        elif part := orders.parts.get(path.removeprefix("/")):
            self._send(machine, part)
        else:
            self._answer(404, b"no such file\n")

    def do_POST(self) -> None:  # the library's name
        machine, path = self.home.machine(self.path)
        size = self.headers.get("Content-Length", "")
        if self.home.orders(machine) is None or path != REPORT_PATH:
            self._answer(404, b"no such place\n")
        elif not size.isdecimal() or int(size) > boot_test_protocol.MAX_REPORT:
            why = f"it has {size[:_MOST_DIGITS] or 'no'} bytes, a report has a length of at most {boot_test_protocol.MAX_REPORT}"
            self._answer(413, self.home.refuse(machine, why))
        else:
            refused = self.home.take(machine, self.rfile.read(int(size)))
            self._answer(400 if refused else 200, f"{refused or 'heard'}\n".encode())

    def log_message(self, format: str, *args: object) -> None:  # the library's name
        """Print nothing, because requests are recorded as events."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send(self, machine: str, part: ServedFile) -> None:
        row = self.home.note(machine, part.what, part.size, sent=0)
        self.send_response(200)
        self.send_header("Content-Length", str(part.size))
        self.end_headers()
        most, sent = part.size if part.gone_after is None else part.gone_after, 0
        with part.path.open("rb") as file:
            while data := file.read(min(CHUNK, most - sent)):
                self.wfile.write(data)
                row[2] = sent = sent + len(data)
        if part.gone_after is None and sent == part.size:
            return
        # stop listening and reset the connection, as the kernel of a dead server would
        self.close_connection = True
        if part.gone_after is not None:
            self.home.leave()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def handle(self) -> None:
        """Handle the connection and ignore that it breaks, because a machine that stops in the middle shows in its events."""
        try:
            super().handle()
        except (OSError, ValueError):
            self.close_connection = True
