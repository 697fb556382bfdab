"""Announcements of waiting approvals: once, by command or webhook, never in the run's way, never saying the URL."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from workflows import examples
from workflows.engines import announce
from workflows.engines.inputs import SecretMissing
from workflows.engines.local.result import NodeNews, NodeStatus
from workflows.spec import load


def opened(name: str = "approve-validation") -> NodeNews:
    status = NodeStatus(f"r.{name}", name, "Suspend", "Running", "", name, "r", {}, {}, None, 1.8e9, None, [])
    return NodeNews(status, "")


def announcer(folder: Path, channel: announce.Channel, said: list[str]) -> announce.Announcer:
    told = {"validation": (channel, ("ada",))}
    return announce.Announcer("r", "h200", told, announce.local_claim(folder / "claims"), said.append)


@pytest.fixture
def webhook() -> Iterator[Any]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.server.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))  # type: ignore[attr-defined]
            self.send_response(500 if "broken" in self.path else 204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.got = []  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_command_hears_of_it_once(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):  # as if followed twice
        one = announcer(tmp_path, announce.Channel(command=("tee", "-a", str(tmp_path / "heard"))), said)
        one.observe(opened())
        one.observe(opened("approve-unknown"))
        one.close()
    heard = json.loads((tmp_path / "heard").read_text())
    assert (heard["run"], heard["stage"], heard["approvers"], heard["how"]) == (
        "r",
        "validation",
        ["ada"],
        "bringup approve r --as NAME",
    )
    assert (
        heard["text"]
        == "h200: run r waits for an approval before validation since 2027-01-15T08:00:00Z: bringup approve r --as NAME"
    )
    assert said == []


def test_a_webhook_hears_of_it_and_its_url_is_never_said(tmp_path: Path, webhook: Any) -> None:
    said: list[str] = []
    url = f"http://127.0.0.1:{webhook.server_address[1]}"
    for number, path in enumerate(("ok-canary", "broken-canary")):
        one = announcer(tmp_path / str(number), announce.Channel(webhook=f"{url}/{path}"), said)
        one.observe(opened())
        one.close()
    gone = announcer(tmp_path / "3", announce.Channel(webhook="http://127.0.0.1:1/canary"), said)
    gone.observe(opened())
    gone.close()
    assert [one["run"] for one in webhook.got] == ["r", "r"]
    assert said == [
        "warning: the approval before validation could not be announced: the webhook answered 500",
        "warning: the approval before validation could not be announced: the webhook does not answer (NewConnectionError)",
    ]
    assert "canary" not in repr(announce.Channel(webhook="https://canary"))


@pytest.mark.parametrize(
    ("command", "why"), [(("sh", "-c", "echo no >&2; exit 3"), "sh ended with 3: no"), (("/nowhere/notify",), "is not installed")]
)
def test_what_goes_wrong_is_a_warning(tmp_path: Path, command: tuple[str, ...], why: str) -> None:
    said: list[str] = []
    one = announcer(tmp_path, announce.Channel(command=command), said)
    one.observe(opened())
    one.close()
    (sentence,) = said
    assert why in sentence


def test_channels_come_from_the_spec(tmp_path: Path) -> None:
    def spec(announcement: str) -> Any:
        text = examples.path("single-node").read_text()
        path = tmp_path / "cluster.yaml"
        path.write_text(f"{text}approvals:\n  - before: validation\n    approvers: [ada]\n    announce: {announcement}\n")
        return load(path)

    (tmp_path / "url").write_text("https://chat.example.org/canary\n")
    found = announce.channels(spec("{webhook: {file: url}}"), tmp_path, {})
    assert found == {"validation": (announce.Channel(webhook="https://chat.example.org/canary"), ("ada",))}
    assert announce.channels(spec("{command: [notify, me]}"), tmp_path, {})["validation"][0].command == ("notify", "me")
    named = spec("{webhook: {secret: {name: chat, key: url}}}")
    read = announce.channels(named, tmp_path, {}, lambda name, key: f"https://{name}/{key}".encode())
    assert read["validation"][0].webhook == "https://chat/url"
    with pytest.raises(SecretMissing):
        announce.channels(spec("{webhook: {env: NO_SUCH_URL}}"), tmp_path, {})
