"""Starts and stops the processes of a simulated cluster: the emulated API server (or one that is there) and the simulator."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from steps.clients.environment import SIMULATOR, SIMULATOR_TOKEN
from workflows.plan.model import Plan
from workflows.rehearsal import loopback

FLEET = "machines.json"
"""The machines to simulate, as the simulator reads them."""

START_SECONDS = 60.0
"""A process that has not said that it serves by then will not: on an idle machine it takes under a second."""
STOP_SECONDS = 10.0
LOOK_SECONDS = 0.02


class DidNotStart(RuntimeError):
    """A process of the simulated cluster ended, or never served; the message holds the end of its log."""


@dataclass(frozen=True)
class SimulatedCluster:
    """A running simulated cluster: its admin kubeconfig, and the control API of its simulator."""

    kubeconfig: Path
    url: str
    token: str

    @property
    def environment(self) -> dict[str, str]:
        """What makes steps use the simulated clock and the simulated hosts."""
        return {SIMULATOR: self.url, SIMULATOR_TOKEN: self.token}


@dataclass(frozen=True, kw_only=True)
class Existing:
    """An API server that runs already, to be played against in place of an emulated one.

    `roles_off` names what real programs of that cluster do; they need `speed`, virtual seconds a real one. `pod_logs` is a folder
    from which somebody serves the logs of simulated pods at their kubelets' port.
    """

    kubeconfig: Path
    roles_off: tuple[str, ...] = ()
    speed: float = 0.0
    pod_logs: Path | None = None

    def arguments(self) -> list[str]:
        """Options of the simulator process."""
        given = {"--roles-off": ",".join(self.roles_off), "--real-time": self.speed or "", "--pod-logs": self.pod_logs or ""}
        return [part for name, value in given.items() if value for part in (name, str(value))]


def write_fleet(folder: Path, plan: Plan) -> Path:
    """Write the plan's machines into a folder."""
    fleet = folder / FLEET
    fleet.write_bytes(msgspec.json.encode({"hosts": plan.hosts, "accelerator": plan.accelerator, "built": plan.built}))
    return fleet


@contextmanager
def simulated_cluster(
    folder: Path, fleet: Path, options: Sequence[str] = (), existing: Existing | None = None, tls: bool = False
) -> Iterator[SimulatedCluster]:
    """Run a simulated cluster while the context lasts. `fleet` is what `write_fleet` made; `options` go to the simulator.

    Its processes end with this one, however it ends (`--with-parent`); an existing server is left running. `tls` is for kubectl.
    """
    loopback.require()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    control = folder / "control.json"
    with _api(folder, existing, tls) as kubeconfig:
        arguments = ["--kubeconfig", str(kubeconfig), "--hosts", str(fleet), "--control-out", str(control), *_parent(), *options]
        with _process("simulator", arguments, control, folder):
            where = json.loads(control.read_text())
            yield SimulatedCluster(kubeconfig, where["url"], where["token"])


@contextmanager
def _api(folder: Path, existing: Existing | None, tls: bool) -> Iterator[Path]:
    """The kubeconfig of the API server to play against."""
    if existing is not None:
        yield existing.kubeconfig
        return
    kubeconfig = folder / "kubeconfig"
    with _process("apiserver", ["--kubeconfig-out", str(kubeconfig), *(["--tls"] if tls else []), *_parent()], kubeconfig, folder):
        yield kubeconfig


def _parent() -> list[str]:
    return ["--with-parent", str(os.getpid())]


@contextmanager
def _process(name: str, arguments: Sequence[str], ready: Path, folder: Path) -> Iterator[None]:
    ready.unlink(missing_ok=True)
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = _start(name, arguments, output)
        try:
            _await(name, process, ready, log)
            yield
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(name: str, arguments: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"workflows.rehearsal.{name}", *arguments]
    # its own session: Ctrl-C goes to the engine, which still needs the cluster to cancel cleanly
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)


def _await(name: str, process: subprocess.Popen[bytes], ready: Path, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            tail = log.read_text(errors="replace")[-2000:]
            how = "did not serve in time" if process.returncode is None else f"ended with {process.returncode}"
            raise DidNotStart(f"the {name} of the simulated cluster {how}:\n{tail}")
        time.sleep(LOOK_SECONDS)
