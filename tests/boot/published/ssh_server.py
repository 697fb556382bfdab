"""An SSH server at 127.0.0.1 with its own keys, and a way to it that can be cut."""

import os
import select
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

CONFIG = """ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin yes
MaxStartups 50
"""
PATIENCE = 20.0


class Server(Struct, frozen=True, kw_only=True):
    """Running SSH server: port and folder with `key` (may log in), `stranger` (may not) and `known` (the server's host key)."""

    port: int
    folder: Path


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """The server, until the end of the block."""
    program = shutil.which("sshd", path="/usr/sbin:/sbin")
    assert program, "openssh-server is not installed"
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host", "key", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    server = Server(port=_free(), folder=folder)
    (folder / "sshd_config").write_text(CONFIG.format(port=server.port, folder=folder))
    know(server, server.port)
    with (folder / "sshd.log").open("wb") as log:
        process = subprocess.Popen([program, "-D", "-e", "-f", folder / "sshd_config"], stderr=log, stdin=subprocess.DEVNULL)
        try:
            _until_it_answers(server.port, process, folder / "sshd.log")
            yield server
        finally:
            process.terminate()
            process.wait(PATIENCE)


def know(server: Server, *ports: int) -> None:
    """Write the host key of the server as known at these ports."""
    key = (server.folder / "host.pub").read_text()
    (server.folder / "known").write_text("".join(f"[127.0.0.1]:{port} {key}" for port in ports))


@contextmanager
def through(server: Server, most: int, *, silent: bool) -> Iterator[int]:
    """A port that leads to the server until so many bytes have gone there; then nothing goes on, or the connection ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = int(listening.getsockname()[1])
        know(server, server.port, port)
        over = threading.Event()
        thread = threading.Thread(target=_forward, args=(listening, server.port, most, silent, over))
        thread.start()
        try:
            yield port
        finally:
            over.set()
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
            thread.join()


def _forward(listening: socket.socket, port: int, most: int, silent: bool, over: threading.Event) -> None:
    near, _ = listening.accept()
    with near, socket.create_connection(("127.0.0.1", port)) as far:
        sent = 0
        while not over.is_set():
            ready, _, _ = select.select([near, far], [], [], 0.1)
            for one in ready:
                data = one.recv(4096)
                if not data:
                    return
                if one is near:
                    sent += len(data)
                if sent < most:
                    (far if one is near else near).sendall(data)
                elif not silent:
                    return


def _free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _until_it_answers(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    idle, tries = select.poll(), int(PATIENCE / 0.05)
    for _ in range(tries):
        assert process.poll() is None, log.read_text()
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        idle.poll(50)
    raise AssertionError(f"sshd did not answer: {log.read_text()}{os.linesep}")
