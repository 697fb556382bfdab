"""The archive holds what is locked and nothing else: mirrors that lie, break off, are away or forget are told as what they are."""

import base64
import hashlib
import re
import shutil
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.nodeimage.contract.resolved_recipe import Package, PackageRepository, Recipe, ResolvedLayer
from steps.nodeimage.layer import mirror_download, mirror_settings, package_archive
from steps.stages.image_lock.contract import Archive
from tests.unit.served import served
from tests.unit.steps import authority

needs_apt = pytest.mark.skipif(shutil.which("apt-config") is None, reason="apt is not on this machine: no settings to read")
HOSTS = ["http://mirror.example/debian", "http://inside.example:80/debian", "https://inside.example2/debian"]


@dataclass
class Server:
    """A mirror: path → bytes, or what it does instead; `asked` counts the requests."""

    made: ThreadingHTTPServer
    url: str = ""
    files: dict[str, bytes | Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    together: int = 0
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            return

        def do_GET(self) -> None:
            with state.lock:
                state.asked[self.path] += 1
                state.together += 1
                state.most = max(state.most, state.together)
            found = state.files.get(self.path)
            if callable(found):
                found(self)
            elif found is None:
                self.send_error(404, "Not Found")
            else:
                answer(self, 200, found)
            with state.lock:
                state.together -= 1

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made, served(made):
        state = Server(made)
        state.url = f"http://127.0.0.1:{made.server_port}/debian"
        yield state


def answer(handler: BaseHTTPRequestHandler, status: int, data: bytes, size: int | None = None, kind: str = "") -> None:
    handler.send_response(status)
    if kind:
        handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(data) if size is None else size))
    handler.end_headers()
    handler.wfile.write(data)


def package(name: str, data: bytes, **more: Any) -> Package:
    told = {"version": "1.0-1", "architecture": "amd64", "path": f"pool/{name}.deb"} | more
    return Package(name=name, sha256=hashlib.sha256(data).hexdigest(), size=len(data), **told)


def recipe(url: str, *packages: Package) -> Recipe:
    layers = (ResolvedLayer(name="base", packages=packages),)
    where = {"distribution": "debian", "release": "bookworm", "architecture": "amd64", "epoch": 1, "kernel": "k"}
    return Recipe(name="r", sources=(PackageRepository(url=url, suite="bookworm"),), layers=layers, **where)


def fill(folder: Path, wanted: Recipe, seeds: tuple[Path, ...] = ()) -> tuple[Archive, list[str]]:
    said: list[str] = []
    return package_archive.fill(folder, wanted, said.append, seeds), said


def test_what_is_locked_is_fetched_once_and_kept(server: Server, tmp_path: Path) -> None:
    data = {f"p{number}": b"x" * (number + 1) for number in range(9)}
    server.files = {f"/debian/pool/{name}.deb": content for name, content in data.items()}
    wanted = recipe(server.url, *(package(name, content) for name, content in data.items()))
    found, said = fill(tmp_path, wanted)
    assert (found.kept, found.fetched, found.missing, found.wrong, found.problems) == (0, 9, (), (), ())
    assert (found.recipe, found.packages, found.bytes) == (wanted.digest, 9, 45)
    assert said[0] == "9 of 9 packages are not in the archive: 0 MB"
    for one in wanted.layers[0].packages:
        assert hashlib.sha256(package_archive.path(tmp_path, one.sha256).read_bytes()).hexdigest() == one.sha256
    assert server.most <= package_archive.SIDE_BY_SIDE
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    found, said = fill(tmp_path, wanted)
    assert (found.kept, found.fetched, said) == (9, 0, [])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before, "nothing is written where nothing is missing"
    assert max(server.asked.values()) == 1


def test_a_build_years_later_needs_no_mirror(server: Server, tmp_path: Path) -> None:
    server.files = {"/debian/pool/a.deb": b"a"}
    wanted = recipe(server.url, package("a", b"a"))
    fill(tmp_path, wanted)
    gone = recipe("http://127.0.0.1:1/debian", *wanted.layers[0].packages)
    assert fill(tmp_path, gone)[0].kept == 1


