"""SSH's way through an HTTP proxy: what is handed over, what is said where there is no connection, and how that is classified."""

import base64
import json
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any

import pytest

from steps.clients.ansible import failures
from steps.clients.ansible.ssh_plays import with_proxy_reason
from steps.clients.ssh import proxies
from steps.contract.host_play import FailureKind, HttpProxy, Jump, PlayHost
from tests.unit.served import served

OK = b"HTTP/1.1 200 Connection established\r\n\r\n"
HOST = PlayHost(name="n1", address="192.0.2.1")
PASSWORD = b"canary-93\n"


class Scripted(ThreadingTCPServer):
    """A proxy that answers each request with the same bytes, then sends back what it gets."""

    daemon_threads = True
    answer: bytes | None
    asked: list[str]


class _Handler(StreamRequestHandler):
    rbufsize = 0

    def handle(self) -> None:
        server = self.server
        assert isinstance(server, Scripted)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (byte := self.request.recv(1)):
                return
            head += byte
        server.asked.append(head.decode())
        if server.answer is not None:
            self.request.sendall(server.answer)
        while server.answer is None or server.answer.startswith(OK):
            if not (data := self.request.recv(100)):
                return
            self.request.sendall(data)


@contextmanager
def scripted(answer: bytes | None) -> Iterator[Scripted]:
    with Scripted(("127.0.0.1", 0), _Handler) as server, served(server):
        server.answer, server.asked = answer, []
        yield server


class Dialler:
    """Calls SSH's ProxyCommand as SSH does, and takes the connection that comes back."""

    def __init__(self, folder: Path, port: int, *, user: str = "", host: PlayHost = HOST, seconds: float = 20.0) -> None:
        self.folder = folder
        self.proxy = HttpProxy(address="127.0.0.1", port=port, user=user, password_path="pw" if user else "")
        self.host = PlayHost(name=host.name, address=host.address, port=host.port, proxy=self.proxy)
        self.command = proxies.commands(folder, [self.host], {"pw": PASSWORD})[self.proxy]
        settings = folder / "proxy0"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"seconds": seconds}))

    def call(self) -> tuple[int, str, list[socket.socket]]:
        """Exit code, what was said, and the connections that were handed over."""
        words = shlex.split(self.command.replace("%h", self.host.address).replace("%p", str(self.host.port)))
        ours, its = socket.socketpair()
        with ours, its:
            done = subprocess.run(words, stdin=its, stdout=its, stderr=subprocess.PIPE, check=False)
            its.close()
            _, numbers, _, _ = socket.recv_fds(ours, 1, 1)
        return done.returncode, done.stderr.decode().strip(), [socket.socket(fileno=number) for number in numbers]

    def told(self) -> str:
        return proxies.failure_of(self.folder, self.host)


@pytest.fixture
def dial(tmp_path: Path) -> Callable[..., Dialler]:
    return lambda port, **words: Dialler(tmp_path, port, **words)


def test_the_connection_is_handed_over_with_what_the_host_has_said_already(dial: Any) -> None:
    with scripted(OK + b"SSH-2.0-early\r\n") as server:
        one = dial(server.server_address[1])
        code, said, (connection,) = one.call()
        with connection:
            assert connection.recv(100) == b"SSH-2.0-early\r\n"
            connection.sendall(b"SSH-2.0-ours\r\n")
            assert connection.recv(100) == b"SSH-2.0-ours\r\n"
    assert (code, said, one.told()) == (0, "", "")
    assert server.asked == ["CONNECT 192.0.2.1:22 HTTP/1.1\r\nHost: 192.0.2.1:22\r\n\r\n"]


def test_an_ipv6_address_stands_in_brackets(dial: Any) -> None:
    with scripted(OK) as server:
        _, _, (connection,) = dial(server.server_address[1], host=PlayHost(name="n1", address="2001:db8::7", port=2222)).call()
        connection.close()
    assert server.asked[0].startswith("CONNECT [2001:db8::7]:2222 HTTP/1.1\r\nHost: [2001:db8::7]:2222\r\n")


