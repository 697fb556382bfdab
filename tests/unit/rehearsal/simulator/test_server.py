"""The control API over HTTP, and the simulator as a process of its own."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import urllib3

from steps.clients.ansible import playing
from steps.clients.clock import SimulatedClock
from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from steps.contract.host_play import HostStatus, PlayHost, PlayRequest, PlayStatus
from tests.unit.rehearsal.simulator.harness import START, Make, hosts
from workflows.rehearsal.apiserver import RunningServer, serve_in_thread
from workflows.rehearsal.simulator.api.api_client import Api
from workflows.rehearsal.simulator.control_server import ControlApi, ControlServer


class Client:
    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.http = urllib3.PoolManager(1, retries=False, timeout=30)

    def call(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        data = None if body is None else json.dumps(body).encode()
        answer = self.http.request(method, self.url + path, body=data, headers=headers)
        lines = answer.data.splitlines()
        return answer.status, [json.loads(line) for line in lines] if path == "/hosts/play" else json.loads(answer.data)

    def close(self) -> None:
        self.http.clear()


@pytest.fixture
def client(make: Make) -> Iterator[Client]:
    control = ControlApi(make(agents=2).simulator)
    server = ControlServer(control, "secret")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    made = Client(server.url, "secret")
    yield made
    made.close()
    server.shutdown()
    thread.join()
    server.server_close()


def test_without_the_token_nothing_is_answered(client: Client) -> None:
    assert client.call("GET", "/clock", token="wrong")[0] == 401
    assert client.call("GET", "/clock", token="")[0] == 401


def test_the_clock_advances_only_when_asked(client: Client) -> None:
    assert client.call("GET", "/clock") == (200, {"now": START})
    assert client.call("POST", "/clock/sleep", {"seconds": 90, "deadline": None}) == (200, {"now": START + 90})
    assert client.call("GET", "/clock") == (200, {"now": START + 90})


def test_the_steps_clock_client_understands_it(client: Client) -> None:
    clock = SimulatedClock(client.url, client.token)
    clock.pause(15.0, START + 1200)
    assert clock.now() == START + 15
    client.call("POST", "/clock/sleep", {"seconds": 5})
    assert clock.now() == START + 20
    clock._http.clear()  # its connection, which only the end of its process would close


def test_a_play_is_answered_as_runner_events(client: Client) -> None:
    targets = [{"name": name, "address": "10.1.0.1"} for name in ("cp00", "elsewhere")]
    status, events = client.call("POST", "/hosts/play", {"playbook": "rke2_server", "hosts": targets, "variables": {}})
    assert status == 200
    assert events[0]["event"] == "playbook_on_start"
    assert [event["event_data"]["host"] for event in events if event["event"] == "runner_on_unreachable"] == ["elsewhere"]
    facts = [event["event_data"]["res"]["observation"] for event in events if "observation" in event["event_data"].get("res", {})]
    assert [fact["service"] for fact in facts] == ["rke2-server"]
    assert "kind: Config" in facts[0]["kubeconfig"]
    stats = events[-1]["event_data"]
    assert (stats["ok"], stats["changed"], stats["dark"]) == ({"cp00": 5}, {"cp00": 3}, {"elsewhere": 1})
    again = client.call("POST", "/hosts/play", {"playbook": "rke2_server", "hosts": targets[:1], "variables": {}})[1]
    assert again[-1]["event_data"]["changed"] == {}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/hosts/play", {"playbook": "no_such", "hosts": []}, 400),
        ("POST", "/clock/sleep", {"second": 1}, 400),
        ("PUT", "/faults", [{"name": "dns_brokn"}], 400),
        ("PUT", "/faults", [{"name": "node_not_ready", "node": "nobody"}], 400),
        ("GET", "/nothing", None, 404),
    ],
)
def test_bad_requests_say_what_is_wrong(client: Client, method: str, path: str, body: Any, status: int) -> None:
    code, answer = client.call(method, path, body) if path != "/hosts/play" else _flat(client.call(method, path, body))
    assert code == status
    assert isinstance(answer, str)
    if path == "/faults" and body[0]["name"] == "dns_brokn":
        assert "did you mean dns_broken" in answer


def _flat(answer: tuple[int, Any]) -> tuple[int, Any]:
    return answer[0], answer[1][0]


def test_faults_are_put_as_a_whole_and_get_their_default_victims(client: Client) -> None:
    assert client.call("PUT", "/faults", [{"name": "dns_broken"}, {"name": "node_not_ready", "node": "gpu001"}])[1] == [
        {"name": "dns_broken", "node": ""},
        {"name": "node_not_ready", "node": "gpu001"},
    ]
    assert client.call("PUT", "/faults", [{"name": "etcd_member_missing"}])[1] == [{"name": "etcd_member_missing", "node": "cp00"}]
    assert client.call("PUT", "/faults", [])[1] == []


def test_state_is_taken_and_put_back(client: Client) -> None:
    client.call("POST", "/hosts/play", {"playbook": "rke2_server", "hosts": [{"name": "cp00", "address": "x"}]})
    _, state = client.call("GET", "/state")
    assert state["hosts"]["cp00"]["rke2"]["server"] is True
    client.call("POST", "/clock/sleep", {"seconds": 500})
    assert client.call("PUT", "/state", state) == (200, {"now": START})


def test_the_process_writes_a_private_control_file_and_ends_with_its_parent(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(server.kubeconfig)
    (tmp_path / "hosts.json").write_bytes(msgspec.json.encode({"hosts": hosts(1), "accelerator": "h100"}))
    out = tmp_path / "control.json"
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as parent:
        command: list[str | Path] = [sys.executable, "-m", "workflows.rehearsal.simulator", "--kubeconfig", tmp_path / "kubeconfig"]
        command += [
            "--hosts",
            tmp_path / "hosts.json",
            "--control-out",
            out,
            "--with-parent",
            str(parent.pid),
            "--fault",
            "dns_broken",
        ]
        simulator = subprocess.Popen(command)
        try:
            client = _wait_for(simulator, out)
            assert stat.S_IMODE(os.stat(out).st_mode) == 0o600
            assert client.call("GET", "/healthz") == (200, "ok")
            assert client.call("GET", "/faults")[1] == [{"name": "dns_broken", "node": ""}]
            client.close()
            assert parent.stdin is not None
            parent.stdin.close()
            parent.wait()
            assert simulator.wait(timeout=60) == 0
        finally:
            simulator.kill()
            simulator.wait()


@pytest.mark.parametrize("wrong", [("--fault", "dns_brokn"), ("--roles-off", "kubelets")])
def test_the_process_refuses_wrong_names_with_one_line(server: RunningServer, tmp_path: Path, wrong: tuple[str, str]) -> None:
    (tmp_path / "kubeconfig").write_text(server.kubeconfig)
    (tmp_path / "hosts.json").write_bytes(msgspec.json.encode(hosts(1)))
    command = [sys.executable, "-m", "workflows.rehearsal.simulator", "--kubeconfig", str(tmp_path / "kubeconfig"), *wrong]
    command += ["--hosts", str(tmp_path / "hosts.json"), "--control-out", str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 64
    assert len(ended.stderr.splitlines()) == 1


def test_an_api_server_that_is_gone_is_told(make: Make, server: RunningServer) -> None:
    control = ControlApi(make().simulator)
    control.routes()["POST", "/clock/sleep"](b'{"seconds": 1}')
    listening = ControlServer(control, "secret")
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.stop()
    client = Client(listening.url, "secret")
    status, text = client.call("POST", "/clock/sleep", {"seconds": 1})
    assert status == 500
    assert "MaxRetryError" in text
    client.close()
    listening.shutdown()
    thread.join()
    listening.server_close()


def test_the_steps_ansible_client_reads_the_play(client: Client) -> None:
    request = PlayRequest(playbook="rke2_server", hosts=(PlayHost(name="cp00", address="10.1.0.1"),))
    result = playing.play(request, environ={SIMULATOR: client.url, SIMULATOR_TOKEN: client.token})
    assert result.status is PlayStatus.OK
    (outcome,) = result.hosts
    assert (outcome.status, outcome.changed) == (HostStatus.OK, 3)
    assert outcome.facts["service"] == "rke2-server"


def _wait_for(process: subprocess.Popen[bytes], out: Path) -> Client:
    gate = threading.Event()
    while not out.exists():
        assert process.poll() is None, "the simulator ended before it was ready"
        gate.wait(0.02)
    found = json.loads(out.read_text())
    return Client(found["url"], found["token"])


def test_in_real_time_an_api_server_that_is_away_does_not_end_it(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The world goes on where it was, as soon as the server answers."""
    user = make(agents=1)
    control = ControlApi(user.simulator, speed=60.0)
    control.tick(1.0)
    with serve_in_thread() as other:  # gone before it is asked
        away = tmp_path / "away"
        away.write_text(other.kubeconfig)
    user.world.api, back = Api.from_kubeconfig(away), user.world.api
    control.tick(1.0)
    assert "tick" in caplog.text
    user.world.api.close()
    user.world.api = back
    before = user.world.now
    control.tick(1.0)
    assert user.world.now >= before + 60
