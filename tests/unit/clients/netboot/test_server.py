"""The server of a test boot: what it sends, what it notes, and whom it refuses."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest

from steps.clients.netboot.server import Orders, Part, Server
from steps.contract.image import on_node
from tests.hosts.hostlab.waiting import until

DATA = bytes(range(256)) * 4096


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "root").write_bytes(DATA)
    with Server() as one:
        yield one


def serve(server: Server, folder: Path, **more: int) -> None:
    part = Part(what="root", path=folder / "root", size=more.get("size", len(DATA)), gone_after=more.get("gone_after"))
    server.serve("m1", Orders(script="#!ipxe\n", tests=on_node.render(()), parts={"root.squashfs": part}))


def ask(server: Server, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(method, path, body=body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_files_are_sent_and_noted(server: Server, tmp_path: Path) -> None:
    serve(server, tmp_path)
    assert ask(server, "/m1/boot.ipxe") == (200, b"#!ipxe\n")
    assert ask(server, "/m1/root.squashfs") == (200, DATA)
    wanted = [("script", 7, 7), ("root", len(DATA), len(DATA))]
    # the last bytes may be read before the thread that sent them has noted so
    until(lambda: [(event.what, event.sent, event.size) for event in server.events("m1")] == wanted, 10)
    assert [(event.what, event.sent, event.size) for event in server.events("m1")] == wanted


def test_half_a_file_looks_whole(server: Server, tmp_path: Path) -> None:
    serve(server, tmp_path, size=len(DATA) // 2)
    assert ask(server, "/m1/root.squashfs") == (200, DATA[: len(DATA) // 2])


def test_a_server_that_goes_away_answers_nobody(server: Server, tmp_path: Path) -> None:
    serve(server, tmp_path, gone_after=300_000)
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        ask(server, "/m1/root.squashfs")
    until(lambda: [event.sent for event in server.events("m1")] == [300_000], 10)
    assert [(event.sent, event.size) for event in server.events("m1")] == [(300_000, len(DATA))]
    with pytest.raises(ConnectionError):
        ask(server, "/m1/boot.ipxe")


@pytest.mark.parametrize(
    "path", ["/", "/m2/boot.ipxe", "/m1/other", "/m1/../m1/root.squashfs", "/m1//root.squashfs", "/%2e%2e/etc"]
)
def test_nothing_else_is_served(server: Server, tmp_path: Path, path: str) -> None:
    serve(server, tmp_path)
    assert ask(server, path)[0] == 404


def test_reports_are_read_before_they_count(server: Server, tmp_path: Path) -> None:
    serve(server, tmp_path)
    status, said = ask(server, "/m1/report", "POST", b"no report")
    assert (status, server.heard("m1").report) == (400, None)
    assert b"no whole report" in said
    assert server.heard("m1").problem
    assert ask(server, "/m1/report", "POST", b"x" * (on_node.MAX_REPORT + 1))[0] == 413
    assert ask(server, "/m2/report", "POST", b"x")[0] == 404
