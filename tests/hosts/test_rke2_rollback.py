"""A cluster goes back over a minor, with a stand-in for RKE2: refused where it cannot, gone on with where it was cut off, joined at
a virtual address by who has let go of it."""

from typing import Any

import pytest
from hostlab.host import Host
from hostlab.lab import Init
from rke2_plays import MINOR, VERSION, Site, lacks, nodes, play, said, tell

from steps.contract.host_play import HostStatus, PlayResult

pytestmark = pytest.mark.sampled("rke2 on hosts")

DATABASE, STORE = "/var/lib/rancher/rke2/server/db", "/var/lib/rancher/download"
SNAPSHOTS, ETCD, DISK = f"{DATABASE}/snapshots", f"{DATABASE}/etcd", "/srv/disk"
LOG, WRITTEN = "/var/log/rke2-stand-in.log", "site/written-by-the-newer-release"
KUBECTL = ("/var/lib/rancher/rke2/bin/kubectl", "--kubeconfig", "-")
VIRTUAL = "10.77.200.1"
HEARD = "/var/log/answers-at-the-virtual-address"
KUBE_VIP = f"""[Service]
ExecStartPre=/bin/bash -c 'if timeout 2 bash -c "</dev/tcp/{VIRTUAL}/22"; then echo somebody; else echo nobody; fi >> {HEARD}'
ExecStartPost=/bin/sh -c 'ip address replace {VIRTUAL}/32 dev eth0'
"""
"""Drop-in that stands for kube-vip on one server: the server takes the address once RKE2 is ready, and keeps it if killed. Before
each start it logs whether any machine answers at the address."""
DISK_ABOVE = f"""
systemctl stop rke2-server
mkdir {DISK}/etcd
mv {DISK}/member {DISK}/nodes.json {DISK}/etcd
cp -a {SNAPSHOTS} {DISK}
rm {ETCD}
mount --bind {DISK} {DATABASE}
systemctl start rke2-server
"""
"""Shell that follows the refusal's advice: mount the disk one level above etcd's folder, with etcd and snapshots in it."""


