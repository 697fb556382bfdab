"""Hosts that reach package mirror and release site by nothing but a real proxy, which wants a password."""

from pathlib import Path
from typing import Any

import pytest
import rke2_stand_in
from hostlab import debian
from hostlab.lab import Init
from hostlab.profile import judged, request, variables
from http_proxy import behind_a_proxy
from rke2_plays import VERSION, Site, lacks, play

from steps.clients.ansible import playing
from steps.contract.host_play import FailureKind
from steps.contract.verdict import FailureClass
from steps.stages.os_prep import probe
from steps.stages.os_prep.contract import ItemStatus

pytestmark = pytest.mark.sampled("reaching hosts")

PASSWORD, SECRET = "canary-93", "bringup_proxy_password"


def test_packages_and_the_release_come_through_a_proxy_with_a_password(up: Any, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/packages").symlink_to(debian.root() / "srv/packages")
    rke2_stand_in.authority(tmp_path / "ca")
    rke2_stand_in.release(tmp_path / "site/releases", VERSION, tmp_path / "ca")
    lab = up(1, Init.SYSTEMD)
    host = lab.hosts[0]
    host.run("sh", "-c", "echo 'deb [trusted=yes] http://mirror.example.org/packages ./' > /etc/apt/sources.list")
    (tmp_path / "proxy").write_text(PASSWORD)
    (tmp_path / "another").write_text("canary-94")
    with behind_a_proxy(tmp_path / "site", PASSWORD) as proxy:
        told = proxy.variables(lab)
        wrong = playing.play(request(lab, variables=variables() | told, secret_variables={SECRET: str(tmp_path / "another")}))
        assert proxy.asked == []
        secrets = {SECRET: str(tmp_path / "proxy")}
        prepared = playing.play(request(lab, variables=variables() | told, secret_variables=secrets))
        site = Site("http://releases.example.org/releases", tmp_path / "site/releases", tmp_path)
        installed = play(lab, site, "rke2_server", [host], secrets=secrets, **told)
        asked, logged = proxy.asked, proxy.logged()

    manager = next(item for item in probe.from_play(wrong.hosts).nodes[0].items if item.name == "package manager")
    assert manager.status is ItemStatus.FAILED
    assert "the proxy refuses this login" in manager.why
    assert wrong.hosts[0].kind is FailureKind.PROXY
    assert [row.failure_class for row in judged(wrong).nodes] == [FailureClass.PERMISSION]
    assert judged(prepared).is_pass, judged(prepared).reason
    assert lacks(installed, "server") == ""
    assert any("mirror.example.org" in url and "/packages/./socat" in url for url in asked), asked
    assert any("releases.example.org" in url and url.endswith(f"/{rke2_stand_in.ARCHIVE}") for url in asked), asked
    assert {url.split("/")[2].split(":")[0] for url in logged} == {"mirror.example.org", "releases.example.org"}, "nothing else"
    assert "canary-9" not in repr((wrong, prepared, installed))
    readable = host.run("sh", "-c", f"grep -rlsI {PASSWORD} /etc /usr/local /var/lib /var/log /tmp || true").split()
    assert {host.run("stat", "--format=%a", path).strip() for path in readable} <= {"600"}, readable
