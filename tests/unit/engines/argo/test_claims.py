"""A claim on a Workflow that changes too fast: nobody announces the approval, and who follows says so."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.unit.served import served
from workflows.engines import approval_announcer
from workflows.engines.argo import approval_patches
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.local.result import NodeNews, RunNodeStatus
from workflows.rehearsal.apiserver import serve_in_thread
from workflows.rehearsal.apiserver.emulated_server import kubeconfig_text

WORKFLOW = {"metadata": {"name": "r", "resourceVersion": "1"}, "spec": {}, "status": {}}


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[tuple[HomeAddress, list[str]]]:
    """A home cluster with one Workflow that somebody else always wrote first, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200, WORKFLOW)

        def do_PATCH(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.answer(409, {"kind": "Status", "reason": "Conflict", "message": "the object has been modified"})

        def answer(self, status: int, body: dict[str, Any]) -> None:
            asked.append(self.command)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        file = tmp_path / "kubeconfig"
        file.write_text(kubeconfig_text(f"http://127.0.0.1:{server.server_address[1]}", "t"))
        with served(server):
            yield HomeAddress(kubeconfig=str(file)), asked


def test_an_announcement_that_cannot_be_claimed_is_a_warning(restless: tuple[HomeAddress, list[str]], tmp_path: Path) -> None:
    where, asked = restless
    said: list[str] = []
    heard = tmp_path / "heard"
    told = {"validation": approval_announcer.AnnounceCommand(cluster="h200", approvers=("ada",), command=("tee", str(heard)))}
    announcer = approval_announcer.Announcer("r", told, approval_patches.claim(where, "r"), lambda _node: ("", "how"), said.append)
    node = "approve-validation"
    announcer.observe(
        NodeNews(RunNodeStatus(f"r.{node}", node, "Suspend", "Running", "", node, "r", {}, {}, None, 1.8e9, None, []), "")
    )
    announcer.close()
    assert asked == ["GET", "PATCH"] * approval_patches.TRIES
    (sentence,) = said
    assert sentence.startswith("warning: the approval before validation could not be announced: Workflow r changed at each of 20")
    assert not heard.exists()


def test_nobody_announces_for_a_workflow_that_is_gone(tmp_path: Path) -> None:
    with serve_in_thread() as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig)
        assert not approval_patches.claim(HomeAddress(kubeconfig=str(tmp_path / "kubeconfig")), "r")("approve-validation")