@pytest.mark.long
def test_three_servers_and_an_agent_go_back_over_a_minor(up: Any, site: Site) -> None:
    lab = up(4, Init.SYSTEMD)
    servers, agents = list(lab.hosts[:3]), list(lab.hosts[3:])
    options: dict[str, Any] = {"rke2_server_addresses": [host.address for host in servers]}
    assert said(play(lab, site, "rke2_server", servers, **options)) == []
    assert said(play(lab, site, "rke2_agent", agents, servers, **options)) == []
    assert back(play(lab, site, "rke2_server_rollback", servers, **options)) == (0, []), "there is nothing to go back from"

    newer = options | {"rke2_version": MINOR}
    assert said(play(lab, site, "rke2_server", servers, **newer)) == []
    assert said(play(lab, site, "rke2_agent", agents, servers, **newer)) == []
    servers[2].run(*KUBECTL, "annotate", "node", servers[0].name, f"{WRITTEN}=yes")
    assert WRITTEN in nodes(servers[0])[servers[0].name]["metadata"]["annotations"]
    began = [host.run("systemctl", "show", "--property=InvocationID", "rke2-server") for host in servers]

    refused = play(lab, site, "rke2_server", servers, **options)
    assert "go back by etcd's snapshot from before the upgrade: `bringup rollback SPEC`" in refused.hosts[0].message
    few = play(lab, site, "rke2_server_rollback", servers[:2], **options)
    assert "all 3 servers go back together, and only n000, n001 take part" in few.hosts[0].message
    snapshot = moved(servers[0])
    none = play(lab, site, "rke2_server_rollback", servers, **options)
    assert f"no server has a snapshot of etcd from before {MINOR}" in none.hosts[0].message
    hand_over(snapshot, servers[1])
    assert [host.run("systemctl", "show", "--property=InvocationID", "rke2-server") for host in servers] == began, (
        "nothing was stopped"
    )

    tell(servers[1], crash=[VERSION])
    cut = play(lab, site, "rke2_server_rollback", servers, **options | {"rke2_ready_seconds": 6})
    assert "not ready after 6 s" in {outcome.host: outcome.message for outcome in cut.hosts}[servers[1].name]
    assert {host.run("/usr/local/bin/rke2", "--version").split()[2] for host in servers} == {VERSION}
    halted = play(lab, site, "rke2_server", servers, **options)
    assert f"on its way back to {VERSION}: `bringup rollback SPEC` goes on with it" in halted.hosts[0].message
    servers[1].run("rm", "/etc/rke2-stand-in.json")

    done = play(lab, site, "rke2_server_rollback", servers, **options)
    assert said(done) == []
    assert lacks(done, "server") == ""
    assert {outcome.host: outcome.facts.get("restored") for outcome in done.hosts if outcome.facts.get("restored")} == {
        servers[1].name: f"{SNAPSHOTS}/{snapshot[0]}"
    }
    for host in servers:
        assert WRITTEN not in nodes(host)[servers[0].name]["metadata"]["annotations"], (
            "what was written since is gone on every server"
        )
        assert "rollback.json" not in host.run("ls", STORE)
    starts = [line for host in servers for line in host.run("cat", LOG).splitlines() if line.startswith("reset")]
    assert set(starts) == {f"reset {VERSION} {SNAPSHOTS}/{snapshot[0]}"}
    assert "server:" not in servers[1].run("cat", "/etc/rancher/rke2/config.yaml"), "the others join it"
    assert f"server: https://{servers[1].address}:9345" in servers[0].run("cat", "/etc/rancher/rke2/config.yaml")

    gone = play(lab, site, "rke2_agent_rollback", agents, servers, **options)
    assert said(gone) == []
    assert lacks(gone, "agent") == ""
    assert nodes(servers[0])[agents[0].name]["spec"].get("unschedulable", False) is False

    assert back(play(lab, site, "rke2_server_rollback", servers, **options)) == (0, [])
    assert back(play(lab, site, "rke2_agent_rollback", agents, servers, **options)) == (0, [])
    assert back(play(lab, site, "rke2_server", servers, **options)) == (0, [])

    agents[0].run("sh", "-c", f"sed -i s/{VERSION}/{MINOR}/ /usr/local/bin/rke2; rm -r {STORE}/kept")
    lost = play(lab, site, "rke2_agent_rollback", agents, servers, **options)
    assert lost.hosts[0].status is HostStatus.FAILED
    assert f"has kept no release, not {VERSION}: `bringup reset SPEC --hosts {agents[0].name}`" in lost.hosts[0].message


@pytest.mark.parametrize("count", [1, pytest.param(3, marks=pytest.mark.long)])
def test_nobody_answers_at_the_virtual_address_while_etcd_is_set_back(up: Any, site: Site, count: int) -> None:
    lab = up(count, Init.SYSTEMD)
    servers, others = list(lab.hosts), list(lab.hosts[1:])
    unit, manifest = "/etc/systemd/system/rke2-server.service.d", "/var/lib/rancher/rke2/agent/pod-manifests/kube-vip.yaml"
    servers[0].run("sh", "-c", f"mkdir -p {unit}; cat > {unit}/kube-vip.conf", text=KUBE_VIP)
    options: dict[str, Any] = {
        "rke2_registration_address": VIRTUAL,
        "rke2_virtual_address": {"interface": "eth0", "image": "ghcr.io/kube-vip/kube-vip:v1.0.1"},
        "rke2_server_addresses": [host.address for host in servers],
    }
    assert said(play(lab, site, "rke2_server", servers, **options)) == []
    before = [host.run("cat", manifest) for host in servers]
    newer = {"rke2_version": MINOR, "rke2_virtual_address": {"interface": "eth0", "image": "ghcr.io/kube-vip/kube-vip:v1.0.2"}}
    assert said(play(lab, site, "rke2_server", servers, **options | newer)) == []
    assert all("v1.0.2" in host.run("cat", manifest) for host in servers)
    servers[0].run(*KUBECTL, "annotate", "node", servers[0].name, f"{WRITTEN}=yes")

    for host in others[:1]:  # kube-vip of the first was killed, which leaves the address there, and this one has taken it over
        host.run("ip", "address", "add", f"{VIRTUAL}/32", "dev", "eth0")
    assert hold(servers) == [host.name for host in servers[:2]]
    done = play(lab, site, "rke2_server_rollback", servers, **options)

    assert said(done) == []
    assert lacks(done, "server") == ""
    assert servers[0].run("cat", HEARD).split() == ["nobody", "somebody", "nobody"], "at the founding, the upgrade and the way back"
    assert hold(servers) == [servers[0].name], "nobody else has it, and could have joined at itself"
    assert all(f"server: https://{VIRTUAL}:9345" in host.run("cat", "/etc/rancher/rke2/config.yaml") for host in others)
    assert [host.run("cat", manifest) for host in servers] == before
    for host in servers:
        known = nodes(host)
        assert sorted(known) == [one.name for one in servers]
        assert WRITTEN not in known[servers[0].name]["metadata"]["annotations"]


