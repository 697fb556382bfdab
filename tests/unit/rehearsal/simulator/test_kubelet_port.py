"""The kubelets' port that a real API server asks for logs: what it answers, what nodes say of it, and what a snapshot keeps."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from steps.clients.kube.kubeconfig import Access
from steps.clients.kube.pod_exec import CommandStream
from steps.errors import StepError
from tests.unit.rehearsal.simulator.harness import Make
from workflows.rehearsal.simulator.api.api_kinds import NODES
from workflows.rehearsal.simulator.machines.kubelet_port import KubeletPort, own_address
from workflows.rehearsal.simulator.machines.played_commands import CommandRequest, PlayedOutput
from workflows.rehearsal.simulator.simulation import SimulatorState

POD = {"metadata": {"namespace": "check", "name": "one", "uid": "a"}}


@pytest.fixture
def port() -> Iterator[KubeletPort]:
    served = KubeletPort("127.0.0.1")
    yield served
    served.close()


def ask(port: KubeletPort, path: str) -> tuple[int, str]:
    number = port.status["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # as an API server without a kubelet CA
    connection = http.client.HTTPSConnection("127.0.0.1", number, timeout=10, context=context)
    connection.request("GET", path)
    with connection.getresponse() as answer:
        return answer.status, answer.read().decode()


def test_a_log_is_served_as_a_kubelet_serves_it(port: KubeletPort) -> None:
    port.write(POD, "main", "first\nsecond\n")
    port.write(POD, "main", "third\n")
    assert ask(port, "/containerLogs/check/one/main") == (200, "first\nsecond\nthird\n")
    assert ask(port, "/containerLogs/check/one/main?tailLines=2") == (200, "second\nthird\n")
    assert ask(port, "/containerLogs/check/one/main?tailLines=0&follow=true") == (200, "")
    assert ask(port, "/containerLogs/check/one/main?limitBytes=3") == (200, "fir")
    assert ask(port, "/containerLogs/check/one/other")[0] == 400
    assert ask(port, "/pods")[0] == 404


def test_a_pod_of_the_same_name_has_a_log_of_its_own(port: KubeletPort) -> None:
    port.write(POD, "main", "of the first\n")
    port.write({"metadata": POD["metadata"] | {"uid": "b"}}, "main", "of the second\n")
    assert ask(port, "/containerLogs/check/one/main") == (200, "of the second\n")


def command(port: KubeletPort, path: str) -> CommandStream:
    """Start a command as an API server does that passes on a WebSocket of version 4."""
    number = port.status["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    return CommandStream(Access(server=f"https://127.0.0.1:{number}", insecure=True), path, "test")


def test_a_command_is_played_as_a_kubelet_runs_it(port: KubeletPort) -> None:
    requests: list[CommandRequest] = []
    long = "a line\n" * 20_000

    def play(request: CommandRequest) -> PlayedOutput:
        requests.append(request)
        if request.pod == "gone":
            return PlayedOutput(refused="container not found")
        return PlayedOutput(stdout=long, stderr="bad\n", code=3)

    port.play_by(play)
    output = command(port, "/exec/check/one/main?command=env&command=CHECK%3Dx&output=1&error=1").read(10)
    assert (output.stdout, output.stderr, output.code) == (long, "bad\n", 3)
    assert requests == [CommandRequest(namespace="check", pod="one", container="main", command=("env", "CHECK=x"))]
    with pytest.raises(StepError, match="container not found"):
        command(port, "/exec/check/gone/main?command=env")


def test_a_command_is_refused_while_nobody_plays_it(port: KubeletPort) -> None:
    with pytest.raises(StepError, match="400"):
        command(port, "/exec/check/one/main?command=env")


def test_nodes_name_it_and_snapshots_keep_its_logs(make: Make, port: KubeletPort) -> None:
    user = make(agents=1)
    user.world.kubelets = port
    user.bring_up()
    node: Any = user.api.get(NODES, "gpu000")
    assert {key: node["status"][key] for key in port.status} == port.status
    user.world.log(POD, "main", "kept\n")
    state = msgspec.json.encode(user.simulator.state())
    user.world.log(POD, "main", "later\n")
    user.simulator.restore(msgspec.json.decode(state, type=SimulatorState))
    assert ask(port, "/containerLogs/check/one/main") == (200, "kept\n")


def test_an_api_server_that_does_not_get_through_says_so_and_keeps_nothing(make: Make, port: KubeletPort) -> None:
    """The emulated one never asks a kubelet."""
    user = make(agents=0)
    assert port.why_unreachable(user.api)
    assert not user.api.list(NODES)
    assert not port.logs


def test_the_address_is_the_one_on_the_way_to_the_server() -> None:
    assert own_address("https://127.0.0.1:6443")
    with pytest.raises(socket.gaierror):
        own_address("https://no-such-host.invalid:6443")
