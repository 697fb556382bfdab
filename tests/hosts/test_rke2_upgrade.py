"""An upgrade that fails: no other server is touched after that one, which comes back first once mended; what nothing has changed
runs on."""

from typing import Any

import pytest
from hostlab.host import Host
from hostlab.lab import Init
from rke2_plays import MINOR, NEWER, VERSION, Site, lacks, nodes, play, said, tell
from test_rke2_play import NOT_READY

from steps.contract.host_play import FailureKind, HostStatus

pytestmark = pytest.mark.sampled("rke2 on hosts")


def test_no_server_is_touched_after_one_that_failed_and_that_one_comes_back_first(up: Any, site: Site) -> None:
    lab = up(3, Init.SYSTEMD)
    servers = list(lab.hosts)
    assert said(play(lab, site, "rke2_server", servers)) == []
    tell(servers[1], crash=[MINOR])
    newer: dict[str, Any] = {"rke2_version": MINOR, "rke2_kubelet_args": {"max-pods": "200"}, "rke2_spare_seconds": 1}

    failed = play(lab, site, "rke2_server", servers, **newer, rke2_ready_seconds=12)
    assert [host for host, _, _ in said(failed)] == [servers[1].name, servers[2].name]
    assert (failed.hosts[2].status, failed.hosts[2].kind) == (HostStatus.CANCELLED, FailureKind.NO_TURN)
    assert "is not put back to" in failed.hosts[1].message
    assert starts(servers[0])[-1] == f"start server {MINOR}"
    assert starts(servers[2]) == [f"start server {VERSION}"], "the third is neither upgraded nor restarted"
    assert "max-pods" not in servers[2].run("cat", "/etc/rancher/rke2/config.yaml"), "nor will it read anything new after a crash"

    servers[1].run("rm", "/etc/rke2-stand-in.json")
    servers[1].run("systemctl", "stop", "rke2-server")
    servers[0].run("python3", "-c", NOT_READY, servers[1].name)
    mended = play(lab, site, "rke2_server", servers, **newer)
    assert said(mended) == []
    assert lacks(mended, "server", MINOR) == ""
    assert mended.hosts[1].facts["started"] < mended.hosts[2].facts["started"]


def test_agents_that_cannot_keep_the_old_release_or_start_the_newer_one_run_on_and_take_work_again(up: Any, site: Site) -> None:
    lab = up(3, Init.SYSTEMD)
    server, full, broken = lab.hosts
    agents = [full, broken]
    assert said(play(lab, site, "rke2_server", [server])) == []
    assert said(play(lab, site, "rke2_agent", agents, [server])) == []
    whole = broken.run("cat", "/usr/local/bin/rke2-killall.sh")
    full.run("touch", "/var/lib/rancher/download/kept.new")
    tell(broken, crash=[NEWER])

    failed = play(lab, site, "rke2_agent", agents, [server], rke2_version=NEWER, rke2_ready_seconds=6)
    message, facts = failed.hosts[0].message, failed.hosts[1].facts
    assert "/var/lib/rancher/download/kept.new" in message
    assert f"{full.name} did not come to {NEWER} and runs {VERSION} again" in message
    assert starts(full) == [f"start agent {VERSION}"], "nothing was replaced, and nothing was restarted"
    assert (facts["rolled_back"], facts["version"], facts["ready"]) == (VERSION, VERSION, True), failed.hosts[1].message
    assert f"start agent {NEWER}" in starts(broken), "the newer one had its chance"
    assert starts(broken)[-1] == f"start agent {VERSION}"
    assert broken.run("cat", "/usr/local/bin/rke2-killall.sh") == whole
    assert not [agent for agent in agents if nodes(server)[agent.name]["spec"].get("unschedulable")]

    full.run("rm", "/var/lib/rancher/download/kept.new")
    assert said(play(lab, site, "rke2_agent", [full], [server], rke2_version=NEWER)) == []
    assert starts(full)[1:] == [f"start agent {NEWER}"]


def starts(host: Host) -> list[str]:
    """The starts of the stand-in on a host."""
    return host.run("cat", "/var/log/rke2-stand-in.log").splitlines()
