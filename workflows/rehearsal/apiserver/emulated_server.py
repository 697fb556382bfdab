"""The emulated API server on an event loop or in a thread of this process, its self-signed certificate, and its kubeconfig."""

import asyncio
import base64
import datetime
import ipaddress
import os
import secrets
import socket
import ssl
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import yaml
from aiohttp import web

from workflows.rehearsal.apiserver.cluster_state import ClusterState
from workflows.rehearsal.apiserver.request_dispatcher import RequestDispatcher, web_application
from workflows.rehearsal.apiserver.served_resources import kubernetes_version

LIFETIME = datetime.timedelta(days=365)
_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class LoopbackCertificate:
    """A self-signed server certificate and its private key, both in PEM; clients trust the certificate as its own authority."""

    public: str
    key: str

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a server that presents this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory(prefix="bringup-") as folder:  # OpenSSL reads certificates from files only
            public, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
            public.write_text(self.public)
            key.touch(0o600)
            key.write_text(self.key)
            context.load_cert_chain(public, key)
        return context


def self_signed(now: datetime.datetime, *hosts: str) -> LoopbackCertificate:
    """Return a new certificate for localhost, 127.0.0.1, ::1 and `hosts`, valid from a minute before `now` (UTC) for `LIFETIME`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bringup emulated API server")])
    names = [*map(x509.DNSName, ("localhost", *hosts)), *(x509.IPAddress(ipaddress.ip_address(address)) for address in _ADDRESSES)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return LoopbackCertificate(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())


LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"
_CLUSTER = "emulated"
_LINE = 64 << 10
"""Longest request line in bytes: that of exec holds the whole command. Go's servers take 1 MiB."""
_SHUTDOWN_S = 2.0
_ACCEPT_ROUNDS = 4
"""Rounds of the event loop after the server stops to accept, until a connection that came last is among its connections."""


def kubeconfig_text(url: str, token: str, authority: str = "") -> str:
    """Return a kubeconfig with one cluster, one user (a bearer token) and one context. `authority` is a PEM certificate."""
    trust = {"certificate-authority-data": base64.b64encode(authority.encode()).decode()} if authority else {}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CLUSTER, "cluster": {"server": url, **trust}}],
        "users": [{"name": _CLUSTER, "user": {"token": token}}],
        "contexts": [{"name": _CLUSTER, "context": {"cluster": _CLUSTER, "user": _CLUSTER}}],
        "current-context": _CLUSTER,
    }
    return yaml.safe_dump(config, sort_keys=False)


def write_kubeconfig(path: Path, content: str) -> None:
    """Write a kubeconfig file with mode 0600 by renaming a temporary one, so that no reader sees a part of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(content)
    Path(name).replace(path)


@dataclass(frozen=True)
class ServerAddress:
    """The address of a listening server: its URL, its bearer token, and its certificate in PEM (empty for plain HTTP)."""

    url: str
    token: str
    authority: str = ""

    @property
    def kubeconfig(self) -> str:
        """Return a kubeconfig for this server, as text."""
        return kubeconfig_text(self.url, self.token, self.authority)


class EmulatedServer:
    """An emulated API server with a new cluster, to start on an event loop. It speaks plain HTTP unless it gets a certificate."""

    def __init__(self, git_version: str = "", certificate: LoopbackCertificate | None = None, token: str = "") -> None:
        self.state = ClusterState()
        self._token = token or secrets.token_urlsafe(32)
        self._certificate = certificate
        self._listening: socket.socket | None = None
        dispatcher = RequestDispatcher(self.state, self._token, git_version or f"{kubernetes_version()}+emulated")
        # handler_cancellation: a watch whose client went away must not stay until its next bookmark.
        app = web_application(dispatcher)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_S, max_line_size=_LINE
        )

    async def start(self, host: str, port: int) -> ServerAddress:
        """Start to listen and return the address; port 0 means any free port. Raises OSError if the port is taken."""
        await self._runner.setup()
        certificate = self._certificate
        self._listening = socket.create_server((host, port))
        await web.SockSite(self._runner, self._listening, ssl_context=certificate.context() if certificate else None).start()
        # programs beside the server reach one that listens everywhere by loopback
        reached = LOOPBACK if host == EVERYWHERE else host
        url = f"{'https' if certificate else 'http'}://{reached}:{self._runner.addresses[0][1]}"
        return ServerAddress(url, self._token, certificate.public if certificate else "")

    async def stop(self) -> None:
        """End all watches and stop listening."""
        for _, table in self.state.store.tables():
            table.log.close()
        if self._listening is not None:  # asyncio leaves a connection open that it accepted just before it closes the socket
            asyncio.get_running_loop().remove_reader(self._listening)
        for _ in range(_ACCEPT_ROUNDS):
            await asyncio.sleep(0)
        server = self._runner.server
        connections = server.connections if server is not None else []
        transports = [connection.transport for connection in connections if connection.transport is not None]
        await self._runner.cleanup()
        for transport in transports:  # a closed one waits as long as its client does not read
            transport.abort()
        await asyncio.sleep(0)


class RunningServer:
    """An emulated API server that runs in a thread of this process until `stop` or the end of a `with` block.

    `url`, `token` and `kubeconfig` (text) tell clients how to reach it.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, thread: threading.Thread, server: EmulatedServer, address: ServerAddress
    ) -> None:
        self.url = address.url
        self.token = address.token
        self.kubeconfig = address.kubeconfig
        self._loop = loop
        self._thread = thread
        self._server = server

    def stop(self) -> None:
        """Stop the server and wait for its thread; a second call does nothing."""
        if not self._thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> "RunningServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve_in_thread(port: int = 0, git_version: str = "") -> RunningServer:
    """Start a new emulated cluster on 127.0.0.1 in a thread of this process. Raises OSError if the port is taken."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="emulated-apiserver", daemon=True)
    thread.start()
    server = EmulatedServer(git_version)
    try:
        address = asyncio.run_coroutine_threadsafe(server.start(LOOPBACK, port), loop).result()
    except OSError:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        raise
    return RunningServer(loop, thread, server, address)
