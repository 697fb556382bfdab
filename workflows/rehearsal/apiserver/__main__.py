"""Command line of the emulated API server as a process of its own: `python -m workflows.rehearsal.apiserver --kubeconfig-out
FILE`.
"""

import argparse
import asyncio
import datetime
import gc
import os
import signal
import sys
from pathlib import Path

from workflows.rehearsal.apiserver.emulated_server import (
    EVERYWHERE,
    LOOPBACK,
    EmulatedServer,
    LoopbackCertificate,
    self_signed,
    write_kubeconfig,
)

_PARENT_POLL_S = 0.5
_LOOPBACKS = (LOOPBACK, "localhost", "::1")


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def _parent_gone(pid: int) -> None:
    """Wait until the process `pid` has ended, looking twice a second."""
    ours = os.getppid() == pid
    # a child asks for its parent: the number of a process that has ended may be another one's by now
    while os.getppid() == pid if ours else _alive(pid):
        await asyncio.sleep(_PARENT_POLL_S)


async def run(arguments: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT arrives or the process named by `--with-parent` ends."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    certificate = self_signed(datetime.datetime.now(datetime.UTC)) if arguments.tls else None
    if arguments.served:
        certificate = LoopbackCertificate((arguments.served / "tls.crt").read_text(), (arguments.served / "tls.key").read_text())
    token = (arguments.served / "token").read_text() if arguments.served else ""
    server = EmulatedServer(arguments.kubernetes_version, certificate, token)
    try:
        address = await server.start(EVERYWHERE if arguments.served else arguments.host, arguments.port)
    except OSError as error:
        raise SystemExit(f"cannot listen on {arguments.host}:{arguments.port}: {error.strerror}") from error
    write_kubeconfig(arguments.kubeconfig_out, address.kubeconfig)
    parent = asyncio.create_task(_parent_gone(arguments.with_parent)) if arguments.with_parent else None
    if parent:
        parent.add_done_callback(lambda _: stop.set())
    await stop.wait()
    if parent:
        parent.cancel()
    await server.stop()


def main() -> int:
    """Parse the command line, serve until the process is told to end, and return the exit code 0."""
    parser = argparse.ArgumentParser(prog="python -m workflows.rehearsal.apiserver", description="Emulated Kubernetes API server.")
    parser.add_argument(
        "--kubeconfig-out", type=Path, required=True, help="file for the kubeconfig, written (0600) once the server listens"
    )
    parser.add_argument("--host", default=LOOPBACK, choices=_LOOPBACKS, help="loopback only")
    parser.add_argument("--tls", action="store_true", help="serve HTTPS, because kubectl sends no token over plain HTTP")
    parser.add_argument("--served", type=Path, help="listen everywhere, with tls.crt, tls.key and token of this folder")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--with-parent", type=int, default=0, metavar="PID", help="exit when this process is gone")
    parser.add_argument("--kubernetes-version", default="", help="gitVersion to report, for instance v1.34.4+rke2r1")
    arguments = parser.parse_args()
    gc.freeze()  # what is imported by now never becomes garbage
    asyncio.run(run(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
