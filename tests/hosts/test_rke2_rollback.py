"""A cluster goes back over a minor, with a stand-in for RKE2: refused where it cannot, gone on with where it was cut off."""

from typing import Any

import pytest
from hostlab.host import Host
from hostlab.lab import Init
from rke2_plays import MINOR, VERSION, Site, lacks, nodes, play, said, tell

from steps.contract.play import HostStatus, PlayResult

SNAPSHOTS, STORE = "/var/lib/rancher/rke2/server/db/snapshots", "/var/lib/rancher/download"
LOG, WRITTEN = "/var/log/rke2-stand-in.log", "site/written-by-the-newer-release"
KUBECTL = ("/var/lib/rancher/rke2/bin/kubectl", "--kubeconfig", "-")


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


def back(result: PlayResult) -> tuple[int, list[tuple[str, str, str]]]:
    """How many changes there were, and what failed."""
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
