"""Runs one command in a pod's container over the API server's exec endpoint (WebSocket), with limits on time and output.

The protocol is `v4.channel.k8s.io`, which every API server passes on to the kubelet as it is: each message begins with the number
of its channel. Version 5 adds the end of an input, which no command here has. See
https://kubernetes.io/docs/reference/using-api/api-concepts/ and k8s.io/apimachinery/pkg/util/remotecommand.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients import bounded_answers
from steps.clients.kube import kubeconfig
from steps.clients.kube.api import ApiError
from steps.contract.canonical import UNREADABLE_JSON
from steps.errors import NotUnderstood, Refused, Unreachable

if TYPE_CHECKING:
    import websocket

PROTOCOL = "v4.channel.k8s.io"
STDOUT, STDERR, ERROR = 1, 2, 3
MOST_BYTES = 64 << 20
MOST_RECEIVED = 2 * MOST_BYTES + (1 << 20)
"""Most bytes of all messages: those of the output, and what the protocol adds to short ones."""
"""Most bytes of output that are read; a check at 10,000 nodes prints a few MB."""
_EXIT = "ExitCode"
_MESSAGE = 2000


class CommandOutput(Struct, frozen=True, kw_only=True):
    """The output of a command, and its exit code. `cut`: it printed more than `MOST_BYTES`, and the rest was not read."""

    stdout: str
    stderr: str
    code: int
    cut: bool = False


class _Cause(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(Struct, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _CommandStatus(Struct, frozen=True):
    """The Status that ends a command: Success, or Failure with the exit code among its causes."""

    status: str
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class CommandStream:
    """The connection of one running command."""

    def __init__(
        self, access: kubeconfig.Access, path: str, agent: str, limit: float = timeouts.API_ANSWER, most_bytes: int = MOST_RECEIVED
    ) -> None:
        """Connect within `limit` seconds, and start the command. All its messages may have `most_bytes`.

        Raises Refused (401, 403), ApiError (other 4xx) or Unreachable.
        """
        import websocket

        headers = [f"Authorization: Bearer {access.token}"] if access.token else []
        server = access.server.rstrip("/")
        context = kubeconfig.tls_context(access)
        try:
            self._socket = _bounded_socket({"context": context} if context is not None else {}, most_bytes)
            self._socket.settimeout(timeouts.API_READ)
            # the time-out limits the silence between two bytes, and a head may come byte by byte
            with bounded_answers.cut_off(lambda: self._socket.sock, limit):
                self._socket.connect(  # type: ignore[no-untyped-call]
                    server.replace("http", "ws", 1) + path,
                    header=[*headers, f"User-Agent: {agent}"],
                    subprotocols=[PROTOCOL],
                    http_no_proxy=["*"],  # like every other request of a step, not through the proxies of the environment
                    suppress_origin=True,
                )
        except websocket.WebSocketBadStatusException as error:
            raise _refusal(path, error) from error
        except (websocket.WebSocketException, OSError) as error:
            raise Unreachable(f"exec {_short(path)}: {error}", hint=f"is {server} up, and does a proxy pass WebSockets?") from error
        self._chunks: dict[int, list[bytes]] = {STDOUT: [], STDERR: [], ERROR: []}
        self._size = 0

    def read(self, seconds: float) -> CommandOutput:
        """Return the output once the command has ended. Raises Unreachable if that takes longer, or if the connection breaks."""
        import websocket

        deadline = time.monotonic() + seconds
        self._socket.settimeout(timeouts.EXEC_PING)
        try:
            # a message may come byte by byte, so that the loop below would not turn
            with bounded_answers.cut_off(lambda: self._socket.sock, seconds):
                while not self._chunks[ERROR] and self._size <= MOST_BYTES:
                    if time.monotonic() > deadline:
                        raise _endless(seconds)
                    self._receive()
        except websocket.WebSocketConnectionClosedException as error:
            if not self._chunks[ERROR]:
                if time.monotonic() >= deadline:
                    raise _endless(seconds) from error
                hint = "the API server or the kubelet ended it: is the node well?"
                raise Unreachable(f"the connection to the command ended before it did: {error}", hint=hint) from error
        except (websocket.WebSocketException, OSError) as error:
            raise Unreachable(f"the connection to the command broke: {error}", hint="the engine tries again") from error
        finally:
            self._socket.close(timeout=1)
        return self._output()

    def _receive(self) -> None:
        import websocket

        try:
            message = self._socket.recv()
        except websocket.WebSocketTimeoutException:
            # a command may be silent for minutes, after which load balancers drop a connection
            self._socket.ping()
            return
        data = message.encode() if isinstance(message, str) else bytes(message)
        if not data:
            return
        channel = data[0] if data[0] < 32 else data[0] - ord("0")
        self._size += len(data)
        if channel in self._chunks and len(data) > 1:
            self._chunks[channel].append(data[1:])

    def _output(self) -> CommandOutput:
        stdout, stderr, ended = (b"".join(self._chunks[channel]) for channel in (STDOUT, STDERR, ERROR))
        cut = not ended
        return CommandOutput(
            stdout=stdout[:MOST_BYTES].decode(errors="replace"),
            stderr=stderr[:MOST_BYTES].decode(errors="replace"),
            code=-1 if cut else exit_code(ended),
            cut=cut,
        )


def _bounded_socket(tls: dict[str, Any], most_bytes: int) -> websocket.WebSocket:
    """Return a WebSocket that is not connected yet and reads `most_bytes` at most, whatever length a message claims."""
    import websocket

    class BoundedSocket(websocket.WebSocket):
        """A WebSocket that counts what it receives."""

        received = 0

        def _recv(self, bufsize: int) -> bytes:
            data: bytes = super()._recv(bufsize)  # type: ignore[no-untyped-call]
            self.received += len(data)
            if self.received > most_bytes:
                raise bounded_answers.AnswerTooLarge(
                    f"exec: the command's output has more than {most_bytes >> 20} MiB", hint="does something else answer?"
                )
            return data

    return BoundedSocket(sslopt=tls)


def _endless(seconds: float) -> Unreachable:
    return Unreachable(f"the command did not end in {seconds:.0f} s", hint="see what it waits for in the pod")


def run(
    access: kubeconfig.Access, namespace: str, pod: str, container: str, command: Sequence[str], *, seconds: float, agent: str
) -> CommandOutput:
    """Run a command without input in a container and return its output.

    Raises Refused for a missing right, ApiError if pod or container do not exist, Unreachable if the node does not answer or the
    command takes longer than `seconds`, NotUnderstood if the container could not start it.
    """
    query = urlencode([("container", container), ("stdout", "1"), ("stderr", "1"), *(("command", word) for word in command)])
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec?{query}"
    return CommandStream(access, path, agent, min(seconds, timeouts.API_ANSWER)).read(seconds)


def exit_code(ended: bytes) -> int:
    """Return the exit code in the Status that ended a command. Raises NotUnderstood for anything else."""
    try:
        status = msgspec.json.decode(ended, type=_CommandStatus)
    except UNREADABLE_JSON as error:
        raise NotUnderstood(
            f"exec: the end of the command is no Status: {error}", hint="does a proxy change the answer?"
        ) from error
    if status.status == "Success":
        return 0
    codes = [cause.message for cause in (status.details.causes if status.details else ()) if cause.reason == _EXIT]
    if codes and codes[0].isdigit() and len(codes[0]) < 4:
        return int(codes[0])
    text = f"exec: the container did not run the command: {status.message[:_MESSAGE]}"
    raise NotUnderstood(text, hint="see that the container runs and has the program")


def _refusal(path: str, error: websocket.WebSocketBadStatusException) -> Exception:
    body = getattr(error, "resp_body", None) or b""
    try:
        status = msgspec.json.decode(body, type=_CommandStatus)
        text = status.message
    except (TypeError, *UNREADABLE_JSON):
        text = bytes(body)[:200].decode(errors="replace")
    message = f"exec {_short(path)}: {error.status_code}: {text[:_MESSAGE]}"
    if error.status_code in (401, 403):
        return Refused(message, hint="the account needs the rights get and create on pods/exec in this namespace")
    if error.status_code >= 500 or error.status_code == 429:
        return Unreachable(message, hint="the kubelet of the pod's node does not answer, or nothing there speaks the protocol")
    return ApiError(message, error.status_code, "")


def _short(path: str) -> str:
    return path.partition("?")[0].removeprefix("/api/v1/")