@pytest.mark.parametrize(
    ("does", "problem", "asked"),
    [
        (None, r"a=1.0-1: 127.0.0.1:\d+ answers 404 Not Found to /debian/pool/a.deb", 1),
        (lambda handler: answer(handler, 200, b"b" * 1000), r"sends another a=1.0-1 than the locked one", 1),
        (lambda handler: answer(handler, 200, b"a" * 1001), "sends more than the 1000 bytes", 1),
        (lambda handler: answer(handler, 403, b"no"), "answers 403 Forbidden", 1),
    ],
)
def test_what_a_mirror_gives_wrong_is_not_asked_for_again(
    server: Server, tmp_path: Path, does: Any, problem: str, asked: int
) -> None:
    server.files = {"/debian/pool/a.deb": does} if does else {}
    found, _ = fill(tmp_path, recipe(server.url, package("a", b"a" * 1000)))
    assert found.missing == ("a=1.0-1",)
    assert len(found.problems) == 1
    assert re.search(problem, found.problems[0]), found.problems
    assert server.asked["/debian/pool/a.deb"] == asked
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("status", [404, 500])
def test_a_mirror_that_refuses_many_is_not_waited_for(server: Server, tmp_path: Path, status: int) -> None:
    """An answer that nobody reads to its end must not keep its connection: the next download would wait for it, for ever."""
    data = {f"p{number}": bytes([number]) * 3000 for number in range(3 * package_archive.SIDE_BY_SIDE)}
    server.files = {f"/debian/pool/{name}.deb": lambda handler: answer(handler, status, b"no" * 9999) for name in data}
    found: list[Archive] = []
    wanted = recipe(server.url, *(package(name, content) for name, content in data.items()))
    filling = threading.Thread(target=lambda: found.append(fill(tmp_path, wanted)[0]), daemon=True)
    filling.start()
    filling.join(60)
    assert not filling.is_alive(), "it waits for connections that never come back"
    assert len(found[0].missing) == len(data)


@pytest.mark.parametrize(
    "first",
    [
        lambda handler: answer(handler, 503, b"busy"),
        lambda handler: answer(handler, 200, b"a" * 10, size=1000),
        lambda handler: answer(handler, 200, b"a" * 10),
        lambda handler: handler.connection.shutdown(socket.SHUT_RDWR),
    ],
)
def test_what_may_pass_is_tried_again_from_the_beginning(server: Server, tmp_path: Path, first: Any) -> None:
    def twice(handler: BaseHTTPRequestHandler) -> None:
        first(handler) if server.asked[handler.path] == 1 else answer(handler, 200, b"a" * 1000)

    server.files = {"/debian/pool/a.deb": twice}
    found, _ = fill(tmp_path, recipe(server.url, package("a", b"a" * 1000)))
    assert (found.fetched, found.missing, server.asked["/debian/pool/a.deb"]) == (1, (), 2)


@pytest.mark.parametrize(
    ("does", "problem", "is_away"),
    [
        (
            lambda handler: answer(handler, 200, b"<html>Not here any more</html>", kind="text/html"),
            r"p0=1.0-1: 127.0.0.1:\d+ answers with 30 bytes of text/html for the 3000 bytes of p0=1.0-1",
            False,
        ),
        (lambda handler: answer(handler, 503, b"busy"), r"answers 503 Service Unavailable to /debian/pool/p0.deb", True),
    ],
    ids=["page", "busy"],
)
def test_what_a_mirror_does_not_give_keeps_nothing_else_away(
    server: Server, tmp_path: Path, does: Any, problem: str, is_away: bool
) -> None:
    data = {f"p{number}": bytes([number]) * 3000 for number in range(40)}
    bad = list(data)[: package_archive.SIDE_BY_SIDE]  # all others lie behind them
    server.files = {f"/debian/pool/{name}.deb": does if name in bad else content for name, content in data.items()}
    found, _ = fill(tmp_path, recipe(server.url, *(package(name, content) for name, content in data.items())))
    assert (found.fetched, found.missing) == (len(data) - len(bad), tuple(f"{name}=1.0-1" for name in bad))
    assert re.search(problem, found.problems[0]), found.problems
    assert found.is_only_away is is_away, "a page instead of a package is told as such: the mirror is there"


def test_a_mirror_that_gives_pages_alone_is_given_up_for_all(server: Server, tmp_path: Path) -> None:
    data = {f"p{number}": bytes([number]) * 3000 for number in range(60)}
    server.files = {f"/debian/pool/{name}.deb": lambda handler: answer(handler, 200, b"<html>maintenance") for name in data}
    found, _ = fill(tmp_path, recipe(server.url, *(package(name, content) for name, content in data.items())))
    assert (len(found.missing), found.is_only_away) == (60, False)
    assert len(server.asked) <= mirror_download.MOST_ODD + package_archive.SIDE_BY_SIDE
    assert "is not asked for others" in found.problems[-2]


def test_a_login_of_the_proxy_is_sent(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str | None] = []

    def as_proxy(handler: BaseHTTPRequestHandler) -> None:
        said.append(handler.headers.get("Proxy-Authorization"))
        answer(handler, 200, b"a")

    server.files = {"http://mirror.example/debian/pool/a.deb": as_proxy}
    address = server.url.removeprefix("http://").removesuffix("/debian")
    monkeypatch.setenv("http_proxy", f"http://ada:s%40crowd@{address}")
    monkeypatch.delenv("no_proxy", raising=False)
    found, _ = fill(tmp_path, recipe("http://mirror.example/debian", package("a", b"a")))
    assert found.fetched == 1, found.problems
    assert said == [f"Basic {base64.b64encode(b'ada:s@crowd').decode()}"]


