"""An upgrade of servers of which one fails: no other is touched after it, and once mended it comes back before the next goes."""

from typing import Any

from hostlab.host import Host
from hostlab.lab import Init
from rke2_plays import MINOR, VERSION, Site, lacks, play, said, tell
from test_rke2_play import NOT_READY


def test_no_server_is_touched_after_one_that_failed_and_that_one_comes_back_first(up: Any, site: Site) -> None:
    lab = up(3, Init.SYSTEMD)
    servers = list(lab.hosts)
    assert said(play(lab, site, "rke2_server", servers)) == []
    tell(servers[1], crash=[MINOR])
    newer: dict[str, Any] = {"rke2_version": MINOR, "rke2_kubelet_args": {"max-pods": "200"}, "rke2_spare_seconds": 1}

    failed = play(lab, site, "rke2_server", servers, **newer, rke2_ready_seconds=6)
    assert [host for host, _, _ in said(failed)] == [servers[1].name]
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


def starts(host: Host) -> list[str]:
    """The starts of the stand-in on a host."""
    return host.run("cat", "/var/log/rke2-stand-in.log").splitlines()
