"""A bring-up on real hosts by the command line: bare, again, a host added, one replaced, an upgrade, a reset.

Servers run the stand-in for RKE2 with a real etcd and API server; nodes and pods in it are played by the simulator.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nodes_stand_in
import pytest
import release_site
import yaml
from hostlab.host import Host
from hostlab.lab import Init, Lab

from workflows import spec as specs
from workflows.plan.compiler import compile_plan

sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))

from kubelab import needs, parts

BRINGUP = Path(sys.executable).with_name("bringup")
OLDER, NEWER = "v1.35.7+rke2r1", "v1.35.8+rke2r1"
PROGRAMS = ("etcd", "kube-apiserver", "kubectl")

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def programs() -> tuple[Path, ...]:
    """The real parts of a control plane, built where they are not cached; the reason where this machine cannot."""
    if reasons := needs.missing():
        if os.environ.get("CI") == "true":
            pytest.fail("real parts: " + "; ".join(reasons), pytrace=False)
        pytest.skip("real parts: " + "; ".join(reasons))
    every = parts.programs()
    return tuple(every[name] for name in PROGRAMS)


@pytest.fixture
def source(tmp_path: Path, programs: tuple[Path, ...]) -> Iterator[str]:
    """A download site with two releases, as hosts see it."""
    with release_site.offered(tmp_path, (OLDER, NEWER), programs) as url:
        yield url


class Site:
    """A spec of the lab's hosts and the command line beside it."""

    def __init__(self, lab: Lab, folder: Path, source: str) -> None:
        self.lab, self.folder, self.source = lab, folder, source

    def write(self, agents: str, version: str = OLDER, *, servers: int = 1) -> specs.ClusterSpec:
        """The spec with these agents after so many servers, and this release."""
        control = "n000" if servers == 1 else f"n[000-{servers - 1:03d}]"
        document: dict[str, Any] = {
            "apiVersion": "bringup/v1",
            "kind": "Cluster",
            "name": "real-hosts",
            "owner": "tests@example.org",
            "revision": "1",
            "stages": ["os_prep", "rke2"],
            "hosts": {
                "control": {"role": "server", "ranges": control, "addresses": {"start": "10.77.0.1"}},
                "nodes": {"role": "agent", "ranges": agents, "addresses": {"start": f"10.77.0.{servers + 1}"}},
            },
            "ssh": {"key": {"file": str(self.lab.key)}, "known_hosts": str(self.lab.known_hosts)},
            "os": {
                "distribution": "debian",
                "version": "12",
                "reboot": False,
                "free_disk_gib": {"/var/lib/rancher": 1},
                "tolerate": ["time service", "module *", "sysctl *", "apparmor*"],
            },
            # this machine's disk is shared with much else
            "rke2": {"version": version, "source": self.source, "images": ["core"], "etcd_fsync_ms": 1000, "drain_seconds": 30}
            | ({"registration_address": "10.77.0.1"} if servers > 1 else {}),
            "quorum": {"default": "1/2"},
        }
        (self.folder / "cluster.yaml").write_text(yaml.safe_dump(document))
        return specs.load(self.folder / "cluster.yaml")

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `bringup`."""
        environment = {**os.environ, "BRINGUP_HOME": str(self.folder / "home"), "NO_COLOR": "1"}
        command = [str(BRINGUP), *arguments]
        return subprocess.run(command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def passes(self, *arguments: str) -> tuple[str, list[str]]:
        """Run a command that must pass: what it printed, and the hosts that plays changed."""
        done = self.call(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        report = json.loads(self.call("report", "-o", "json").stdout)
        changes = (change for attempt in report["attempts"] for change in attempt["changes"] if ": " in change)
        return done.stdout, sorted({change.partition(":")[0] for change in changes if change.startswith("n0")})


@pytest.fixture
def site(up: Any, tmp_path: Path, source: str) -> Site:
    """Four bare hosts, of which the spec has three first."""
    return Site(up(4, Init.SYSTEMD, prepared=True), tmp_path, source)


def kubectl(server: Host, *words: str) -> str:
    """What the real kubectl says on a server."""
    return server.run("/var/lib/rancher/rke2/bin/kubectl", "--kubeconfig", "/etc/rancher/rke2/rke2.yaml", *words)


def test_bare_hosts_become_a_cluster_that_is_added_to_repaired_upgraded_and_taken_back(site: Site, tmp_path: Path) -> None:
    hosts = site.lab.hosts
    hosts[2].unplug()
    plan = compile_plan(site.write("n[001-003]"))
    site.write("n[001-002]")
    with nodes_stand_in.played(site.lab, plan, tmp_path / "played"):
        said, changed = site.passes("run", "cluster.yaml", "--until", "rke2")
        assert changed == ["n000", "n001"]
        assert "os_prep: pass: 2 of 3 nodes passed all gates; set aside: n002:" in said

        hosts[2].plug()
        said, changed = site.passes("run", "cluster.yaml", "--until", "rke2")
        assert changed == ["n002"], "what stands is left alone"
        assert site.passes("run", "cluster.yaml", "--until", "rke2")[1] == []

        site.write("n[001-003]")
        said, changed = site.passes("add-node", "cluster.yaml", "--hosts", "n003")
        assert changed == ["n003"]
        assert "rke2: nodes pass: 4 of 4 nodes: Ready with v1.35.7+rke2r1" in said

        old = kubectl(hosts[0], "get", "node", "n001", "-o=jsonpath={.metadata.uid}")
        hosts[1].run("sh", "-c", "rke2-killall.sh; rke2-uninstall.sh")
        said, changed = site.passes("replace-node", "cluster.yaml", "--hosts", "n001")
        assert changed == ["n001"]
        assert kubectl(hosts[0], "get", "node", "n001", "-o=jsonpath={.metadata.uid}") not in ("", old)

        site.write("n[001-003]", NEWER)
        said, changed = site.passes("upgrade", "cluster.yaml")
        assert changed == ["n000", "n001", "n002", "n003"]
        assert "rke2: nodes pass: 4 of 4 nodes: Ready with v1.35.8+rke2r1" in said
        assert "SchedulingDisabled" not in kubectl(hosts[0], "get", "nodes")

        said, changed = site.passes("reset", "cluster.yaml", "--hosts", "n003", "--yes")
        assert changed == ["n003"]
        assert "n003" not in kubectl(hosts[0], "get", "nodes")

    said, changed = site.passes("reset", "cluster.yaml", "--yes")
    assert changed == ["n000", "n001", "n002"]
    assert "reset: pass: 4 of 4 nodes passed all gates" in said
    assert site.passes("reset", "cluster.yaml", "--yes")[1] == []


def test_three_servers_share_one_etcd_through_an_upgrade_and_the_loss_of_one(site: Site, tmp_path: Path) -> None:
    hosts = site.lab.hosts
    plan = compile_plan(site.write("n003", servers=3))
    with nodes_stand_in.played(site.lab, plan, tmp_path / "played"):
        said, changed = site.passes("run", "cluster.yaml", "--until", "rke2")
        assert changed == ["n000", "n001", "n002", "n003"]
        assert "3 of 3 etcd members are healthy" in said

        site.write("n003", NEWER, servers=3)
        said, changed = site.passes("upgrade", "cluster.yaml")
        assert changed == ["n000", "n001", "n002", "n003"]
        assert "3 of 3 etcd members are healthy" in said

        hosts[1].run("sh", "-c", "rke2-killall.sh; rke2-uninstall.sh")
        said, changed = site.passes("replace-node", "cluster.yaml", "--hosts", "n001")
        assert changed == ["n001"]
        assert "3 of 3 etcd members are healthy" in said
