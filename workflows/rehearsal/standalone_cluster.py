"""A simulated cluster without a run, on which RKE2 is up, for people and tools that want to look at one."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import urllib3

from steps.clients.kube import kubeconfig
from steps.contract.host_play import PlayHost, PlayRequest
from workflows.plan.model import Plan
from workflows.rehearsal.simulated_cluster import SimulatedCluster, simulated_cluster, write_fleet

PLAY_SECONDS = 600.0
"""Timeout in seconds of one playbook on simulated hosts. Thousands take seconds; ten minutes mean that the simulator hangs."""


class KubeconfigExists(ValueError):
    """Raised if the file for the new kubeconfig exists already, because it may belong to somebody."""

    hint = "name a file that does not exist; it is deleted with the simulated cluster"


class PlayRefused(RuntimeError):
    """Raised if the simulator refuses to run a playbook on the simulated hosts."""


@contextmanager
def serving(
    plan: Plan, kubeconfig_out: Path, *, faults: Sequence[str] = (), speed: float = 60.0, bare: bool = False
) -> Iterator[str]:
    """Serve a simulated cluster while the context lasts, and yield the URL of its API server.

    RKE2 is installed on the hosts unless `bare`. `speed` is in simulated seconds per real second. The kubeconfig is deleted with
    the cluster. SIGINT and SIGTERM are blocked meanwhile, for `until_interrupted`. Raises KubeconfigExists.
    """
    if kubeconfig_out.exists():
        raise KubeconfigExists(f"{kubeconfig_out} exists already")
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        fleet = write_fleet(Path(folder), plan)
        options = ["--real-time", str(speed), *(part for fault in faults for part in ("--fault", fault))]
        with simulated_cluster(Path(folder) / "cluster", fleet, options, tls=True) as cluster:
            if not bare:
                _bring_up(plan, cluster)
            with _private_copy(cluster.kubeconfig, kubeconfig_out), _held_back():
                yield kubeconfig.load(cluster.kubeconfig).server


_ENDING = {signal.SIGINT, signal.SIGTERM}


def until_interrupted() -> None:
    """Block until SIGINT or SIGTERM; return at once if one has arrived since `serving` yielded."""
    signal.sigwait(_ENDING)


@contextmanager
def _held_back() -> Iterator[None]:
    """Block SIGINT and SIGTERM while the context lasts, so that `until_interrupted` receives them whenever they arrive."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _bring_up(plan: Plan, cluster: SimulatedCluster) -> None:
    """Run the plan's RKE2 playbooks on the simulated hosts, in the plan's order. Raises PlayRefused."""
    http = urllib3.PoolManager(1, headers={"Authorization": f"Bearer {cluster.token}"}, retries=False)
    steps = [step.task for stage in plan.stages if stage.id == "rke2" for step in stage.steps if "playbook" in step.task.arguments]
    for task in steps:
        role = "server" if task.arguments["playbook"].endswith("server") else "agent"
        chosen = (host for host in plan.hosts if host.role == role)
        hosts = tuple(PlayHost(name=host.name, address=host.address, groups=(host.group, host.role)) for host in chosen)
        request = PlayRequest(playbook=task.arguments["playbook"], hosts=hosts, variables=task.arguments.get("variables", {}))
        body = msgspec.json.encode(request)
        answer = http.request("POST", f"{cluster.url}/hosts/play", body=body, timeout=PLAY_SECONDS)
        if answer.status != 200:
            raise PlayRefused(f"the simulated hosts refused {request.playbook}: {answer.data[:300].decode(errors='replace')}")


@contextmanager
def _private_copy(source: Path, target: Path) -> Iterator[None]:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with source.open("rb") as data, os.fdopen(handle, "wb") as out:
            shutil.copyfileobj(data, out)
        yield
    finally:
        target.unlink(missing_ok=True)
