"""The two processes of a simulated cluster, an API server and a simulator: starting, stopping and calling them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import urllib3

from steps.clients.environment import GIT_ROOT, SIMULATOR, SIMULATOR_TOKEN
from steps.clients.kube import kubeconfig as kubeconfigs
from workflows.engines.local.executor import StartProcess, start_process
from workflows.plan.model import Plan
from workflows.rehearsal import loopback
from workflows.rehearsal.simulator.machines.kubelet_port import own_address
from workflows.rehearsal.step_forks import StepForks

FLEET = "machines.json"
"""Name of the file that describes the machines to the simulator."""

START_SECONDS = 60.0
"""Seconds after which a process that does not serve yet counts as failed. On an idle machine the start takes under one."""
STOP_SECONDS = 10.0
LOOK_SECONDS = 0.02
CALL_SECONDS = 120.0
"""Timeout in seconds of a call to the simulator. Restoring 1,000 nodes takes one; two minutes mean that a process hangs."""


MEMORY = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(1 << 20), "MALLOC_TRIM_THRESHOLD_": str(4 << 20)}
"""Settings of glibc's allocator (mallopt(3)). By default threads have heaps of their own, in which freed lists of 50 MB stay."""


class ProcessDidNotStart(RuntimeError):
    """Raised if a process of the simulated cluster ended or did not serve in time; the message holds the end of its log."""


@dataclass(frozen=True)
class SimulatedCluster:
    """A running simulated cluster: its admin kubeconfig, and URL and token of its simulator's control API.

    `no_logs` says why its API server cannot read logs of simulated pods; empty if it can. `git_root` is the folder of the bare
    repositories that stand for all Git servers. `start` starts a step of the run.
    """

    kubeconfig: Path
    url: str
    token: str
    no_logs: str = ""
    git_root: Path = Path()
    start: StartProcess = start_process

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables with which steps use the simulated clock, hosts and Git repositories."""
        return {SIMULATOR: self.url, SIMULATOR_TOKEN: self.token, GIT_ROOT: str(self.git_root)}


@dataclass(frozen=True, kw_only=True)
class ExistingServer:
    """An API server that runs already and that a rehearsal uses instead of an emulated one.

    `roles_off` names the simulator roles that real programs of that cluster take over. They need real time, so virtual time then
    runs at `speed` virtual seconds per real second. `nodes_at` is the address at which the API server reaches this machine for logs
    of simulated pods; if empty, this machine's address on the route to the server.
    """

    kubeconfig: Path
    roles_off: tuple[str, ...] = ()
    speed: float = 0.0
    nodes_at: str = ""

    def arguments(self) -> list[str]:
        """Return command-line arguments that make a simulator process use this API server."""
        address = self.nodes_at or own_address(kubeconfigs.load(self.kubeconfig).server)
        options = {"--roles-off": ",".join(self.roles_off), "--real-time": self.speed or "", "--kubelet-address": address}
        return [part for name, value in options.items() if value for part in (name, str(value))]


def write_fleet(folder: Path, plan: Plan) -> Path:
    """Write the file that describes the plan's machines to the simulator into `folder`, and return its path."""
    fleet = folder / FLEET
    fleet.write_bytes(fleet_document(plan))
    return fleet


def fleet_document(plan: Plan) -> bytes:
    """Return the content of the file that describes the plan's machines to the simulator."""
    document = {"hosts": plan.hosts, "accelerator": plan.accelerator, "built": plan.built, "argo_cd": _argo_cd(plan)}
    return msgspec.json.encode(document)


def _argo_cd(plan: Plan) -> dict[str, str] | None:
    """Return namespace and version of the site's own Argo CD; None unless the plan waits for one that it does not install."""
    tasks = {step.task.name: step.task for stage in plan.stages if stage.id == "base_services" for step in stage.steps}
    if "argo_cd" not in tasks or "argo_cd_install" in tasks:
        return None
    expected = tasks["argo_cd"].expectations
    return {"namespace": str(expected["namespace"]), "version": str(expected["version"])}


@dataclass(frozen=True, kw_only=True)
class ServedAddress:
    """The address at which a simulated cluster serves other machines: `files` has tls.crt, tls.key and token."""

    files: Path
    host: str
    api_port: int
    control_port: int

    def api_arguments(self) -> list[str]:
        """Return command-line arguments of the API server process."""
        return ["--served", str(self.files), "--port", str(self.api_port)]

    def simulator_arguments(self) -> list[str]:
        """Return command-line arguments of the simulator process."""
        address = f"https://{self.host}:{self.api_port}"
        return ["--served", str(self.files), "--port", str(self.control_port), "--advertise", address]


