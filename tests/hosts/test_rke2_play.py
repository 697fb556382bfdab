"""The playbooks for RKE2 on systemd hosts, with a stand-in for its release: install, again, upgrade, roll back, refuse, reset."""

import base64
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import load_balancer
import pytest
import rke2_stand_in
import yaml
from hostlab.host import Host
from hostlab.lab import Init, Lab
from rke2_plays import MINOR, NEWER, VERSION, Site, lacks, nodes, play, said

from steps.contract.host_play import HostStatus

pytestmark = pytest.mark.sampled("rke2 on hosts")

KUBECTL_LOG = "/var/log/kubectl-stand-in.log"
REPOSITORY = "/etc/yum.repos.d/rancher-rke2-common.repo"
KILLED_WHILE_INSTALLING = """
kept=/var/lib/rancher/download/kept
rm -r $kept
mkdir -p $kept/usr/local/bin $kept/etc/rancher/rke2
cp /usr/local/bin/rke2* $kept/usr/local/bin
cp /etc/rancher/rke2/*.yaml $kept/etc/rancher/rke2
printf %s @RELEASE@ > $kept/VERSION
: > $kept/ABSENT
touch /var/lib/rancher/download/installing
echo "half of another release" > /usr/local/bin/rke2-killall.sh
"""
NOT_READY = """
import json, ssl, sys, urllib.request
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
node = json.load(open("/var/lib/rancher/rke2/server/db/etcd/nodes.json"))[sys.argv[1]]
node["status"]["conditions"][0]["status"] = "Unknown"
data = json.dumps({"nodes": {sys.argv[1]: node}, "removed": []}).encode()
urllib.request.urlopen(urllib.request.Request("https://127.0.0.1:9345/stand-in/spread", data), context=context).read()
"""
"""Python that reports a node as not ready: in a real cluster the controllers notice that its kubelet is silent."""
REGISTRY = {
    "registry.example.org": {"endpoints": ["https://192.0.2.5"], "username": "puller", "secrets": {"password": "rke2_secret_1"}},
    "private.example.org": {"secrets": {"ca": "rke2_secret_2"}},
}


@pytest.fixture
def lab(up: Any) -> Lab:
    """Four hosts."""
    made: Lab = up(4, Init.SYSTEMD)
    return made


@pytest.fixture
def registered_at(lab: Lab, tmp_path: Path) -> Iterator[str]:
    """The address of a load balancer before three of them."""
    with load_balancer.balanced(lab.hosts[:3], tmp_path) as address:
        yield address


def test_the_next_server_waits_until_one_that_answers_is_ready(lab: Lab, site: Site) -> None:
    servers = list(lab.hosts[:3])
    servers[1].run("sh", "-c", "echo '{\"unready\": 20}' > /etc/rke2-stand-in.json")
    result = play(lab, site, "rke2_server", servers)
    assert said(result) == []
    assert lacks(result, "server") == ""
    began = [outcome.facts["started"] for outcome in result.hosts]
    assert began[1] + 15 <= began[2], "the third waits until the second, whose unit is active before, is ready"


