"""Serves a simulated cluster on its own, with RKE2 up, for people and tools that want to look at one."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import urllib3

from steps.clients import kubeconfig as kubeconfigs
from steps.contract.play import PlayHost, PlayRequest
from workflows.plan.model import Plan
from workflows.rehearsal.processes import SimulatedCluster, simulated_cluster

PLAY_SECONDS = 600.0
"""A play over thousands of simulated hosts takes seconds; ten minutes means that the simulator hangs."""


class PlayRefused(RuntimeError):
    """The simulated hosts did not take a play."""


@contextmanager
def serving(
    plan: Plan, kubeconfig_out: Path, *, faults: Sequence[str] = (), speed: float = 60.0, bare: bool = False
) -> Iterator[str]:
    """Serve while the context lasts; yields the API server's address. `speed` is simulated seconds a second."""
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        fleet = Path(folder) / "machines.json"
        fleet.write_bytes(msgspec.json.encode({"hosts": plan.hosts, "accelerator": plan.accelerator}))
        options = ["--real-time", str(speed), *(part for fault in faults for part in ("--fault", fault))]
        with simulated_cluster(Path(folder) / "cluster", fleet, options) as cluster:
            if not bare:
                _bring_up(plan, cluster)
            _copy_private(cluster.kubeconfig, kubeconfig_out)
            yield _server(cluster.kubeconfig)


def until_interrupted() -> None:
    """Return on SIGINT or SIGTERM."""
    waited = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    signal.sigwait(waited)


def _bring_up(plan: Plan, cluster: SimulatedCluster) -> None:
    """Play the plan's own RKE2 tasks on the simulated hosts, servers first."""
    http = urllib3.PoolManager(1, headers={"Authorization": f"Bearer {cluster.token}"}, retries=False)
    steps = [step.task for stage in plan.stages if stage.id == "rke2" for step in stage.steps if "playbook" in step.task.arguments]
    for task in steps:
        role = "server" if task.arguments["playbook"].endswith("server") else "agent"
        hosts = tuple(
            PlayHost(name=host.name, address=host.address, groups=(host.group, host.role))
            for host in plan.hosts
            if host.role == role
        )
        request = PlayRequest(playbook=task.arguments["playbook"], hosts=hosts, variables=task.arguments.get("variables", {}))
        body = msgspec.json.encode(request)
        answer = http.request("POST", f"{cluster.url}/hosts/play", body=body, timeout=PLAY_SECONDS)
        if answer.status != 200:
            raise PlayRefused(f"the simulated hosts refused {request.playbook}: {answer.data[:300].decode(errors='replace')}")


def _copy_private(source: Path, target: Path) -> None:
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with source.open("rb") as data, os.fdopen(handle, "wb") as out:
        os.fchmod(out.fileno(), 0o600)
        shutil.copyfileobj(data, out)


def _server(kubeconfig: Path) -> str:
    return kubeconfigs.load(kubeconfig).server
