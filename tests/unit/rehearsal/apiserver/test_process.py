"""The server as a process of its own: readiness, permissions, a clean end."""

import contextlib
import gc
import signal
import socket
import stat
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import urllib3
from kubernetes import client, config

from tests.unit.rehearsal.apiserver.cluster_client import of_kubeconfig, until
from workflows.rehearsal.apiserver import RunningServer, serve_in_thread

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ROOT = Path(__file__).parents[4]
COMMAND = [sys.executable, "-m", "workflows.rehearsal.apiserver"]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_kubeconfig_appears_when_it_listens(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    file = tmp_path / "kubeconfig"
    process = subprocess.Popen([*COMMAND, "--kubeconfig-out", str(file), "--kubernetes-version", "v1.34.4+rke2r1"], cwd=ROOT)
    started.append(process)
    until(file.exists)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["kubeconfig"]
    cluster = of_kubeconfig(file.read_text(), real=False)
    assert cluster.get("/version").body["gitVersion"] == "v1.34.4+rke2r1"
    events = cluster.watch("/api/v1/namespaces", seconds=60)
    assert next(events)["type"] == "ADDED"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    cluster.close()


def test_it_ends_with_its_parent(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    parent = subprocess.Popen(["sleep", "60"])
    started.append(parent)
    file = tmp_path / "kubeconfig"
    process = subprocess.Popen([*COMMAND, "--kubeconfig-out", str(file), "--with-parent", str(parent.pid)], cwd=ROOT)
    started.append(process)
    until(file.exists)
    assert process.poll() is None
    parent.kill()
    parent.wait()
    assert process.wait(timeout=60) == 0


def test_address_beyond_loopback_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--kubeconfig-out", str(tmp_path / "k"), "--host", "0.0.0.0"], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"invalid choice" in done.stderr


def test_two_servers_in_threads_are_apart_and_stop() -> None:
    with serve_in_thread() as one, serve_in_thread() as two:
        assert one.token != two.token
        assert of_kubeconfig(one.kubeconfig, real=False).get("/readyz").status == 200
    one.stop()
    with serve_in_thread(port=int(one.url.rpartition(":")[2])) as again:
        assert again.url == one.url
        assert of_kubeconfig(again.kubeconfig, real=False).get("/readyz").status == 200


def _open_after_stop(disturb: Callable[[RunningServer, list[socket.socket]], Callable[[], None]]) -> list[str]:
    """Start a server, disturb it with clients, stop it, and return what Python says about connections that stayed open."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        server = serve_in_thread()
        clients: list[socket.socket] = []
        settle = disturb(server, clients)
        server.stop()
        settle()
        del server
        gc.collect()
    for one in clients:
        one.close()
    return [str(one.message) for one in seen if "transport" in str(one.message)]


def _connect(server: RunningServer) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)))


def test_a_stopped_server_closes_connections_that_came_last() -> None:
    def connect_on_and_on(server: RunningServer, clients: list[socket.socket]) -> Callable[[], None]:
        connected, ended = threading.Event(), threading.Event()

        def connect() -> None:
            while not ended.is_set():
                with contextlib.suppress(OSError):
                    clients.append(_connect(server))
                    connected.set()

        thread = threading.Thread(target=connect)
        thread.start()
        connected.wait()

        def settle() -> None:
            ended.set()
            thread.join()

        return settle

    assert [_open_after_stop(connect_on_and_on) for _ in range(5)] == [[]] * 5


def test_a_stopped_server_drops_a_client_that_does_not_read() -> None:
    def ask_without_reading(server: RunningServer, clients: list[socket.socket]) -> Callable[[], None]:
        cluster = of_kubeconfig(server.kubeconfig, real=False)
        for number in range(10):  # more than the buffers of two sockets hold
            config_map = {"metadata": {"name": f"big-{number}"}, "data": {"text": "x" * 900_000}}
            assert cluster.post(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap"} | config_map).status == 201
        cluster.close()
        clients.append(_connect(server))
        clients[0].sendall(f"GET {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode())
        assert clients[0].recv(15) == b"HTTP/1.1 200 OK"
        return lambda: None

    assert _open_after_stop(ask_without_reading) == []


def test_over_tls_the_kubeconfig_carries_the_authority(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    file = tmp_path / "kubeconfig"
    started.append(subprocess.Popen([*COMMAND, "--kubeconfig-out", str(file), "--tls"], cwd=ROOT))
    until(file.exists)
    made = client.Configuration()
    config.load_kube_config(str(file), client_configuration=made)
    assert made.host.startswith("https://127.0.0.1:")
    assert {one.metadata.name for one in client.CoreV1Api(client.ApiClient(made)).list_namespace().items} >= {
        "default",
        "kube-system",
    }
    made.ssl_ca_cert = None
    with pytest.raises(urllib3.exceptions.MaxRetryError, match="CERTIFICATE_VERIFY_FAILED"):
        client.CoreV1Api(client.ApiClient(made)).list_namespace()
