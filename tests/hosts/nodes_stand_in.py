"""Stand-in for what runs on RKE2's machines: nodes, static pods, charts and check pods, played in the hosts' real API server.

The simulator of the rehearsals does it, as an API client. It is told which hosts run the stand-in for RKE2, in which release, by
looking at the hosts themselves.
"""

import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from hostlab.host import Host
from hostlab.lab import Lab

from steps.clients.ansible import playing as ansible
from steps.contract.host_play import PlayHost, PlayRequest, PlayStatus
from steps.errors import Unreachable
from workflows.plan.model import Plan
from workflows.rehearsal.simulated_cluster import ExistingServer, SimulatedCluster, simulated_cluster, write_fleet

LOOK_SECONDS = 0.3
QUICK = ("--real-time", "1", "--delay-scale", "0.02")
"""Time is the wall's, as it is for the steps; kubelets and charts need a fiftieth of what real ones do."""

RUNNING = "for kind in server agent; do systemctl --quiet is-active rke2-$kind && echo $kind; done; /usr/local/bin/rke2 --version"
KUBECONFIG = "/etc/rancher/rke2/rke2.yaml"
CONFIG = "/etc/rancher/rke2/config.yaml"


@contextmanager
def played(lab: Lab, plan: Plan, folder: Path) -> Iterator[None]:
    """Play them while the context lasts; `plan` says which machines there are. What ended the playing before, and
    let a run wait for nodes that nobody plays, is raised at the end."""
    done = threading.Event()
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(_play, lab, plan, folder, done)
        try:
            yield
        finally:
            done.set()
            playing.result()


def _play(lab: Lab, plan: Plan, folder: Path, done: threading.Event) -> None:
    known: dict[str, tuple[str, str]] = {}
    looks = {host: Look(lab, host) for host in lab.hosts}
    with ExitStack() as stack:
        cluster: SimulatedCluster | None = None
        while not done.wait(LOOK_SECONDS):
            shown = {host: state for host, look in looks.items() if (state := look.state()) is not None}
            if cluster is not None and not shown:  # taken back: the next cluster has other certificates and tokens
                stack.close()
                cluster, known = None, {}
            if cluster is None and (kubeconfig := _kubeconfig(shown, folder)) is not None:
                existing = ExistingServer(kubeconfig=kubeconfig)
                cluster = stack.enter_context(simulated_cluster(folder, write_fleet(folder, plan), QUICK, existing))
            if cluster is not None:
                _follow(cluster, plan, lab, {host.name: state for host, state in shown.items()}, known)


def _follow(
    cluster: SimulatedCluster, plan: Plan, lab: Lab, shown: dict[str, tuple[str, str]], known: dict[str, tuple[str, str]]
) -> None:
    """Tell the simulator what has changed since: a host that came, went, or changed its release."""
    for host in lab.hosts:
        state = shown.get(host.name)
        if state is None and host.name in known and _let(cluster, host, "rke2_reset", {}):
            del known[host.name]
        elif state is not None and state[0] and known.get(host.name) != state:
            kind, version = state
            said = _arguments(plan, f"{kind}s")["variables"] | {"rke2_version": version} | _registers(plan, host)
            if _let(cluster, host, f"rke2_{kind}", said):
                known[host.name] = state


class Look:
    """Cached state of RKE2 on a host. The host is asked again only if the program or the processes of its services have changed,
    since each question takes as long as some of the steps do."""

    def __init__(self, lab: Lab, host: Host) -> None:
        self._host = host
        self._program = host.folder / "upper/usr/local/bin/rke2"
        self._services = lab.folder / "cgroup" / f"bringup-{host.name}" / "system.slice"
        self._seen: tuple[object, tuple[str, str] | None] = (None, None)

    def state(self) -> tuple[str, str] | None:
        """See `_state`."""
        traces, (before, last) = self._traces(), self._seen
        if traces is None:
            return None
        if traces != before or last is None or not last[0]:
            self._seen = (traces, _state(self._host))
        return self._seen[1]

    def _traces(self) -> object:
        """The program and the processes of the services; None where no program is."""
        try:
            program = self._program.stat()
        except OSError:
            return None
        found = []
        for service in sorted(self._services.glob("rke2-*.service")):
            with suppress(OSError):  # it ended meanwhile
                found.append((service.stat().st_ino, (service / "cgroup.procs").read_text()))
        return program.st_ino, program.st_mtime_ns, found


def _state(host: Host) -> tuple[str, str] | None:
    """Kind and release of what is installed on a host, without a kind where its service is down; None where nothing is."""
    try:
        *kinds, said = host.run("sh", "-c", RUNNING).splitlines()
    except (subprocess.CalledProcessError, RuntimeError, ValueError):
        return None
    return "".join(kinds), said.split()[2]


def _registers(plan: Plan, host: Host) -> dict[str, Any]:
    """The labels and taints that the host's own configuration has its kubelet register it with."""
    config = yaml.safe_load(host.run("cat", CONFIG))
    taints = {machine.group: config.get("node-taint", []) for machine in plan.hosts}
    return {"rke2_node_labels": {}, "rke2_host_labels": {host.name: config.get("node-label", [])}, "rke2_node_taints": taints}


def _kubeconfig(shown: dict[Host, tuple[str, str]], folder: Path) -> Path | None:
    """The admin's kubeconfig of a server that serves, with the address at which this machine reaches it."""
    for host in (host for host, (kind, _) in shown.items() if kind == "server"):
        try:
            text = host.run("cat", KUBECONFIG)
        except (subprocess.CalledProcessError, RuntimeError):
            continue
        path = folder / "kubeconfig"
        path.touch(0o600)
        path.write_text(text.replace("127.0.0.1", host.address))
        return path
    return None


def _let(cluster: SimulatedCluster, host: Host, playbook: str, variables: dict[str, Any]) -> bool:
    """Let the simulated machine of this name do what the real one has done; it cannot while the API server is away."""
    hosts = (PlayHost(name=host.name, address=host.address),)
    try:
        played = ansible.play(PlayRequest(playbook=playbook, hosts=hosts, variables=variables), environ=cluster.environment)
    except Unreachable:
        return False
    return played.status is PlayStatus.OK


def _arguments(plan: Plan, name: str) -> dict[str, Any]:
    return next(task.arguments for task in plan.tasks if (task.stage, task.name) == ("rke2", name))