@pytest.mark.sampled(None)
def test_a_cluster_of_three_servers_comes_up_once_and_is_upgraded(lab: Lab, site: Site, registered_at: str) -> None:
    servers, agents = list(lab.hosts[:3]), list(lab.hosts[3:])
    authority = site.secrets / "authority"
    authority.write_text("-----BEGIN CERTIFICATE-----\n")
    options: dict[str, Any] = {
        "rke2_registration_address": registered_at,
        "rke2_audit": "metadata",
        "rke2_registry_mirror": "mirror.example.org",
        "rke2_registries": REGISTRY,
        "secrets": {"rke2_secret_2": str(authority)},
        "rke2_kubelet_args": {"max-pods": "250"},
        "rke2_kubelet_config": {"topologyManagerPolicy": "single-numa-node"},
        "rke2_node_labels": {"gpu": ["bringup/group=gpu", "site/rack=0"], "cpu": ["bringup/group=cpu"]},
        "rke2_node_taints": {"gpu": ["nvidia.com/gpu=present:NoSchedule"]},
        "rke2_host_labels": {agents[0].name: ["site/rack=7"]},
        "rke2_virtual_address": {"interface": "eth0", "image": "ghcr.io/kube-vip/kube-vip:v1.0.1"},
        "rke2_profile": "cis",
        "rke2_snapshot_schedule": "0 3 * * *",
    }
    for host in servers:
        host.run("useradd", "--system", "--no-create-home", "etcd")
    servers[1].run("sh", "-c", "echo '{\"learner\": 5}' > /etc/rke2-stand-in.json")

    first = play(lab, site, "rke2_server", servers, **options)
    assert said(first) == []
    assert lacks(first, "server") == ""
    assert f"https://{registered_at}:6443" in first.hosts[0].facts["kubeconfig"]
    assert first.hosts[2].facts["token"].endswith("::server:canary-55"), "the secure form, from any server"
    config = yaml.safe_load(servers[1].run("cat", "/etc/rancher/rke2/config.yaml"))
    assert config["server"] == f"https://{registered_at}:9345"
    assert registered_at in config["tls-san"]
    assert config["audit-policy-file"] == "/etc/rancher/rke2/audit-policy.yaml"
    assert (config["profile"], config["etcd-snapshot-schedule-cron"], config["etcd-snapshot-retention"]) == ("cis", "0 3 * * *", 5)
    assert {"audit-log-maxage=30", "service-account-extend-token-expiration=false"} <= set(config["kube-apiserver-arg"])
    began = [outcome.facts["started"] for outcome in first.hosts]
    assert began[0] < began[1], "one after the other"
    assert began[1] + 5 <= began[2], "the third waits until the second votes in etcd"
    servers[1].run("rm", "/etc/rke2-stand-in.json")
    assert yaml.safe_load(servers[1].run("cat", "/etc/rancher/rke2/audit-policy.yaml"))["rules"][-1] == {"level": "Metadata"}
    registries = yaml.safe_load(servers[1].run("cat", "/etc/rancher/rke2/registries.yaml"))
    assert registries["mirrors"]["*"] == {"endpoint": ["https://mirror.example.org"]}
    told = registries["configs"]["private.example.org"]["tls"]["ca_file"]
    assert servers[1].run("cat", told) == authority.read_text()
    assert registries["configs"]["registry.example.org"]["auth"] == {"username": "puller", "password": "canary-60"}
    assert "canary-60" not in str(first), "only facts that are kept as secrets hold one"
    pod = yaml.safe_load(servers[2].run("cat", "/var/lib/rancher/rke2/agent/pod-manifests/kube-vip.yaml"))
    assert {"name": "address", "value": registered_at} in pod["spec"]["containers"][0]["env"]
    assert servers[1].run("ls", "-A", "/var/lib/rancher/rke2/agent/images").split() == [".cache.json", rke2_stand_in.IMAGES]

    servers[0].run("systemctl", "stop", "rke2-server")
    joined = play(lab, site, "rke2_agent", agents, servers, **options)
    assert said(joined) == [], "the load balancer leads to a server that is there"
    servers[0].run("systemctl", "start", "rke2-server")
    assert lacks(joined, "agent") == ""
    config = yaml.safe_load(agents[0].run("cat", "/etc/rancher/rke2/config.yaml"))
    assert config["kubelet-arg"] == ["max-pods=250"]
    assert config["node-label"] == ["bringup/group=gpu", "site/rack=7"], "a host's own label wins"
    assert config["node-taint"] == ["nvidia.com/gpu=present:NoSchedule"]
    assert "single-numa-node" in agents[0].run("cat", "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/90-bringup.conf")
    assert not any(
        "canary" in host.run("cat", f"/proc/{pid}/cmdline") for host in lab.hosts for pid in host.run("pgrep", "rke2").split()
    )

    again = [play(lab, site, "rke2_server", servers, **options), play(lab, site, "rke2_agent", agents, servers, **options)]
    assert [outcome.changed for result in again for outcome in result.hosts] == [0, 0, 0, 0], again

    early = play(lab, site, "rke2_agent", agents, servers, **options | {"rke2_version": MINOR})
    assert "would be newer: upgrade the servers first" in early.hosts[0].message

    newer = options | {"rke2_version": NEWER}
    upgraded = play(lab, site, "rke2_server", servers, **newer)
    assert said(upgraded) == []
    assert lacks(upgraded, "server", NEWER) == ""
    assert [
        host.run("sh", "-c", "ls /var/lib/rancher/rke2/server/db/snapshots || true").count("bringup-before") for host in servers
    ] == [
        1,
        0,
        0,
    ]
    done = play(lab, site, "rke2_agent", agents, servers, **newer)
    assert lacks(done, "agent", NEWER) == ""
    log = "".join(host.run("sh", "-c", f"cat {KUBECTL_LOG} || true") for host in servers).splitlines()
    assert [line for line in log if line.startswith(("drain", "uncordon"))] == [
        f"{word} {name}" for names in (["n000", "n003"], ["n001"], ["n002"]) for name in names for word in ("drain", "uncordon")
    ], "each server drains itself, and the first one the agent"
    assert {node["spec"].get("unschedulable", False) for node in nodes(servers[2]).values()} == {False}

    servers[2].run("systemctl", "stop", "rke2-server")
    servers[0].run("python3", "-c", NOT_READY, servers[2].name)
    there = servers[0].run("cat", "/etc/rancher/rke2/config.yaml")
    settings = newer | {"rke2_kubelet_args": {"max-pods": "300"}, "rke2_spare_seconds": 1}
    refused = play(lab, site, "rke2_server", servers[:2], **settings)
    assert f"etcd needs 2 of 3 members and would have 1 without {servers[0].name}" in refused.hosts[0].message
    assert servers[0].run("cat", "/etc/rancher/rke2/config.yaml") == there, "nothing is written that would be read after a crash"
    settled = play(lab, site, "rke2_server", servers, **settings)
    assert lacks(settled, "server", NEWER) == "", "the one that is down comes back first, and then the others can be spared"
    began = [outcome.facts["started"] for outcome in settled.hosts]
    assert began[2] < began[0] < began[1]
    assert "max-pods=300" in servers[1].run("cat", "/etc/rancher/rke2/config.yaml")