def test_a_server_whose_etcd_lies_apart_is_told_where_to_have_it_and_runs_on(up: Any, site: Site) -> None:
    lab = up(1, Init.SYSTEMD)
    (server,) = lab.hosts
    server.run("sh", "-ec", f"mkdir -p {DISK} {ETCD}; mount -t tmpfs site {DISK}; mount --bind {DISK} {ETCD}")
    options: dict[str, Any] = {"rke2_server_addresses": [server.address]}
    assert said(play(lab, site, "rke2_server", [server], **options)) == []
    assert said(play(lab, site, "rke2_server", [server], **options | {"rke2_version": MINOR})) == []
    state = f"systemctl show --property=InvocationID,ActiveState rke2-server; rke2 --version; ls -A {STORE}; cat {LOG}"
    ran, known = server.run("sh", "-c", state), nodes(server)
    assert f"start server {MINOR}" in ran

    for how in (f"{ETCD} is a disk of its own", f"{ETCD} is a link to {DISK}"):
        if "link" in how:
            server.run("sh", "-ec", f"umount {ETCD}; rmdir {ETCD}; ln -s {DISK} {ETCD}")
        refused = play(lab, site, "rke2_server_rollback", [server], **options)
        assert (refused.hosts[0].status, refused.hosts[0].changed) == (HostStatus.FAILED, 0)
        assert refused.hosts[0].message == (
            f"{server.name} has the snapshot, and there {how}, which RKE2 must rename when it sets etcd back: "
            f"stop rke2-server there, have the disk at {DATABASE} instead, with etcd and snapshots as folders in it, and start it; "
            "nothing was stopped"
        )
        assert (server.run("sh", "-c", state), nodes(server)) == (ran, known)

    server.run("sh", "-ec", DISK_ABOVE)
    done = play(lab, site, "rke2_server_rollback", [server], **options)
    assert said(done) == []
    assert lacks(done, "server") == ""
    assert f"{DATABASE} " in server.run("cat", "/proc/mounts"), "the disk stays"


def hold(servers: list[Host]) -> list[str]:
    """Return the servers that hold the virtual address."""
    return [host.name for host in servers if f" {VIRTUAL}/32 " in host.run("ip", "-oneline", "address", "show")]


def back(result: PlayResult) -> tuple[int, list[tuple[str, str, str]]]:
    """Return the number of changes and the failures of a play."""
    return sum(outcome.changed for outcome in result.hosts), said(result)


def moved(host: Host) -> tuple[str, str, str, str]:
    """Take the snapshot from before the upgrade away: its name and content, and the name and content of its mark."""
    name = host.run("sh", "-c", f"cd {SNAPSHOTS}; ls bringup-before-*").strip()
    mark = host.run("sh", "-c", f"cd {STORE}; ls saved-bringup-before-*").strip()
    text, marked = host.run("cat", f"{SNAPSHOTS}/{name}"), host.run("cat", f"{STORE}/{mark}")
    host.run("rm", f"{SNAPSHOTS}/{name}", f"{STORE}/{mark}")
    return name, text, mark, marked


def hand_over(snapshot: tuple[str, str, str, str], host: Host) -> None:
    """Let another server have it, as where that one was the first to be upgraded."""
    name, text, mark, marked = snapshot
    host.run("sh", "-c", f"mkdir -p {SNAPSHOTS}; cat > {SNAPSHOTS}/{name}", text=text)
    host.run("sh", "-c", f"cat > {STORE}/{mark}", text=marked)