def test_a_proxy_that_is_none_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "socks5h://ada:s%40crowd@127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    found, _ = fill(tmp_path, recipe("http://mirror.example/debian", package("a", b"a")))
    assert found.problems == ("a=1.0-1: the proxy that the environment names for mirror.example is none (ProxySchemeUnknown)",)
    assert not found.is_only_away


def told_apt(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    """Settings of apt beside those of this machine."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    (folder / "apt.conf").write_text(text)
    monkeypatch.setenv("APT_CONFIG", str(folder / "apt.conf"))


@needs_apt
@pytest.mark.parametrize(
    ("text", "proxies"),
    [
        ('Acquire::http::Proxy "http://p:1"; Acquire::http::proxy::Inside.example "DIRECT";', ["http://p:1", "", "http://p:1"]),
        ('Acquire::HTTP::Proxy "http://p:1"; Acquire::https::Proxy "DIRECT";', ["http://p:1", "http://p:1", ""]),
        ('Acquire::http::Proxy::inside.example "http://q:2";', ["", "http://q:2", ""]),
        ('Acquire::http::Proxy "http://p:1"; Acquire::http::Proxy-Auto-Detect "/bin/false";', ["http://p:1"] * 3),
        ('Acquire::http::Proxy "http://p:1"; Acquire::http::ProxyAutoDetect "/bin/echo";', HOSTS),
        ("", ["", "", ""]),
    ],
    ids=["one host without", "https without", "one host", "no answer", "asked", "none"],
)
def test_apts_settings_are_read_as_apt_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, proxies: list[str]) -> None:
    told_apt(monkeypatch, tmp_path, text)
    settings = mirror_settings.read()
    assert [settings.proxy(url) for url in HOSTS] == proxies


@needs_apt
def test_the_program_that_says_the_proxy_is_asked_once_for_a_host(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, program = tmp_path / "asked", tmp_path / "detect"
    program.write_text(f'#!/bin/sh\necho "$1" >> {asked}\necho {server.url.removesuffix("/debian")}\n')
    program.chmod(0o755)
    told_apt(monkeypatch, tmp_path, f'Acquire::http::Proxy-Auto-Detect "{program}";')
    names, hosts = [f"p{number}" for number in range(2)], ("one.example", "two.example")

    def busy_at_first(handler: BaseHTTPRequestHandler) -> None:
        answer(handler, 503, b"busy") if server.asked[handler.path] == 1 else answer(handler, 200, handler.path[-6:-4].encode())

    server.files = {f"http://{host}/pool/{name}.deb": busy_at_first for host in hosts for name in names}
    both = mirror_download.Mirrors(package_archive.SIDE_BY_SIDE)
    for host in hosts:
        for name in names:
            with (tmp_path / "file").open("wb") as file:
                both.fetch(f"http://{host}", package(name, name.encode()), file)
    both.close()
    assert [line.split("/")[2] for line in asked.read_text().splitlines()] == list(hosts)


def test_where_there_is_no_apt_nothing_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert mirror_settings.read().options == {}


@needs_apt
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificate to show")
def test_who_signs_a_mirror_is_who_apt_trusts(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca = authority.root(tmp_path, "site")
    shown.load_cert_chain(authority.server(tmp_path, "mirror", ca))
    server.files = {"/debian/pool/a.deb": b"a"}
    wanted = recipe(server.url.replace("http:", "https:"), package("a", b"a"))
    server.made.socket = shown.wrap_socket(server.made.socket, server_side=True)
    told_apt(monkeypatch, tmp_path, "")
    assert "certificate verify failed" in fill(tmp_path / "images", wanted)[0].problems[0]
    told_apt(monkeypatch, tmp_path, 'Acquire::https::CAInfo "/no/such/ca.pem";')
    found, _ = fill(tmp_path / "images", wanted)
    assert "/no/such/ca.pem, apt's CAInfo for 127.0.0.1" in found.problems[0]
    assert not found.is_only_away
    told_apt(monkeypatch, tmp_path, f'Acquire::https::CAInfo "{ca}";')
    assert fill(tmp_path / "images", wanted)[0].fetched == 1


def test_a_mirror_that_wants_a_login_is_told_as_such(server: Server, tmp_path: Path) -> None:
    server.files = {"/debian/pool/a.deb": lambda handler: answer(handler, 401, b"")}
    found, _ = fill(tmp_path, recipe(server.url, package("a", b"a")))
    assert "answers 401 Unauthorized to /debian/pool/a.deb; no login is sent, nor is that of apt's auth.conf" in found.problems[0]


def test_a_mirror_that_is_away_is_given_up_for_all(tmp_path: Path) -> None:
    wanted = recipe("http://127.0.0.1:1/debian", *(package(f"p{number}", b"x" * (number + 1)) for number in range(40)))
    found, _ = fill(tmp_path, wanted)
    assert len(found.missing) == 40
    assert len(found.problems) == package_archive.MOST_PROBLEMS + 1
    assert found.problems[0] == "p0=1.0-1: 127.0.0.1:1 does not answer: Connection refused"
    assert found.is_only_away


def test_what_a_mirror_dropped_is_told_apart_from_one_that_is_away(server: Server, tmp_path: Path) -> None:
    dropped = package("dropped", b"b")
    away = recipe("http://127.0.0.1:1/debian", package("a", b"a"))
    gone = fill(tmp_path, recipe(server.url, dropped))[0]
    assert (gone.missing, gone.away, gone.is_only_away) == (("dropped=1.0-1",), 0, False)
    sources = (*away.sources, PackageRepository(url=server.url, suite="bookworm"))
    layers = (ResolvedLayer(name="base", packages=(*away.layers[0].packages, msgspec.structs.replace(dropped, source=1))),)
    both = fill(tmp_path, msgspec.structs.replace(away, sources=sources, layers=layers))[0]
    assert (both.away, both.is_only_away) == (1, False), "to try again would not bring the dropped one"


def test_bytes_that_changed_on_the_disk_are_fetched_again_or_told(server: Server, tmp_path: Path) -> None:
    server.files = {"/debian/pool/a.deb": b"good"}
    wanted = recipe(server.url, package("a", b"good"))
    fill(tmp_path, wanted)
    place = package_archive.path(tmp_path, wanted.layers[0].packages[0].sha256)
    place.write_bytes(b"baad")
    assert fill(tmp_path, wanted)[0].fetched == 1
    assert place.read_bytes() == b"good"
    place.write_bytes(b"baad")
    server.files = {}
    found, _ = fill(tmp_path, wanted)
    assert (found.wrong, found.missing, found.kept) == (("a=1.0-1",), (), 0)


@pytest.mark.parametrize("name", ["a_1%3a1.0-1+b1_amd64.deb", None])
def test_what_this_machine_has_already_is_not_fetched(server: Server, tmp_path: Path, name: str | None) -> None:
    seed, images = tmp_path / "seed", tmp_path / "images"
    one, other = package("a", b"data", version="1:1.0-1+b1"), package("b", b"more")
    place = seed / (name or f"{one.sha256[:2]}/{one.sha256}.deb")
    place.parent.mkdir(parents=True)
    place.write_bytes(b"data")
    (seed / "b_1.0-1_amd64.deb").write_bytes(b"evil")
    found, _ = fill(images, recipe(server.url, one, other), (tmp_path / "not there", seed))
    assert (found.fetched, found.missing) == (1, ("b=1.0-1",))
    assert package_archive.path(images, one.sha256).read_bytes() == b"data"


def test_what_a_kill_left_half_written_is_removed_and_what_is_being_written_is_not(server: Server, tmp_path: Path) -> None:
    incoming = tmp_path / package_archive.FOLDER / package_archive.INCOMING
    incoming.mkdir(parents=True)
    (incoming / "left").write_bytes(b"half")
    seen: list[bytes] = []

    def another_build_begins(handler: BaseHTTPRequestHandler) -> None:
        package_archive.fill(tmp_path, recipe("http://127.0.0.1:1"), lambda _: None)
        seen.extend(path.read_bytes() for path in incoming.iterdir())
        answer(handler, 200, b"a" * 100)

    server.files["/debian/pool/a.deb"] = another_build_begins
    assert fill(tmp_path, recipe(server.url, package("a", b"a" * 100)))[0].fetched == 1
    assert seen == [b""], "the file that is being written stays; the one that nobody holds is gone"
    assert list(incoming.iterdir()) == []


def test_builds_side_by_side_fill_one_archive(server: Server, tmp_path: Path) -> None:
    data = {f"p{number}": bytes([number]) * 5000 for number in range(12)}
    server.files = {f"/debian/pool/{name}.deb": content for name, content in data.items()}
    wanted = recipe(server.url, *(package(name, content) for name, content in data.items()))
    found: list[Archive] = []
    threads = [threading.Thread(target=lambda: found.append(fill(tmp_path, wanted)[0])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(one.kept + one.fetched, one.missing) for one in found] == [(12, ())] * 3
    assert len(list(tmp_path.rglob("*.deb"))) == 12