@pytest.mark.long
def test_a_release_that_does_not_start_is_rolled_back_and_the_others_go_on(up: Any, site: Site) -> None:
    lab = up(3, Init.SYSTEMD)
    server, crashing, stuck = lab.hosts
    assert said(play(lab, site, "rke2_server", [server])) == []
    assert said(play(lab, site, "rke2_agent", [crashing, stuck], [server])) == []
    crashing.run("sh", "-c", f"echo '{json.dumps({'crash': [NEWER]})}' > /etc/rke2-stand-in.json")
    server.run("touch", f"/etc/stuck-{stuck.name}")
    whole = crashing.run("cat", "/usr/local/bin/rke2-killall.sh")
    crashing.run("sh", "-c", KILLED_WHILE_INSTALLING.replace("@RELEASE@", VERSION))

    result = play(
        lab, site, "rke2_agent", [crashing, stuck], [server], rke2_version=NEWER, rke2_upgrade_batch=1, rke2_ready_seconds=6
    )
    assert [outcome.status for outcome in result.hosts] == [HostStatus.FAILED, HostStatus.FAILED]
    assert "not ready after 6 s" in result.hosts[0].message
    assert result.hosts[0].facts["rolled_back"] == VERSION
    assert (result.hosts[0].facts["version"], result.hosts[0].facts["ready"]) == (VERSION, True)
    assert crashing.run("cat", "/usr/local/bin/rke2-killall.sh") == whole, "a half-replaced release is not what is kept"
    assert "could not be drained" in result.hosts[1].message
    assert "disruption budget" in result.hosts[1].message
    assert stuck.run("/usr/local/bin/rke2", "--version").startswith(f"rke2 version {VERSION}")
    assert {name: node["spec"].get("unschedulable") for name, node in nodes(server).items()} == {
        server.name: None,
        crashing.name: False,
        stuck.name: False,
    }

    server.run("rm", f"/etc/stuck-{stuck.name}")
    server.run("/var/lib/rancher/rke2/bin/kubectl", "--kubeconfig", "-", "cordon", stuck.name)
    crashing.run("rm", "/etc/rke2-stand-in.json")
    result = play(lab, site, "rke2_agent", [crashing, stuck], [server], rke2_version=NEWER)
    assert lacks(result, "agent", NEWER) == ""
    assert nodes(server)[stuck.name]["spec"]["unschedulable"] is True, "a cordon that was not ours stays"

    newer = stuck.run("cat", "/usr/local/bin/rke2-killall.sh")
    stuck.run("sh", "-c", KILLED_WHILE_INSTALLING.replace("@RELEASE@", NEWER))
    assert lacks(play(lab, site, "rke2_agent", [stuck], [server], rke2_version=NEWER), "agent", NEWER) == ""
    assert stuck.run("cat", "/usr/local/bin/rke2-killall.sh") == newer, "who goes back from a half-done upgrade has a whole release"
    assert "installing" not in stuck.run("ls", "/var/lib/rancher/download")

    server.run("sh", "-c", f"echo '{json.dumps({'crash': [NEWER]})}' > /etc/rke2-stand-in.json")
    result = play(lab, site, "rke2_server", [server], rke2_version=NEWER, rke2_ready_seconds=900)
    assert re.search(r"it ended 1\d times within \d+ s", result.hosts[0].message), "nobody waits a quarter of an hour for it"
    assert server.run("/usr/local/bin/rke2", "--version").startswith(f"rke2 version {VERSION}")
    assert lacks(play(lab, site, "rke2_server", [server]), "server") == ""

    server.run("sh", "-c", f"echo '{json.dumps({'crash': [MINOR]})}' > /etc/rke2-stand-in.json")
    result = play(lab, site, "rke2_server", [server], rke2_version=MINOR, rke2_ready_seconds=6)
    assert "is not put back to" in result.hosts[0].message
    saved = server.run("sh", "-c", "ls /var/lib/rancher/rke2/server/db/snapshots/bringup-before-v1.36.1-rke2r1-*").strip()
    assert f"by {server.name}:{saved}: rke2.version: {VERSION} and `bringup rollback SPEC`" in result.hosts[0].message
    told = server.run("cat", "/var/lib/rancher/download/way-back.txt")
    step = next(line for line in told.splitlines() if f"(3) on {server.name}" in line)
    assert f"`umask 022; rke2 server --cluster-reset --cluster-reset-restore-path={saved}`" in step
    assert server.run("/usr/local/bin/rke2", "--version").startswith(f"rke2 version {MINOR}"), "an older minor cannot read its data"
    server.run("rm", "/etc/rke2-stand-in.json")
    assert lacks(play(lab, site, "rke2_server", [server], rke2_version=MINOR), "server", MINOR) == ""
    assert nodes(server)[server.name]["spec"].get("unschedulable", False) is False


