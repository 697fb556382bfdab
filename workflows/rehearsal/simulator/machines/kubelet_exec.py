"""Answers a kubelet's exec request over a WebSocket (`v4.channel.k8s.io`) with the output of a played command.

Each message begins with the number of its channel. A kubelet accepts WebSockets of version 4 directly, and an API server passes
them on; version 5 would reach it as SPDY. Sources: https://www.rfc-editor.org/rfc/rfc6455, kubernetes/kubernetes
staging/src/k8s.io/kubelet/pkg/cri/streaming/remotecommand/websocket.go.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import msgspec

from workflows.rehearsal.apiserver import command_status
from workflows.rehearsal.simulator.machines.played_commands import PlayedOutput

PROTOCOL = "v4.channel.k8s.io"
_STDOUT, _STDERR, _ERROR = b"\x01", b"\x02", b"\x03"
_CHUNK = 32 << 10
_ACCEPT_KEY = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Constant of RFC 6455 from which a server computes its answer to the client's key."""
_BINARY, _CLOSE = 0x82, 0x88
"""First bytes of a whole message and of the end of a connection."""


def offers(handler: BaseHTTPRequestHandler) -> bool:
    """Return True if a request asks for a WebSocket of this version."""
    protocols = handler.headers.get("Sec-WebSocket-Protocol", "")
    return handler.headers.get("Upgrade", "").lower() == "websocket" and PROTOCOL in [name.strip() for name in protocols.split(",")]


def stream(handler: BaseHTTPRequestHandler, played: PlayedOutput) -> None:
    """Accept a WebSocket, write output and status of a command to it, and end it."""
    key = handler.headers.get("Sec-WebSocket-Key", "") + _ACCEPT_KEY
    handler.protocol_version = "HTTP/1.1"  # RFC 6455 knows no handshake of HTTP/1.0
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header(
        "Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode(), usedforsecurity=False).digest()).decode()
    )
    handler.send_header("Sec-WebSocket-Protocol", PROTOCOL)
    handler.end_headers()
    for message in _messages(played):
        handler.wfile.write(_frame(_BINARY, message))
    handler.wfile.write(_frame(_CLOSE, struct.pack(">H", 1000)))
    handler.close_connection = True


def _messages(played: PlayedOutput) -> Iterator[bytes]:
    for channel, text in ((_STDOUT, played.stdout), (_STDERR, played.stderr)):
        content = text.encode()
        for start in range(0, len(content), _CHUNK):
            yield channel + content[start : start + _CHUNK]
    yield _ERROR + msgspec.json.encode(command_status.of_exit(played.code))


def _frame(first: int, content: bytes) -> bytes:
    size = len(content)
    if size < 126:
        return struct.pack(">BB", first, size) + content
    return (struct.pack(">BBH", first, 126, size) if size < 1 << 16 else struct.pack(">BBQ", first, 127, size)) + content
