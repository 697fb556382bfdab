"""A release comes over HTTP: what breaks off is tried again, what is wrong is not, and a proxy that refuses says so."""

import hashlib
import socketserver
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible.module_utils.rke2 import release_files
from ansible.module_utils.urls import open_url

from steps.clients.ansible.failures import failure_reason
from steps.contract.host_play import FailureKind
from tests.unit.served import served

ARCHIVE = b"archive" * 1000
SUMS = f"{hashlib.sha256(ARCHIVE).hexdigest()}  rke2.linux-amd64.tar.gz\n".encode()
FILES = {"rke2.linux-amd64.tar.gz": ARCHIVE, "sha256sum-amd64.txt": SUMS}
VERSION = "v1.35.7+rke2r1"


@contextmanager
def site(sends: dict[str, tuple[bytes, int]], *, chunked: bool = False, status: int = 200) -> Iterator[str]:
    """The address of a server that sends each file's bytes and says that there are so many; then it hangs up."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body, promised = sends[self.path.rpartition("/")[2]]
            self.send_response(status)
            self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Content-Length", str(promised))))
            self.end_headers()
            self.wfile.write(b"%x\r\n%s" % (promised, body) if chunked else body)
            self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, served(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


def whole(**other: bytes) -> dict[str, tuple[bytes, int]]:
    return {name: (body, len(body)) for name, body in (FILES | other).items()}


def fetched(url: str, store: Path) -> list[str]:
    found: list[str] = release_files.HostRelease(VERSION, "x86_64", url, "", "", open_url, str(store)).fetch([], check_mode=False)
    return found


def test_a_release_is_fetched_once(tmp_path: Path) -> None:
    with site(whole()) as url:
        assert fetched(url, tmp_path) == ["rke2.linux-amd64.tar.gz"]
        assert fetched(url, tmp_path) == []


@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
@pytest.mark.parametrize("name", sorted(FILES))
def test_what_breaks_off_may_be_tried_again_and_leaves_nothing(name: str, chunked: bool, tmp_path: Path) -> None:
    sends = whole() | {name: (FILES[name][:50], len(FILES[name]))}
    if chunked:  # the others come whole only where a length is promised
        sends = {name: sends[name]} | {
            other: (FILES[other] + b"\r\n0\r\n\r\n", len(FILES[other])) for other in FILES if other != name
        }
    with (
        site(sends, chunked=chunked) as url,
        pytest.raises(release_files.DownloadInterrupted, match=rf"{name}: broke off after \d+"),
    ):
        fetched(url, tmp_path)
    assert not (tmp_path / VERSION / name).exists()
    with site(whole()) as url:
        assert fetched(url, tmp_path) == ["rke2.linux-amd64.tar.gz"]


def test_a_wrong_checksum_stays_wrong(tmp_path: Path) -> None:
    with (
        site(whole(**{"rke2.linux-amd64.tar.gz": b"another"})) as url,
        pytest.raises(release_files.InvalidRelease, match="its sha256 is"),
    ):
        fetched(url, tmp_path)


def test_a_list_without_the_file_is_not_kept(tmp_path: Path) -> None:
    with (
        site(whole(**{"sha256sum-amd64.txt": b"\n"})) as url,
        pytest.raises(release_files.InvalidRelease, match="has no checksum for"),
    ):
        fetched(url, tmp_path)
    with site(whole()) as url:
        assert fetched(url, tmp_path) == ["rke2.linux-amd64.tar.gz"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, release_files.InvalidRelease), (429, release_files.DownloadInterrupted), (503, release_files.DownloadInterrupted)],
)
def test_an_answer_says_whether_asking_again_helps(status: int, kind: type[Exception], tmp_path: Path) -> None:
    with site(whole(), status=status) as url, pytest.raises(kind, match=str(status)):
        fetched(url, tmp_path)


class HangsUp(socketserver.BaseRequestHandler):
    """Takes a request and closes."""

    def handle(self) -> None:
        self.request.recv(65536)


def test_a_server_that_hangs_up_may_be_asked_again(tmp_path: Path) -> None:
    with (
        socketserver.ThreadingTCPServer(("127.0.0.1", 0), HangsUp) as server,
        served(server),
        pytest.raises(release_files.DownloadInterrupted),
    ):
        fetched(f"http://127.0.0.1:{server.server_address[1]}", tmp_path)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses_the_login_has_a_reason_of_its_own(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(407)

        do_CONNECT = do_GET  # noqa: N815 - a name of the standard library

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server, served(server):
        for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY"):
            monkeypatch.setenv(name, f"http://ops:canary@127.0.0.1:{server.server_address[1]}")
        with pytest.raises(release_files.InvalidRelease, match="the proxy refuses this login") as caught:
            fetched(f"{scheme}://files.example.org/rke2", tmp_path)
    assert "canary" not in str(caught.value)
    assert failure_reason(str(caught.value)) is FailureKind.PROXY