def test_what_cannot_work_is_refused_before_anything_is_stopped(up: Any, site: Site) -> None:
    lab = up(2, Init.SYSTEMD)
    server, agent = lab.hosts
    image = site.folder / VERSION / rke2_stand_in.IMAGES
    whole = image.read_bytes()

    refused = play(lab, site, "rke2_server", [server], rke2_checksum="0" * 64)
    assert "its sha256 is" in refused.hosts[0].message
    image.write_bytes(b"another")
    refused = play(lab, site, "rke2_server", [server])
    assert f"{rke2_stand_in.IMAGES}: its sha256 is" in refused.hosts[0].message
    assert server.run("ls", "/usr/local/bin") == ""
    image.write_bytes(whole)

    stranger = play(lab, site, "rke2_server", [agent])
    assert f"and {server.name}, which is to found the cluster, takes no part" in stranger.hosts[0].message, (
        "no other server founds one"
    )
    assert lacks(play(lab, site, "rke2_server", [server]), "server") == ""
    began = server.run("systemctl", "show", "--property=InvocationID", "rke2-server")

    (site.secrets / "token").write_text("canary-57")
    stranger = play(lab, site, "rke2_agent", [agent])
    assert "refuses the token (401)" in stranger.hosts[0].message
    (site.secrets / "token").unlink()

    newer = site.folder / NEWER / rke2_stand_in.IMAGES
    newer.write_bytes(newer.read_bytes() + b"cut")
    refused = play(lab, site, "rke2_server", [server], rke2_version=NEWER)
    assert f"{rke2_stand_in.IMAGES}: its sha256 is" in refused.hosts[0].message
    assert server.run("/usr/local/bin/rke2", "--version").startswith(f"rke2 version {VERSION}")

    for wanted, why in (
        ("v1.35.6+rke2r1", "RKE2 is not downgraded in place"),
        ("v1.37.0+rke2r1", "skips a minor"),
    ):
        result = play(lab, site, "rke2_server", [server], rke2_version=wanted)
        assert why in result.hosts[0].message
    server.run("mkdir", "-p", "/etc/rancher/rke2/config.yaml.d")
    for odd, why in (
        ("cni: none", "50-odd.yaml sets cni, and would win over config.yaml"),
        ("agent-token: canary-58", "50-odd.yaml: agent-token: agents would need another token than servers"),
    ):
        server.run("sh", "-c", f"echo '{odd}' > /etc/rancher/rke2/config.yaml.d/50-odd.yaml")
        assert why in play(lab, site, "rke2_server", [server]).hosts[0].message
        newer = play(lab, site, "rke2_server", [server], rke2_version=MINOR, rke2_ingress_controller="traefik")
        assert why in newer.hosts[0].message, "an upgrade is refused before its host is drained"
    server.run("rm", "/etc/rancher/rke2/config.yaml.d/50-odd.yaml")
    result = play(lab, site, "rke2_server", [server], rke2_profile="cis")
    assert "needs the user etcd" in result.hosts[0].message

    agent.run("rm", "-rf", "/var/lib/rancher")
    folder = {"rke2_artifacts": "/srv/rke2", "rke2_source": "http://192.0.2.1"}
    for path in (site.folder / VERSION).iterdir():
        hand_over(agent, path, folder["rke2_artifacts"])
    agent.run("sh", "-c", f"echo more >> {folder['rke2_artifacts']}/{rke2_stand_in.IMAGES}")
    refused = play(lab, site, "rke2_agent", [agent], [server], **folder)
    assert f"{rke2_stand_in.IMAGES}: its sha256 is" in refused.hosts[0].message
    assert agent.run("ls", "/usr/local/bin") == ""
    hand_over(agent, image, folder["rke2_artifacts"])
    assert lacks(play(lab, site, "rke2_agent", [agent], [server], **folder), "agent") == "", "no download site is needed"

    server.run("sed", "-i", "1d", "/etc/rancher/rke2/config.yaml")
    server.run("sh", "-c", "echo 'agent-token: canary-59' > /etc/rancher/rke2/config.yaml.d/50-odd.yaml")
    theirs = server.run("cat", "/etc/rancher/rke2/config.yaml")
    assert "set up here by other means" in play(lab, site, "rke2_server", [server], rke2_version=NEWER).hosts[0].message
    adopted = play(lab, site, "rke2_server", [server], rke2_audit="metadata")
    assert (lacks(adopted, "server"), adopted.hosts[0].changed) == ("", 0)
    assert server.run("cat", "/etc/rancher/rke2/config.yaml") == theirs, "what somebody else set up is taken as it is"
    assert server.run("systemctl", "show", "--property=InvocationID", "rke2-server") == began, "nothing was stopped"