def test_the_login_goes_to_the_proxy_and_is_on_no_command_line(dial: Any) -> None:
    with scripted(OK) as server:
        one = dial(server.server_address[1], user="site")
        one.call()[2][0].close()
    login = base64.b64encode(b"site:canary-93").decode()
    assert f"\r\nProxy-Authorization: Basic {login}\r\n" in server.asked[0]
    assert "canary" not in one.command
    assert login not in one.command
    assert (one.folder / "proxy0").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("answer", "user", "said", "kind"),
    [
        (b"HTTP/1.1 407 Login Needed\r\n\r\n", "", "wants a login (407 Login Needed)", FailureKind.SSH_PROXY_LOGIN),
        (b"HTTP/1.1 407 No\r\n\r\n", "site", "refuses the login of site (407 No)", FailureKind.SSH_PROXY_LOGIN),
        (b"HTTP/1.0 401 Unauthorized\r\n\r\n", "site", "refuses the login of site (401", FailureKind.SSH_PROXY_LOGIN),
        (
            b"HTTP/1.1 407 No\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: Negotiate x\r\n\r\n",
            "site",
            "wants a login by NTLM or Negotiate, and only Basic is known here (407 No)",
            FailureKind.SSH_PROXY_LOGIN,
        ),
        (
            b'HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nproxy-authenticate: Basic realm="x"\r\n\r\n',
            "site",
            "refuses the login of site",
            FailureKind.SSH_PROXY_LOGIN,
        ),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n<html>", "", "refuses CONNECT to 192.0.2.1:22 (403 Forbidden)", FailureKind.SSH_PROXY),
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "", "refuses CONNECT to 192.0.2.1:22 (401", FailureKind.SSH_PROXY),
        (b"HTTP/1.1 302 Found\r\n\r\n", "", "refuses CONNECT to 192.0.2.1:22 (302 Found)", FailureKind.SSH_PROXY),
        (b"HTTP/1.1 502 Bad Gateway\r\n\r\n", "", "cannot reach 192.0.2.1:22 (502 Bad Gateway)", FailureKind.NETWORK),
        (b"HTTP/1.1 503\n\n", "", "cannot reach 192.0.2.1:22 (503)", FailureKind.NETWORK),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "", "does not speak HTTP: it answered 'SSH-2.0-OpenSSH_9.2p1'", FailureKind.SSH_PROXY),
        (b"\x15\x03\x01\x1b[31m\n", "", "does not speak HTTP: it answered '????[31m'", FailureKind.SSH_PROXY),
        (b"HTTP/1.1 ok\r\n\r\n", "", "does not speak HTTP", FailureKind.SSH_PROXY),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20000, "", "does not speak HTTP", FailureKind.SSH_PROXY),
        (b"HTTP/1.1 200 OK\r\n", "", "closed the connection without an answer", FailureKind.SSH_PROXY),
        (b"", "", "closed the connection without an answer", FailureKind.SSH_PROXY),
    ],
)
def test_a_proxy_that_refuses_is_named_with_its_reason(dial: Any, answer: bytes, user: str, said: str, kind: FailureKind) -> None:
    with scripted(answer) as server:
        one = dial(server.server_address[1], user=user)
        code, printed, connections = one.call()
    assert (code, connections) == (1, [])
    assert printed.startswith(f"HTTP proxy {one.proxy.url} {said}")
    assert one.told() == printed
    assert failures.of_unreachable(printed) is kind
    assert "canary" not in printed


def test_a_silent_proxy_has_its_time_and_no_more(dial: Any) -> None:
    with scripted(None) as server:
        one = dial(server.server_address[1], seconds=0.2)
        _, printed, _ = one.call()
    assert printed.endswith("gave no answer within 0.2 s: is 192.0.2.1:22 there, and may the proxy connect to it?")
    assert failures.of_unreachable(printed) is FailureKind.NETWORK