@contextmanager
def simulated_cluster(
    folder: Path,
    fleet: Path,
    options: Sequence[str] = (),
    existing: ExistingServer | None = None,
    tls: bool = False,
    served: ServedAddress | None = None,
    git_root: Path | None = None,
) -> Iterator[SimulatedCluster]:
    """Run a simulated cluster while the context lasts. `fleet` is the file of `write_fleet`; `options` go to the simulator.

    The processes end with this one, even if it is killed (`--with-parent`). An `existing` API server keeps running. `tls` makes the
    emulated one serve HTTPS, because kubectl sends no token over plain HTTP; `served` makes both processes serve other machines.
    Raises NoLoopback or ProcessDidNotStart.
    """
    loopback.require_loopback()
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    control, git_root = folder / "control.json", git_root or folder / "git"
    how = served.api_arguments() if served else ["--tls"] if tls else []
    with closing(StepForks(folder / "steps.log")) as forks, _api(folder, existing, how) as kubeconfig:
        arguments = ["--kubeconfig", str(kubeconfig), "--hosts", str(fleet), "--control-out", str(control), *_parent(), *options]
        arguments += ["--git-root", str(git_root), *(served.simulator_arguments() if served else [])]
        with _process("simulator", arguments, control, folder):
            endpoint = json.loads(control.read_text())
            yield SimulatedCluster(kubeconfig, endpoint["url"], endpoint["token"], endpoint["logs"], git_root, forks.start)


@contextmanager
def _api(folder: Path, existing: ExistingServer | None, how: Sequence[str]) -> Iterator[Path]:
    """Yield the kubeconfig of the existing API server, or of an emulated one that runs while the context lasts."""
    if existing is not None:
        yield existing.kubeconfig
        return
    kubeconfig = folder / "kubeconfig"
    with _process("apiserver", ["--kubeconfig-out", str(kubeconfig), *how, *_parent()], kubeconfig, folder):
        yield kubeconfig


def _parent() -> list[str]:
    return ["--with-parent", str(os.getpid())]


@contextmanager
def _process(name: str, arguments: Sequence[str], ready: Path, folder: Path) -> Iterator[None]:
    ready.unlink(missing_ok=True)
    log = folder / f"{name}.log"
    command = [sys.executable, "-P", "-m", f"workflows.rehearsal.{name}", *arguments]
    with log.open("wb") as output:
        # its own session: Ctrl-C goes to the engine, which still needs the cluster to cancel cleanly
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=os.environ | MEMORY
        )
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


def _await(name: str, process: subprocess.Popen[bytes], ready: Path, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            tail = log.read_text(errors="replace")[-2000:]
            how = "did not serve in time" if process.returncode is None else f"ended with {process.returncode}"
            raise ProcessDidNotStart(f"the {name} of the simulated cluster {how}:\n{tail}")
        time.sleep(LOOK_SECONDS)


def call_control_api(method: str, url: str, token: str, body: bytes | None = None) -> bytes:
    """Send a request to the simulator or emulated API server; return the answer's body. Raises RuntimeError for a status ≥ 300."""
    with urllib3.PoolManager(1, retries=False, timeout=CALL_SECONDS) as http:
        answer = http.request(method, url, body=body, headers={"Authorization": f"Bearer {token}"})
    if answer.status >= 300:
        raise RuntimeError(f"{method} {url}: {answer.status}: {answer.data[:300].decode(errors='replace')}")
    return answer.data


def replace_hosts(cluster: SimulatedCluster, hosts: Collection[str]) -> None:
    """Replace the named hosts by bare machines, as if new hardware had been racked under their names."""
    state = msgspec.json.decode(call_control_api("GET", cluster.url + "/state", cluster.token))
    kept = {name: shown for name, shown in state["hosts"].items() if name not in hosts}
    call_control_api("PUT", cluster.url + "/state", cluster.token, msgspec.json.encode({**state, "hosts": kept}))


def set_faults(cluster: SimulatedCluster, faults: Sequence[str]) -> None:
    """Have the simulator play exactly these faults, each NAME or NAME:NODE,…; all others end."""
    rows = [dict(zip(("name", "node"), fault.partition(":")[::2], strict=True)) for fault in faults]
    call_control_api("PUT", cluster.url + "/faults", cluster.token, msgspec.json.encode(rows))