def hand_over(host: Host, path: Path, folder: str) -> None:
    """Copy a file into a folder of the host."""
    host.run("sh", "-c", f"mkdir -p {folder}; base64 -d > {folder}/{path.name}", text=base64.b64encode(path.read_bytes()).decode())


def test_hosts_are_reset_to_bare_and_replaced(up: Any, site: Site) -> None:
    lab = up(3, Init.SYSTEMD)
    server, agent, bare = lab.hosts
    assert said(play(lab, site, "rke2_server", [server])) == []
    agent.run("sh", "-c", "mkdir -p /etc/rancher/rke2; echo 'node-name: golden' > /etc/rancher/rke2/config.yaml")
    agent.run("mount", "--bind", "/usr/local", "/usr/local")
    joined = play(lab, site, "rke2_agent", [agent], [server])
    assert said(joined) == []
    assert left(agent)["units"] == [f"/etc/systemd/system/rke2-{kind}.service" for kind in ("agent", "server")], "seen at boot"
    golden = joined.hosts[0].facts["aside"]
    assert agent.run("cat", *golden) == "node-name: golden\n", "what a golden image had is kept, and told"
    agent.run("sh", "-c", f"mkdir -p /etc/yum.repos.d; echo '[rke2-common]' > {REPOSITORY}; touch /etc/redhat-release")
    agent.run("iptables", "-A", "INPUT", "-s", "192.0.2.1", "-j", "ACCEPT")

    alone = play(lab, site, "rke2_reset", [agent, bare], rke2_reset_forget=True)
    assert "no server that stays answers; nothing was removed" in alone.hosts[0].message

    looked = left(agent)
    assert all(looked[kind] for kind in ("processes", "mounts", "links", "rules", "paths", "units")), looked
    gone = play(lab, site, "rke2_reset", [agent, bare], [server], rke2_reset_forget=True)
    assert said(gone) == []
    assert gone.hosts[1].changed == 0, "a bare host stays as it is"
    for outcome in gone.hosts:
        traces = outcome.facts["traces"]
        assert {kind: found for kind, found in traces.items() if kind != "looked" and found} == {}
        assert all(traces["looked"].values())
    assert [outcome.facts["aside"] for outcome in gone.hosts] == [golden, []]
    assert agent.run("cat", *golden) == "node-name: golden\n", "and stays"
    assert {kind: found for kind, found in left(agent).items() if found} == {}
    assert list(nodes(server)) == [server.name], "its Node is deleted"
    assert agent.run("cat", REPOSITORY) == "[rke2-common]\n", "the next bring-up takes rke2-selinux from there"
    agent.run("rm", "/etc/redhat-release")
    assert "192.0.2.1" in agent.run("iptables-save"), "what is not RKE2's stays"
    assert [outcome.changed for outcome in play(lab, site, "rke2_reset", [agent, bare]).hosts] == [0, 0]

    assert said(play(lab, site, "rke2_agent", [agent], [server])) == []
    agent.run("sh", "-c", "rm -f /usr/local/bin/rke2-*.sh")
    half = play(lab, site, "rke2_reset", [agent])
    assert {kind: found for kind, found in half.hosts[0].facts["traces"].items() if kind != "looked" and found} == {}
    assert agent.name in nodes(server)
    refused = play(lab, site, "rke2_agent", [agent], [server])
    assert f"`bringup replace-node SPEC --hosts {agent.name}` has the cluster forget the old machine" in refused.hosts[0].message
    assert agent.run("ls", "/usr/local/bin") == "", "nothing is installed where RKE2 would refuse the host"
    alone = play(lab, site, "rke2_agent", [agent], rke2_ready_seconds=3)
    assert "Node password rejected" in alone.hosts[0].message, "without a server to ask RKE2 itself says so"
    back = play(lab, site, "rke2_agent", [agent], [server], rke2_replaced=[agent.name])
    assert lacks(back, "agent") == ""
    again = play(lab, site, "rke2_agent", [agent], [server], rke2_replaced=[agent.name])
    assert again.hosts[0].changed == 0
    assert server.run("cat", KUBECTL_LOG).splitlines().count(f"delete {agent.name}") == 2, (
        "once by the reset, once for the newcomer"
    )

    assert said(play(lab, site, "rke2_server", [bare], [server])) == []
    bare.run("sh", "-c", "rke2-killall.sh; rke2-uninstall.sh")
    refused = play(lab, site, "rke2_server", [bare], [server])
    assert f"`bringup replace-node SPEC --hosts {bare.name}`" in refused.hosts[0].message
    assert bare.run("ls", "/usr/local/bin") == ""


def left(host: Host) -> dict[str, list[str]]:
    """Return what the stand-in left on a host, counted without the product's own code."""
    links = host.run("ls", "/sys/class/net").split()
    return {
        "processes": host.run("sh", "-c", "pgrep -f ^/var/lib/rancher/rke2/data || true").split(),
        "mounts": [line for line in host.run("cat", "/proc/mounts").splitlines() if "/run/k3s" in line or "/run/nvidia" in line],
        "links": [link for link in links if link in ("cni0", "flannel.1")],
        "rules": [line for line in host.run("iptables-save").splitlines() if "KUBE-" in line],
        "paths": host.run("sh", "-c", "ls -d /var/lib/rancher/rke2 /etc/rancher/rke2 /run/k3s 2>&- || true").split(),
        "units": host.run("sh", "-c", "ls /usr/local/lib/systemd/system/rke2* /etc/systemd/system/rke2* 2>&- || true").split(),
    }
