"""Runs an emulated server: on an event loop, in a thread of this process, or as a process of its own (`__main__`)."""

import asyncio
import secrets
import threading
from dataclasses import dataclass

from aiohttp import web

from workflows.rehearsal.apiserver import kubeconfig
from workflows.rehearsal.apiserver.application import Front, application
from workflows.rehearsal.apiserver.certificate import Certificate
from workflows.rehearsal.apiserver.resources import kubernetes_version
from workflows.rehearsal.apiserver.state import State

LOOPBACK = "127.0.0.1"
_SHUTDOWN_S = 2.0
_ROUNDS = 4
"""Of the loop, that it takes to accept a connection."""


@dataclass(frozen=True)
class Address:
    """Where a server listens, the token that it wants, and its certificate (PEM; empty: plain HTTP)."""

    url: str
    token: str
    authority: str = ""

    @property
    def kubeconfig(self) -> str:
        """A kubeconfig for it, as text."""
        return kubeconfig.text(self.url, self.token, self.authority)


class Server:
    """One listening server; plain HTTP where it has no certificate."""

    def __init__(self, git_version: str = "", certificate: Certificate | None = None) -> None:
        self.state = State()
        self._token = secrets.token_urlsafe(32)
        self._certificate = certificate
        front = Front(self.state, self._token, git_version or f"{kubernetes_version()}+emulated")
        # handler_cancellation: a watch whose client went away must not stay until its next bookmark.
        self._runner = web.AppRunner(application(front), access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN_S)

    async def start(self, host: str, port: int) -> Address:
        """Listens; port 0 means any free one.

        Raises:
            OSError: the port is taken.
        """
        await self._runner.setup()
        secure = self._certificate
        await web.TCPSite(self._runner, host, port, ssl_context=secure.context() if secure else None).start()
        bound = self._runner.addresses[0][1]
        return Address(f"{'https' if secure else 'http'}://{host}:{bound}", self._token, secure.public if secure else "")

    async def stop(self) -> None:
        """Ends all watches and stops listening."""
        for _, table in self.state.store.tables():
            table.log.close()
        server = self._runner.server
        await self._runner.cleanup()
        for _ in range(_ROUNDS):  # a client that came at the last moment has its connection by then, which nobody else closes
            await asyncio.sleep(0)
        if server is not None:
            await server.shutdown(0)
            await asyncio.sleep(0)


class RunningServer:
    """A server in a thread of this process. `url`, `token` and `kubeconfig` (text) say how to reach it; `stop()` ends it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread, server: Server, address: Address) -> None:
        self.url = address.url
        self.token = address.token
        self.kubeconfig = address.kubeconfig
        self._loop = loop
        self._thread = thread
        self._server = server

    def stop(self) -> None:
        """Stops the server; a second call does nothing."""
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
    """Starts a fresh emulated cluster on 127.0.0.1 in a thread of this process.

    Raises:
        OSError: the port is taken.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="emulated-apiserver", daemon=True)
    thread.start()
    server = Server(git_version)
    try:
        address = asyncio.run_coroutine_threadsafe(server.start(LOOPBACK, port), loop).result()
    except OSError:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
        raise
    return RunningServer(loop, thread, server, address)