def test_a_proxy_that_is_not_there(dial: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    one = dial(port)
    _, printed, _ = one.call()
    assert printed == f"HTTP proxy http://127.0.0.1:{port} is not reached: Connection refused"
    assert failures.of_unreachable(printed) is FailureKind.SSH_PROXY


def test_a_connection_that_came_up_makes_an_older_failure_void(dial: Any) -> None:
    with scripted(b"HTTP/1.1 502 Bad Gateway\r\n\r\n") as server:
        one = dial(server.server_address[1])
        one.call()
        assert one.told()
        server.answer = OK
        one.call()[2][0].close()
    assert one.told() == ""


SSH = "Failed to connect to the host via ssh: "
DIALLER = SSH + "mm_receive_fd: recvmsg: expected received 1 got 0\r\nproxy dialer did not pass back a connection"
CLOSED = SSH + "kex_exchange_identification: Connection closed by remote host"
CUT_OFF = "Task failed: Data could not be sent to remote host 'n1'. Make sure this host can be reached over SSH."
PROXY = HttpProxy(address="192.0.2.9", port=3128)


def explained(folder: Path, said: str, *hosts: PlayHost, event: str = "runner_on_unreachable") -> str:
    raw = {"event": event, "event_data": {"host": "n1", "task": "t", "res": {"unreachable": True, "msg": said}}}
    result: str = with_proxy_reason(raw, folder, hosts)["event_data"]["res"]["msg"]
    return result


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """A folder where the proxy did not connect to n1, nor to the jump host b1."""
    folder = tmp_path / proxies.TOLD / "192.0.2.9_3128_"
    folder.mkdir(parents=True)
    (folder / "192.0.2.1_22").write_text("HTTP proxy of n1")
    (folder / "192.0.2.5_2222").write_text("HTTP proxy of b1")
    return tmp_path


def test_an_unreachable_host_has_the_reason_of_the_proxy(told: Path) -> None:
    direct = PlayHost(name="n1", address="192.0.2.1", proxy=PROXY)
    assert explained(told, DIALLER, direct) == "HTTP proxy of n1"
    assert explained(told, CUT_OFF, direct) == "HTTP proxy of n1", "Ansible was still writing to ssh"
    chain = Jump.of("ops@192.0.2.5:2222,root@192.0.2.6").behind(PROXY)
    assert explained(told, CLOSED, PlayHost(name="n1", address="192.0.2.1", jump=chain)) == "HTTP proxy of b1"


def test_what_ssh_itself_says_of_a_host_stays(told: Path) -> None:
    direct = PlayHost(name="n1", address="192.0.2.1", proxy=PROXY)
    denied = SSH + "root@192.0.2.1: Permission denied (publickey)."
    assert explained(told, denied, direct) == denied
    assert explained(told, DIALLER, direct, event="runner_on_failed") == DIALLER
    assert explained(told, CLOSED, PlayHost(name="n1", address="192.0.2.1")) == CLOSED, "no proxy stands before it"


def test_a_task_for_another_host_that_the_proxy_does_not_reach(told: Path) -> None:
    """Ansible tells it of the host whose task was delegated."""
    fine = PlayHost(name="n1", address="192.0.2.2", proxy=PROXY)
    helper = PlayHost(name="sv1", address="192.0.2.1", proxy=PROXY)
    assert explained(told, DIALLER, fine, helper) == "HTTP proxy of n1"


def test_a_proxy_that_runs_on_another_host_is_not_taken_for_it() -> None:
    said = "HTTP proxy http://192.0.2.9:3128 cannot reach 192.0.2.1:22 (502)"
    assert failures.of_unreachable(said, ["192.0.2.9"]) is FailureKind.NETWORK
    assert failures.of_unreachable(said, ["192.0.2.1"]) is FailureKind.HELPER
