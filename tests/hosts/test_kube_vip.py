"""The registration address held by the real kube-vip, from the founding of a cluster to the loss of the server that has it.

Asked for by `BRINGUP_KUBE_VIP=PROGRAM`: the program is not made here. The servers run the stand-in for RKE2 with a real etcd and
API server; what kubelet does with the static pod that the role writes is played.
"""

import os
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import nodes_stand_in
import pytest
import yaml
from cluster_site import Site
from hostlab.host import Host
from hostlab.lab import Init
from hostlab.waiting import until

from workflows.plan.compiler import compile_plan

PROGRAM = os.environ.get("BRINGUP_KUBE_VIP", "")

pytestmark = [pytest.mark.long, pytest.mark.skipif(not PROGRAM, reason="BRINGUP_KUBE_VIP names no kube-vip program")]

ADDRESS = "10.77.200.1"
MANIFEST = "/var/lib/rancher/rke2/agent/pod-manifests/kube-vip.yaml"
PLACE = "/opt/kube-vip"
CONTAINER = f"""set -e
mkdir -p "$(dirname "$2")"
touch "$2"
mount --bind "$1" "$2"
(cat /etc/hosts; echo "$3") > /run/kube-vip.hosts
mount --bind /run/kube-vip.hosts /etc/hosts
exec setpriv --bounding-set="$4" --inh-caps="$4" {PLACE} "$5"
"""
"""Shell that runs kube-vip as the manifest's container: with one mounted file, its lines of /etc/hosts and its capabilities."""
LOOK_SECONDS, MOVE_SECONDS, SECONDS = 0.3, 15.0, 60.0


class Kubelet:
    """Runs the static pod of one server, once there is one."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.log = folder / f"{host.name}.log"
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None

    def look(self) -> None:
        """Start it where it should run and does not."""
        if self._process is None or self._process.poll() is not None:
            with suppress(subprocess.CalledProcessError):  # the role has not written it, or RKE2 what it mounts
                self._start(yaml.safe_load(self._host.run("cat", MANIFEST)))

    def end(self) -> None:
        """End it, without a chance to give the address back."""
        if self._process is not None and self._process.poll() is None:
            self._host.run("pkill", "--signal", "KILL", "--full", f"^{PLACE}")
            self._process.wait()

    def _start(self, pod: Mapping[str, Any]) -> None:
        (container,), (volume,) = pod["spec"]["containers"], pod["spec"]["volumes"]
        (mount,), (argument,) = container["volumeMounts"], container["args"]
        rights = container["securityContext"]["capabilities"]
        assert rights["drop"] == ["ALL"]
        self._host.run("test", "-s", volume["hostPath"]["path"])
        with open(PROGRAM, "rb") as program:
            self._enter("sh", "-c", f"test -e {PLACE} || install -m 755 /dev/stdin {PLACE}", stdin=program).wait()
        self._process = self._enter(
            *("env", "--ignore-environment", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"),
            *(f"{one['name']}={self._value(one)}" for one in container["env"]),
            *("unshare", "--mount", "sh", "-c", CONTAINER, "sh", volume["hostPath"]["path"], mount["mountPath"]),
            "\n".join(f"{one['ip']} {' '.join(one['hostnames'])}" for one in pod["spec"]["hostAliases"]),
            *(",".join(["-all", *(f"+{right.lower()}" for right in rights["add"])]), argument),
        )

    def _value(self, one: Mapping[str, Any]) -> str:
        """Of a variable of the container's environment."""
        if "value" in one:
            return str(one["value"])
        assert one["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
        return self._host.name

    def _enter(self, *command: str, stdin: Any = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        enter = ["nsenter", "--target", str(self._host.init()), "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd=/"]
        with self.log.open("ab") as log:
            return subprocess.Popen([*enter, *command], stdin=stdin, stdout=log, stderr=log)


@contextmanager
def kubelets(servers: Sequence[Host], folder: Path) -> Iterator[None]:
    """Of all servers, while the context lasts."""
    done, every = threading.Event(), [Kubelet(host, folder) for host in servers]

    def play() -> None:
        while not done.wait(LOOK_SECONDS):
            for one in every:
                one.look()

    with ThreadPoolExecutor(1) as pool:
        playing = pool.submit(play)
        try:
            yield
        finally:
            done.set()
            playing.result()
            for one in every:
                one.end()


def held(servers: Sequence[Host]) -> list[str]:
    """Return the servers that hold the registration address."""
    return [host.name for host in servers if f" {ADDRESS}/32 " in host.run("ip", "-oneline", "address", "show")]


def answers() -> bool:
    """Return True if a supervisor answers at the registration address."""
    with (
        suppress(OSError),
        urllib.request.urlopen(f"https://{ADDRESS}:9345/ping", timeout=2, context=ssl._create_unverified_context()) as answer,
    ):
        return bool(answer.read() == b"pong")
    return False


def test_servers_and_agents_join_at_the_address_and_it_moves_where_its_server_is_lost(up: Any, tmp_path: Path, source: str) -> None:
    site = Site(up(4, Init.SYSTEMD), tmp_path, source)
    servers = site.lab.hosts[:3]
    site.registration_address = ADDRESS
    site.more = {"rke2": {"virtual_address": {"interface": "eth0"}}}
    plan = compile_plan(site.write("n003", servers=3))
    with nodes_stand_in.played(site.lab, plan, tmp_path / "played"), kubelets(servers, tmp_path):
        site.passes("run", "cluster.yaml", "--only", "rke2")
        (had,) = held(servers)
        assert answers()

        lost = next(host for host in servers if host.name == had)
        others = [host for host in servers if host is not lost]
        lost.unplug()
        assert until(lambda: len(held(others)) == 1 and answers(), MOVE_SECONDS), (tmp_path / f"{others[0].name}.log").read_text()
        lost.plug()
        assert until(lambda: held(servers) == held(others), SECONDS), "who had it has given it back"

        _, changed = site.passes("run", "cluster.yaml", "--only", "rke2")
        assert changed == []
    site.passes("reset", "cluster.yaml", "--yes")
    assert held(servers) == []
