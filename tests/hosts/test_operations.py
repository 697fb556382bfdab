"""A bring-up on real hosts by the command line: bare, again, a host added, one replaced, an upgrade, a reset.

Servers run the stand-in for RKE2 with a real etcd and API server; nodes and pods in it are played by the simulator.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import load_balancer
import nodes_stand_in
import pytest
import rke2_settings
import yaml
from bringup_command import Command
from cluster_site import NEWER, OLDER, Site
from hostlab.host import Host
from hostlab.lab import Init
from rke2_settings import kubectl

from workflows.plan.compiler import compile_plan

SETTINGS, TOKEN = "/etc/rancher/rke2/config.yaml", "/etc/rancher/rke2/token"
LISTED = "find /etc/rancher -type f -exec sha256sum {} + | sort; systemctl show --property=InvocationID rke2-server rke2-agent"
UNSCHEDULABLE = "-o=jsonpath={.spec.unschedulable}"
UID = "-o=jsonpath={.metadata.uid}"


@pytest.fixture
def site(up: Any, tmp_path: Path, source: str) -> Site:
    """Four bare hosts, of which the spec has three first."""
    return Site(up(4, Init.SYSTEMD, prepared=True), tmp_path, source)


def test_bare_hosts_become_a_cluster_that_is_added_to_repaired_upgraded_and_taken_back(site: Site, tmp_path: Path) -> None:
    hosts = site.lab.hosts
    hosts[2].unplug()
    site.more = rke2_settings.SECTIONS
    plan = compile_plan(site.write("n[001-003]"))
    site.write("n[001-002]")
    with nodes_stand_in.played(site.lab, plan, tmp_path / "played"):
        said, changed = site.passes("run", "cluster.yaml", "--until", "rke2")
        assert changed == ["n000", "n001"]
        assert "os_prep: pass: 2 of 3 nodes passed all gates; set aside: n002:" in said
        rke2_settings.assert_files(hosts[0], hosts[1])
        rke2_settings.assert_registered(hosts[0])
        rke2_settings.assert_guarded(hosts[0])

        rows = json.loads(site.bringup.call("quarantine", "list", "-o", "json", check=True).stdout)
        assert [(row["node"], row["stage"], row["released"]) for row in rows] == [("n002", "os_prep", "")]

        hosts[2].plug()
        said, changed = site.passes("run", "cluster.yaml", "--until", "rke2")
        assert changed == ["n002"], "what stands is left alone"
        said, changed = site.passes("run", "cluster.yaml", "--until", "rke2")
        assert changed == []
        for stage in ("os_prep", "rke2"):
            assert re.search(rf"^{stage} +pass +(\d+ min )?[\d.]+ s .*; 3 hosts: nothing changed$", said, re.MULTILINE), said

        site.write("n[001-003]")
        said, changed = site.passes("add-node", "cluster.yaml", "--hosts", "n003")
        assert changed == ["n003"]
        assert "rke2: nodes pass: 4 of 4 nodes: Ready with v1.35.7+rke2r1" in said

        old = kubectl(hosts[0], "get", "node", "n001", UID)
        hosts[1].run("sh", "-c", "rke2-killall.sh; rke2-uninstall.sh")
        said, changed = site.passes("replace-node", "cluster.yaml", "--hosts", "n001")
        assert changed == ["n001"]
        assert kubectl(hosts[0], "get", "node", "n001", UID) not in ("", old)

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


@pytest.mark.sampled("rke2 on hosts")
def test_an_rke2_of_others_is_adopted_and_a_broken_host_is_set_aside_released_or_replaced(site: Site, tmp_path: Path) -> None:
    hosts = site.lab.hosts
    plan = compile_plan(site.write("n[001-002]"))
    with nodes_stand_in.played(site.lab, plan, tmp_path / "played"):
        site.passes("run", "cluster.yaml", "--until", "rke2")
        set_aside_and_released(site)
        adopted(site)

        old = kubectl(hosts[0], "get", "node", "n001", UID)
        hosts[1].run("systemctl", "stop", "ssh")
        said, changed = site.passes("run", "cluster.yaml", "--only", "os_prep")
        assert (changed, "set aside: n001: unreachable" in said) == ([], True), said
        reinstalled(hosts[1])
        site.bringup.call("host-keys", "cluster.yaml", "--yes", "--replace", "n001", check=True)
        said, changed = site.passes("replace-node", "cluster.yaml", "--hosts", "n001")
        assert changed == ["n001"]
        assert kubectl(hosts[0], "get", "node", "n001", UID) not in ("", old)


def set_aside_and_released(site: Site) -> None:
    """A file of somebody's wins over RKE2's settings on one agent: it is set aside and cordoned, and comes back once released."""
    host = site.lab.hosts[2]
    host.run("sh", "-c", f"mkdir -p {SETTINGS}.d; echo 'server: https://192.0.2.1:9345' > {SETTINGS}.d/50-odd.yaml")
    said, changed = site.passes("run", "cluster.yaml", "--until", "rke2")
    assert (changed, "set aside: n002:" in said) == ([], True), said
    row = json.loads(site.bringup.call("quarantine", "list", "-o", "json", check=True).stdout)[0]
    assert (row["node"], row["stage"], "50-odd.yaml sets server" in row["reason"]) == ("n002", "rke2", True), row
    assert kubectl(site.lab.hosts[0], "get", "node", "n002", UNSCHEDULABLE) == "true"

    host.run("rm", f"{SETTINGS}.d/50-odd.yaml")
    release = ("quarantine", "release", "n002", "--as", "tests@example.org")
    assert "released n002 as tests@example.org, uncordoned" in site.bringup.call(*release, check=True).stdout
    assert kubectl(site.lab.hosts[0], "get", "node", "n002", UNSCHEDULABLE) == ""
    again = site.bringup.call(*release)
    assert (again.returncode, "n002" in again.stderr) == (64, True), again.stderr
    assert "tests@example.org at " in site.bringup.call("quarantine", "list", check=True).stdout


def adopted(site: Site) -> None:
    """RKE2 as others have set it up, without config.yaml on a server (a quick start) and an agent (Rancher), and a run that knows
    nothing of it: it passes the gates, and nothing is touched."""
    server, other, agent = site.lab.hosts[:3]
    rancher = json.dumps(yaml.safe_load(agent.run("cat", SETTINGS)) | {"token": agent.run("cat", TOKEN).strip()}, indent=2)
    for host in (server, other, agent):
        host.run("sh", "-c", f"cp -a {SETTINGS} /root/ours; sed -i 1d {SETTINGS}")
    for host in (server, agent):
        host.run("sh", "-c", f"rm {SETTINGS}; mv {TOKEN} /root")
    agent.run("sh", "-c", f"mkdir -p {SETTINGS}.d; cat > {SETTINGS}.d/50-rancher.yaml", text=rancher)
    theirs = [host.run("sh", "-c", LISTED) for host in site.lab.hosts[:3]]
    stranger = Command(site.folder, site.folder / "another-home")
    done = stranger.call("run", "cluster.yaml", "--until", "rke2", check=True)
    assert "rke2: pass: 3 of 3 nodes passed all gates" in done.stdout, done.stdout
    assert [change for attempt in stranger.report()["attempts"] for change in attempt["changes"] if change.startswith("n0")] == []
    assert [host.run("sh", "-c", LISTED) for host in site.lab.hosts[:3]] == theirs
    for host in (server, other, agent):
        host.run("cp", "-a", "/root/ours", SETTINGS)
    for host in (server, agent):
        host.run("mv", "/root/token", TOKEN)
    agent.run("rm", "-r", f"{SETTINGS}.d")


def reinstalled(host: Host) -> None:
    """A new machine stands in the place of a dead one: without RKE2, and with another SSH host key."""
    host.run("sh", "-c", "rke2-killall.sh; rke2-uninstall.sh; rm /etc/ssh/ssh_host_ed25519_key*")
    host.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/ssh/ssh_host_ed25519_key")
    host.run("systemctl", "start", "ssh")


@pytest.fixture
def balanced(site: Site, tmp_path: Path) -> Iterator[str]:
    """The address of a load balancer before three servers."""
    with load_balancer.balanced(site.lab.hosts[:3], tmp_path) as address:
        yield address


@pytest.mark.long
def test_three_servers_share_one_etcd_through_an_upgrade_a_rollback_and_the_loss_of_one(
    site: Site, balanced: str, tmp_path: Path
) -> None:
    hosts = site.lab.hosts
    site.registration_address = balanced
    plan = compile_plan(site.write("n003", servers=3))
    with nodes_stand_in.played(site.lab, plan, tmp_path / "played"):
        said, changed = site.passes("run", "cluster.yaml", "--until", "rke2")
        assert changed == ["n000", "n001", "n002", "n003"]
        assert "3 of 3 etcd members are healthy" in said

        site.write("n003", NEWER, servers=3)
        said, changed = site.passes("upgrade", "cluster.yaml")
        assert changed == ["n000", "n001", "n002", "n003"]
        assert "3 of 3 etcd members are healthy" in said

        kubectl(hosts[2], "create", "configmap", "written-since")
        site.write("n003", servers=3)
        said, changed = site.passes("rollback", "cluster.yaml", "--yes")
        assert changed == ["n000", "n001", "n002", "n003"]
        assert f"RKE2 {OLDER} again on 4 hosts; etcd set back to /var/lib/rancher/rke2/server/db/snapshots/bringup-before-" in said
        assert "3 of 3 etcd members are healthy" in said
        assert "written-since" not in kubectl(hosts[1], "get", "configmaps")

        hosts[1].run("sh", "-c", "rke2-killall.sh; rke2-uninstall.sh")
        said, changed = site.passes("replace-node", "cluster.yaml", "--hosts", "n001")
        assert changed == ["n001"]
        assert "3 of 3 etcd members are healthy" in said
