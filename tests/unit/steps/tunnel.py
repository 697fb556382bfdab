"""A proxy that makes tunnels (CONNECT) and looks into none; it can speak TLS itself."""

import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

from tests.unit.served import served

_IDLE_SECONDS = 20.0


@dataclass
class Proxy:
    """A running proxy: its URL, and the first line of each request that it received."""

    url: str
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(signed: Path | None = None) -> Iterator[Proxy]:
    """A proxy on this machine while the context lasts; by TLS with the key and certificate of a file `signed`."""

    class Handler(StreamRequestHandler):
        rbufsize = 0  # what follows the request is the tunnel's

        def handle(self) -> None:
            try:
                self.answer()
            except OSError:  # the client does not trust us, or is done
                return

        def answer(self) -> None:
            client = self.request if tls is None else tls.wrap_socket(self.request, server_side=True)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                if not (more := client.recv(1)):
                    return
                head += more
            made.asked.append(head.decode().splitlines()[0])
            host, _, port = made.asked[-1].split()[1].partition(":")
            with socket.create_connection((host, int(port)), _IDLE_SECONDS) as server:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                _passed_on(client, server)
            client.close()

    tls = None
    if signed is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(signed)
    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        scheme = "http" if signed is None else "https"
        made = Proxy(f"{scheme}://127.0.0.1:{listening.server_address[1]}")
        with served(listening):
            yield made


def _passed_on(client: socket.socket, server: socket.socket) -> None:
    """Bytes in both directions, until one side is done."""
    while True:
        held = isinstance(client, ssl.SSLSocket) and client.pending()
        ready = [client] if held else select.select([client, server], [], [], _IDLE_SECONDS)[0]
        for one in ready:
            if not (data := one.recv(65536)):
                return
            (server if one is client else client).sendall(data)
        if not ready:
            return
