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

from steps.clients.environment import GIT_ROOT, SIMULATOR, SIMULATOR_TOKEN
from steps.clients.kube import kubeconfig as kubeconfigs
from workflows.plan.model import Plan
from workflows.rehearsal import loopback
from workflows.rehearsal.simulator.kubelet_port import own_address

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
    """A running simulated cluster: its admin kubeconfig, and the control API of its simulator.

    `no_logs` is why its API server cannot read logs of simulated pods; empty where it can. `git_root` is the folder of the bare
    repositories that stand for all Git servers.
    """

    kubeconfig: Path
    url: str
    token: str
    no_logs: str = ""
    git_root: Path = Path()

    @property
    def environment(self) -> dict[str, str]:
        """What makes steps use the simulated clock, the simulated hosts and the repositories of the rehearsal."""
        return {SIMULATOR: self.url, SIMULATOR_TOKEN: self.token, GIT_ROOT: str(self.git_root)}


@dataclass(frozen=True, kw_only=True)
class Existing:
    """An API server that runs already, to be played against in place of an emulated one.

    `roles_off` names what real programs of that cluster do; they need `speed`, virtual seconds a real one. `nodes_at` is this
    machine's address as that API server reaches it, which asks there for logs of simulated pods; empty: the one on the way to it.
    """

    kubeconfig: Path
    roles_off: tuple[str, ...] = ()
    speed: float = 0.0
    nodes_at: str = ""

    def arguments(self) -> list[str]:
        """Options of the simulator process."""
        address = self.nodes_at or own_address(kubeconfigs.load(self.kubeconfig).server)
        given = {"--roles-off": ",".join(self.roles_off), "--real-time": self.speed or "", "--kubelet-address": address}
        return [part for name, value in given.items() if value for part in (name, str(value))]


def write_fleet(folder: Path, plan: Plan) -> Path:
    """Write the plan's machines into a folder."""
    fleet = folder / FLEET
    document = {"hosts": plan.hosts, "accelerator": plan.accelerator, "built": plan.built, "argo_cd": _argo_cd(plan)}
    fleet.write_bytes(msgspec.json.encode(document))
    return fleet


def _argo_cd(plan: Plan) -> dict[str, str] | None:
    """The Argo CD that the site's people run: where the plan waits for one that it does not install."""
    tasks = {step.task.name: step.task for stage in plan.stages if stage.id == "base_services" for step in stage.steps}
    if "argo_cd" not in tasks or "argo_cd_install" in tasks:
        return None
    expected = tasks["argo_cd"].expectations
    return {"namespace": str(expected["namespace"]), "version": str(expected["version"])}


@contextmanager
def simulated_cluster(
    folder: Path, fleet: Path, options: Sequence[str] = (), existing: Existing | None = None, tls: bool = False
) -> Iterator[SimulatedCluster]:
    """Run a simulated cluster while the context lasts. `fleet` is what `write_fleet` made; `options` go to the simulator.

    Its processes end with this one, however it ends (`--with-parent`); an existing server is left running. `tls` is for kubectl.
    """
    loopback.require()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    control, git_root = folder / "control.json", folder / "git"
    with _api(folder, existing, tls) as kubeconfig:
        arguments = ["--kubeconfig", str(kubeconfig), "--hosts", str(fleet), "--control-out", str(control), *_parent(), *options]
        arguments += ["--git-root", str(git_root)]
        with _process("simulator", arguments, control, folder):
            where = json.loads(control.read_text())
            yield SimulatedCluster(kubeconfig, where["url"], where["token"], where["logs"], git_root)


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
