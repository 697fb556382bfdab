"""Another run's lease on real hosts: it keeps what a second home starts out before a host is changed, unless the cluster is dead.

The server runs the stand-in for RKE2 with a real etcd and API server; nodes and pods in it are played by the simulator.
"""

import datetime
import json
from pathlib import Path
from typing import Any

import nodes_stand_in
import pytest
from bringup_command import Command
from cluster_site import NEWER, Site
from hostlab.lab import Init
from rke2_settings import kubectl

from workflows.plan.compiler import compile_plan

pytestmark = pytest.mark.sampled("rke2 on hosts")

LEASE = ("lease", "bringup", "--namespace=kube-system")
LISTED = "find /etc/rancher /usr/local/bin -type f -exec sha256sum {} + | sort; systemctl show --property=InvocationID rke2-server"


def held(holder: str) -> str:
    """A lease of six hours, renewed now."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return json.dumps({"spec": {"holderIdentity": holder, "renewTime": now, "leaseDurationSeconds": 21_600}})


@pytest.fixture
def site(up: Any, tmp_path: Path, source: str) -> Site:
    """A server and an agent."""
    return Site(up(2, Init.SYSTEMD, prepared=True), tmp_path, source)


def test_a_second_home_is_kept_out_of_a_held_cluster_and_takes_a_dead_one_back(site: Site, tmp_path: Path) -> None:
    server, agent = site.lab.hosts
    second = Command(tmp_path, tmp_path / "second")
    plan = compile_plan(site.write("n001"))
    with nodes_stand_in.played(site.lab, plan, tmp_path / "played"):
        site.passes("run", "cluster.yaml", "--until", "rke2")
        assert kubectl(server, "get", *LEASE, "--output=jsonpath={.spec.holderIdentity}") == "", "what ended gave it back"

        before = [host.run("sh", "-c", LISTED) for host in (server, agent)]
        kubectl(server, "patch", *LEASE, "--type=merge", "--patch", held("elsewhere"))
        site.write("n001", NEWER)
        for command in (["upgrade"], ["reset", "--yes"], ["replace-node", "--hosts", "n001"]):
            done = second.call(command[0], "cluster.yaml", *command[1:])
            assert (done.returncode, "run elsewhere holds this cluster, renewed" in done.stdout + done.stderr) == (65, True), done
            assert [host.run("sh", "-c", LISTED) for host in (server, agent)] == before, command

    server.run("rke2-killall.sh")
    done = second.call("reset", "cluster.yaml", "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.run("sh", "-c", "ls /etc/rancher 2>/dev/null || true").strip() == ""
