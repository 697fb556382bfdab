"""Commands in pods over WebSockets: the client of steps against the emulated server, behind which a stand-in plays the kubelet."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3

from steps.clients.kube import pod_exec
from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Kube
from steps.errors import NotUnderstood, Refused, Unreachable
from workflows.rehearsal.apiserver import RunningServer, serve_in_thread

TOKEN = "of-the-stand-in"


class KubeletStandIn(ThreadingHTTPServer):
    """A program that answers each command with what the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.played: dict[str, Any] = {}
        self.asked: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: KubeletStandIn

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
        self.server.asked.append(body)
        self.send_response(200 if allowed else 401)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.played).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@pytest.fixture
def kubelet() -> Iterator[KubeletStandIn]:
    with KubeletStandIn() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def server(kubelet: KubeletStandIn) -> Iterator[RunningServer]:
    with serve_in_thread() as running:
        send(running, "PUT", "/emulation/kubelet", {"url": kubelet.url, "token": TOKEN})
        for path, kind in (("/api/v1/namespaces", "Namespace"), ("/api/v1/namespaces/slurm/pods", "Pod")):
            spec = (
                {"spec": {"containers": [{"name": "sshd", "image": "i"}, {"name": "munge", "image": "i"}]}} if kind == "Pod" else {}
            )
            name = "login-0" if kind == "Pod" else "slurm"
            send(running, "POST", path, {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **spec})
        yield running


def send(server: RunningServer, method: str, path: str, body: Any) -> None:
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    answer = urllib3.request(method, server.url + path, body=json.dumps(body), headers=headers)
    assert answer.status < 300, answer.data


def client(server: RunningServer, folder: Path, token: str = "") -> Kube:
    file = folder / "kubeconfig"
    file.write_text(server.kubeconfig.replace(server.token, token) if token else server.kubeconfig)
    return Kube.from_file(file, "test")


def execute(kube: Kube, *command: str, pod: str = "login-0", container: str = "sshd") -> pod_exec.CommandOutput:
    return kube.execute("slurm", pod, container, command, 20)


def test_output_and_words_come_through(server: RunningServer, kubelet: KubeletStandIn, tmp_path: Path) -> None:
    kubelet.played = {"stdout": "idle|gpu:h200:8|n[1-2]\n" * 20_000 + "ü", "stderr": "slow\n"}
    output = execute(client(server, tmp_path), "env", "KEY=a b&c", "sh", "-c", "echo $KEY")
    assert (output.stdout, output.stderr, output.code, output.cut) == (kubelet.played["stdout"], "slow\n", 0, False)
    words = ["env", "KEY=a b&c", "sh", "-c", "echo $KEY"]
    assert kubelet.asked == [{"namespace": "slurm", "pod": "login-0", "container": "sshd", "command": words}]


def test_a_long_script_is_one_word(server: RunningServer, kubelet: KubeletStandIn, tmp_path: Path) -> None:
    script = "echo " + "x" * 30_000
    assert execute(client(server, tmp_path), "sh", "-c", script).code == 0
    assert kubelet.asked[0]["command"][2] == script


def test_the_exit_code_is_that_of_the_command(server: RunningServer, kubelet: KubeletStandIn, tmp_path: Path) -> None:
    kubelet.played = {"stdout": "half", "code": 3}
    output = execute(client(server, tmp_path), "false")
    assert (output.stdout, output.code) == ("half", 3)


@pytest.mark.parametrize(
    ("error", "changes", "played"),
    [
        (ApiError, {"pod": "gone"}, {}),
        (ApiError, {"container": "none"}, {}),
        (Unreachable, {}, {"refused": "unable to upgrade connection: container not found"}),
    ],
    ids=["no such pod", "no such container", "the kubelet refuses"],
)
def test_errors_are_typed(
    server: RunningServer,
    kubelet: KubeletStandIn,
    tmp_path: Path,
    error: type[Exception],
    changes: dict[str, str],
    played: dict[str, Any],
) -> None:
    kubelet.played = played
    with pytest.raises(error, match=played.get("refused", "exec")):
        execute(client(server, tmp_path), "true", **changes)


def test_a_wrong_token_is_refused(server: RunningServer, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="401"):
        execute(client(server, tmp_path, "wrong"), "true")


def test_a_server_that_is_away_is_unreachable(server: RunningServer, tmp_path: Path) -> None:
    kube = client(server, tmp_path)
    server.stop()
    with pytest.raises(Unreachable):
        execute(kube, "true")


@pytest.mark.parametrize("ended", [b"no JSON", b'{"status":"Failure","message":"exec: \\"sinfo\\": not found"}', b"[1]"])
def test_an_end_without_exit_code_is_not_understood(ended: bytes) -> None:
    with pytest.raises(NotUnderstood):
        pod_exec.exit_code(ended)
