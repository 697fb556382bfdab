"""The watch loop against servers that answer badly: how often it asks, what it says, and when it gives up."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.errors import Garbled, NotUnderstood, Refused
from tests.unit.served import served
from workflows.engines.argo.home import Home, NoHomeCluster, choose_home
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.argo.resource_watch import ObjectGone, ObjectState, ResourceWatch, RoundEnded, WatchPace

LIST = b'{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"x"}}]}'


class Server(ThreadingHTTPServer):
    """Answers each request with the next of `answers` (status, body); the last one again and again."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, bytes]] = [(200, LIST)]
        self.asked: list[str] = []
        self.before: Callable[[], None] = lambda: None
        """Called before each answer."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        server.before()
        status, body = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as running, served(running):
        yield running


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def write_access(server: Server, folder: Path, token: str = "t") -> Path:
    access = {"server": f"http://127.0.0.1:{server.server_address[1]}"}
    config = {
        "clusters": [{"name": "c", "cluster": access}],
        "users": [{"name": "c", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        "current-context": "c",
    }
    fresh = folder / "kubeconfig.new"
    fresh.write_text(yaml.safe_dump(config))
    return fresh.rename(folder / "kubeconfig")


def stream(server: Server, folder: Path, **pace: float) -> Iterator[Any]:
    home = Home(HomeAddress(kubeconfig=str(write_access(server, folder))))
    return ResourceWatch(
        home, "/things", "x", WatchPace(**{"round": 1.0, "first": 0.02, "most": 0.2, "credentials": 0.3, **pace})
    ).states()


def test_watches_that_end_at_once_are_no_storm(server: Server, tmp_path: Path) -> None:
    server.answers = [(200, LIST), (200, b"")]
    states, end = stream(server, tmp_path), time.monotonic() + 1.0
    while time.monotonic() < end or len(server.asked) < 4:
        next(states)
    assert 4 <= len(server.asked) <= 12  # waits double: 0.02, 0.04, 0.08, 0.16, 0.2, 0.2, …
    assert all("resourceVersion=5" in path for path in server.asked[1:])


def test_events_bookmarks_and_the_end(server: Server, tmp_path: Path) -> None:
    lines = (
        b'{"type":"MODIFIED","object":{"metadata":{"name":"x","resourceVersion":"6"}}}\n'
        b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n'
        b'{"type":"DELETED","object":{"metadata":{"name":"x","resourceVersion":"9"}}}\n'
        b'{"type":"MODIFIED","object":{"met'
    )
    server.answers = [(200, LIST), (200, lines), (200, b"")]
    states = stream(server, tmp_path)
    seen = [next(states) for _ in range(5)]
    assert [type(one) for one in seen] == [ObjectState, ObjectState, ObjectGone, RoundEnded, RoundEnded]
    assert "resourceVersion=9" in server.asked[2]  # from where the bookmark said, not from the half line


def test_an_expired_revision_is_listed_anew(server: Server, tmp_path: Path) -> None:
    expired = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n'
    server.answers = [(200, LIST), (200, expired), (200, LIST), (410, b"{}"), (200, LIST), (200, b"")]
    states = stream(server, tmp_path)
    seen = [next(states) for _ in range(5)]
    assert [type(one) for one in seen] == [ObjectState, RoundEnded, ObjectState, RoundEnded, ObjectState]
    assert [one.trouble for one in seen if isinstance(one, RoundEnded)] == ["", ""]


def test_a_page_in_place_of_json_is_trouble_that_passes(server: Server, tmp_path: Path) -> None:
    page = b"<html>\nlog in again\n</html>\n"
    server.answers = [(200, page), (200, LIST), (200, page), (200, b"")]
    states = stream(server, tmp_path)
    seen = [next(states) for _ in range(4)]
    assert [type(one) for one in seen] == [RoundEnded, ObjectState, RoundEnded, RoundEnded]
    for place, what in ((0, "GET /things"), (2, "watch of /things")):
        told = seen[place]
        assert isinstance(told, RoundEnded)
        assert told.trouble.startswith(f"{what}: the answer is no JSON")


def test_a_page_in_place_of_a_workflow_may_pass(server: Server, tmp_path: Path) -> None:
    home = Home(HomeAddress(kubeconfig=str(write_access(server, tmp_path))))
    server.answers = [(200, b"<html>log in</html>")]
    with pytest.raises(Garbled, match="reading a Workflow: the answer is no JSON"):
        home.workflow("one")
    server.answers = [(200, b'{"spec": 3}')]
    with pytest.raises(NotUnderstood, match="reading a Workflow: this object has a form"):
        home.workflow("one")


def test_credentials_that_stay_refused_end_it(server: Server, tmp_path: Path) -> None:
    server.answers = [(200, LIST), (401, b"{}")]
    states = stream(server, tmp_path)
    with pytest.raises(Refused):
        list(states)
    assert len(server.asked) < 15


def test_renewed_credentials_that_stay_refused_end_it(server: Server, tmp_path: Path) -> None:
    """As with a plug-in that gives another token each time."""
    tokens = map(str, itertools.count())
    server.answers = [(200, LIST), (401, b"{}")]

    def renew() -> None:
        write_access(server, tmp_path, next(tokens))

    server.before = renew
    seen: list[Any] = []
    with pytest.raises(Refused):
        seen.extend(stream(server, tmp_path, credentials=1.0))
    troubles = [one.trouble for one in seen if isinstance(one, RoundEnded)]
    assert troubles[0] == ""
    assert len(troubles) > 2
    assert all("401" in trouble for trouble in troubles[1:])
    assert len(server.asked) < 15


def test_credentials_that_expire_now_and_then_are_nothing(server: Server, tmp_path: Path) -> None:
    """Each time the renewed ones are taken: silent, however long ago the first expired."""
    tokens = map(str, itertools.count())
    server.answers = [(200, LIST), *[(401, b"{}"), (200, b"")] * 3, (200, b"")]

    def renew() -> None:
        write_access(server, tmp_path, next(tokens))

    server.before = renew
    states = stream(server, tmp_path, credentials=0.05)
    while len(server.answers) > 1:
        seen = next(states)
        assert not isinstance(seen, RoundEnded) or seen.trouble == ""


def test_no_home_cluster_is_named() -> None:
    with pytest.raises(NoHomeCluster, match="no kubeconfig of the home cluster"):
        choose_home("", "", "", {})
    assert choose_home("", "", "", {"KUBECONFIG": "/a:/b"}) == HomeAddress(kubeconfig="/a", namespace="bringup")


def test_of_several_kubeconfigs_those_that_are_there(tmp_path: Path) -> None:
    """Never one that KUBECONFIG does not name, as the usual one."""
    usual, other = tmp_path / ".kube/config", tmp_path / "other"
    usual.parent.mkdir()
    for file in (usual, other):
        file.write_text("")
    home = {"HOME": str(tmp_path)}
    for listed in (f":{other}", f"{other}:", f"{tmp_path}/gone:{other}"):
        assert choose_home("", "", "", home | {"KUBECONFIG": listed}).files == (other,)
    both = choose_home("", "", "", home | {"KUBECONFIG": f"{other}:{tmp_path}/gone:{usual}"})
    assert both.files == (other, usual)
    assert choose_home(both.kubeconfig, "", "", {}) == both, "what a hint names finds the same"
    assert choose_home("", "", "", home | {"KUBECONFIG": f"{tmp_path}/gone"}).kubeconfig == f"{tmp_path}/gone"
    assert choose_home("", "", "", home | {"KUBECONFIG": ""}).kubeconfig == str(usual)
    with pytest.raises(NoHomeCluster, match="KUBECONFIG is ':', which names no file"):
        choose_home("", "", "", home | {"KUBECONFIG": ":"})
