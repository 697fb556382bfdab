"""The server of a test boot: what it sends, what it notes, and whom it refuses."""

import http.client
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from steps.nodeimage.contract import boot_test_protocol
from steps.nodeimage.netboot.boot_test_server import BootTestServer, Orders, ServedFile
from tests.hosts.hostlab.waiting import until

DATA = bytes(range(256)) * 4096


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BootTestServer]:
    (tmp_path / "root").write_bytes(DATA)
    with BootTestServer() as one:
        yield one


def serve(server: BootTestServer, folder: Path, **more: int) -> None:
    part = ServedFile(what="root", path=folder / "root", size=more.get("size", len(DATA)), gone_after=more.get("gone_after"))
    server.serve("m1", Orders(script="#!ipxe\n", tests=boot_test_protocol.render(()), parts={"root.squashfs": part}))


def ask(server: BootTestServer, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    """`path` is below the place of all machines."""
    return outside(server, server.place("").rstrip("/") + path, method, body)


def outside(server: BootTestServer, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, body=body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_files_are_sent_and_noted(server: BootTestServer, tmp_path: Path) -> None:
    serve(server, tmp_path)
    assert ask(server, "/m1/boot.ipxe") == (200, b"#!ipxe\n")
    assert ask(server, "/m1/root.squashfs") == (200, DATA)
    wanted = [("script", 7, 7), ("root", len(DATA), len(DATA))]
    # the last bytes may be read before the thread that sent them has noted so
    until(lambda: [(event.what, event.sent, event.size) for event in server.events("m1")] == wanted, 60)
    assert [(event.what, event.sent, event.size) for event in server.events("m1")] == wanted


def test_half_a_file_looks_whole(server: BootTestServer, tmp_path: Path) -> None:
    serve(server, tmp_path, size=len(DATA) // 2)
    assert ask(server, "/m1/root.squashfs") == (200, DATA[: len(DATA) // 2])


def test_a_server_that_goes_away_answers_nobody(server: BootTestServer, tmp_path: Path) -> None:
    serve(server, tmp_path, gone_after=300_000)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        ask(server, "/m1/root.squashfs")
    until(lambda: [event.sent for event in server.events("m1")] == [300_000], 60)
    assert [(event.sent, event.size) for event in server.events("m1")] == [(300_000, len(DATA))]
    with pytest.raises(ConnectionError):
        ask(server, "/m1/boot.ipxe")


@pytest.mark.parametrize(
    "path", ["/", "/m2/boot.ipxe", "/m1/other", "/m1/../m1/root.squashfs", "/m1//root.squashfs", "/%2e%2e/etc"]
)
def test_nothing_else_is_served(server: BootTestServer, tmp_path: Path, path: str) -> None:
    serve(server, tmp_path)
    assert ask(server, path)[0] == 404


def test_reports_are_read_before_they_count(server: BootTestServer, tmp_path: Path) -> None:
    serve(server, tmp_path)
    status, said = ask(server, "/m1/report", "POST", b"no report")
    assert (status, server.heard("m1").report) == (400, None)
    assert b"no whole report" in said
    assert server.heard("m1").problem
    assert ask(server, "/m1/report", "POST", b"x" * (boot_test_protocol.MAX_REPORT + 1))[0] == 413
    said = f"it has {boot_test_protocol.MAX_REPORT + 1} bytes, a report has a length of at most {boot_test_protocol.MAX_REPORT}"
    assert server.heard("m1").problem == said, "the machine will say no more: this is its cause"
    assert ask(server, "/m2/report", "POST", b"x")[0] == 404


REPORT = """bringup-report 1
node {node}
mac 52:54:00:b0:00:01
address 10.0.2.15
kernel 6.1
root overlay
uptime 1.0
clock 1.0
end 0
"""


def report(node: str = "first") -> bytes:
    return REPORT.format(node=node).encode()


@pytest.mark.parametrize("path", ["/m1/report", "//m1/report", f"/{'0' * 32}/m1/report", "/x/m1/report"])
def test_who_has_an_account_here_cannot_report_for_a_machine(server: BootTestServer, tmp_path: Path, path: str) -> None:
    serve(server, tmp_path)
    assert outside(server, path, "POST", report())[0] == 404
    assert outside(server, "/m1/boot.ipxe")[0] == 404
    assert (server.heard("m1").report, server.events("m1")) == (None, ())
    assert ask(server, "/m1/report", "POST", report())[0] == 200


def test_the_first_report_counts(server: BootTestServer, tmp_path: Path) -> None:
    serve(server, tmp_path)
    for node in ("", "first", "second"):
        ask(server, "/m1/report", "POST", report(node) if node else b"garbage")
    heard = server.heard("m1")
    assert heard.report is not None
    assert heard.report.node == "first"
    assert [event.what for event in server.events("m1")] == ["report"] * 3


def test_a_report_that_is_seen_is_seen_whole(server: BootTestServer, tmp_path: Path) -> None:
    """The machine is judged the moment its report is seen: clock and event must be there by then."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(300):
            machine = f"m{number}"
            server.serve(machine, Orders(script="", tests=b"", parts={}))
            taking = threading.Thread(target=server.take, args=(machine, report()))
            taking.start()
            heard = server.heard(machine)
            while heard.report is None:
                pass
            assert heard.clock
            assert server.events(machine)
            taking.join()
    finally:
        sys.setswitchinterval(before)
