"""Servers that send a byte now and then, or a message without an end, hold no client up: webhook, exec, mirror, Git, watch."""

import base64
import hashlib
import io
import socket
import socketserver
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import urllib3

from steps.clients import bounded_answers, webhook
from steps.clients.bounded_answers import AnswerTooLarge
from steps.clients.kube import pod_exec
from steps.clients.kube.kubeconfig import Access
from steps.errors import Unreachable
from steps.nodeimage.contract.resolved_recipe import Package
from steps.nodeimage.layer import mirror_download
from tests.unit.served import served

_TOKEN = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Constant of the WebSocket protocol (RFC 6455)."""
Talk = Callable[[socket.socket, str], None]


@contextmanager
def talking(talk: Talk) -> Iterator[str]:
    """Give the address of a server that talks to each client, as a function of the connection and the request's head."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head:
                head += self.request.recv(65536)
            with suppress(OSError):
                talk(self.request, head.decode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        with served(server):
            yield f"127.0.0.1:{server.server_address[1]}"


def drip(connection: socket.socket) -> None:
    """Send a byte whenever the client has waited a while; end when it has closed the connection."""
    connection.settimeout(0.02)
    while True:
        connection.sendall(b"1")
        with suppress(TimeoutError):
            if not connection.recv(1):
                return


def head_that_drips(connection: socket.socket, _: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    drip(connection)


def body_that_drips(connection: socket.socket, _: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    drip(connection)


def upgraded(connection: socket.socket, head: str, length: int) -> None:
    """Accept a WebSocket, and begin a binary message of this length."""
    key = next(line.split(": ")[1] for line in head.split("\r\n") if line.lower().startswith("sec-websocket-key"))
    accept = base64.b64encode(hashlib.sha1((key + _TOKEN).encode()).digest()).decode()
    answer = f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n"
    connection.sendall(f"HTTP/1.1 101 Switching Protocols\r\n{answer}Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n".encode())
    connection.sendall(b"\x82\x7f" + struct.pack(">Q", length))


def message_that_drips(connection: socket.socket, head: str) -> None:
    upgraded(connection, head, 1 << 20)
    drip(connection)


def message_without_an_end(connection: socket.socket, head: str) -> None:
    upgraded(connection, head, 1 << 40)
    while True:
        connection.sendall(bytes(1 << 20))


def execute(address: str, seconds: float) -> pod_exec.CommandOutput:
    access = Access(server=f"http://{address}")
    return pod_exec.run(access, "slurm", "login", "login", ["sinfo"], seconds=seconds, agent="test")


@pytest.mark.parametrize("talk", [head_that_drips, message_that_drips])
def test_a_command_whose_output_drips_is_given_up_in_time(talk: Talk) -> None:
    start_time = time.monotonic()
    with talking(talk) as address, pytest.raises(Unreachable):
        execute(address, 0.2)
    assert time.monotonic() - start_time < 10


def test_a_message_of_any_length_fills_no_memory() -> None:
    with talking(message_without_an_end) as address:
        stream = pod_exec.CommandStream(Access(server=f"http://{address}"), "/exec", "test", most_bytes=4 << 20)
        with pytest.raises(AnswerTooLarge, match="more than 4 MiB"):
            stream.read(20)


def test_a_webhook_whose_head_drips_has_not_taken_the_message() -> None:
    with talking(head_that_drips) as address, pytest.raises(webhook.NotTaken, match="did not answer"):
        webhook.post(f"http://{address}/hook", b"{}", seconds=0.2)


def test_a_package_that_drips_is_given_up() -> None:
    package = Package(name="hello", version="1", architecture="amd64", sha256="0" * 64, size=10, path="hello.deb")
    with talking(body_that_drips) as address:
        answer = urllib3.PoolManager(retries=False).request("GET", f"http://{address}/", preload_content=False)
        with pytest.raises(Unreachable, match="too slowly"):
            mirror_download.take(answer, f"http://{address}/", package, io.BytesIO(), patience=0.1)
        answer.close()


def test_a_head_that_is_cut_off_is_no_answer() -> None:
    with talking(head_that_drips) as address:
        pool = urllib3.PoolManager(retries=False)
        pool.pool_classes_by_scheme = bounded_answers.pool_classes(0.1)
        with pytest.raises(urllib3.exceptions.ReadTimeoutError):
            pool.request("GET", f"http://{address}/")


@pytest.mark.parametrize("folder", ["steps", "workflows"])
def test_every_pool_of_connections_has_a_deadline_for_heads(folder: str) -> None:
    root = Path(__file__).parents[3]
    # a rehearsal talks to its own simulator, on this machine or in its own pod
    modules = [path for path in (root / folder).rglob("*.py") if "rehearsal" not in path.parts and "simulator" not in path.name]
    pools = {path: text for path in modules if "urllib3.PoolManager(" in (text := path.read_text())}
    assert pools
    assert not [path for path, text in pools.items() if "pool_classes_by_scheme = bounded_answers.pool_classes(" not in text]
