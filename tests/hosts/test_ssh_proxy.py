"""Machines that SSH reaches by nothing but an HTTP proxy with a password: enrolled, prepared, and named where it lets nobody in."""

from pathlib import Path
from typing import Any

import pytest
from bringup_command import Command
from hostlab.lab import Lab
from hostlab.profile import reached
from http_proxy import USER, before_ssh

from steps.clients.ansible import playing
from steps.contract.host_play import FailureKind, HostStatus, HttpProxy, Jump, PlayHost, PlayRequest

pytestmark = pytest.mark.sampled("reaching hosts")

PASSWORD = "canary-95"
SPEC = """apiVersion: bringup/v1
kind: Cluster
name: proxied
owner: tests@example.org
revision: "1"
stages: [os_prep]
hosts:
  control: {role: server, ranges: n000, addresses: {start: 10.77.0.1}}
  nodes: {role: agent, ranges: "n[001-002]", addresses: {start: 10.77.0.2}}
ssh:
  key: {file: KEY}
  known_hosts: ./known_hosts
  http_proxy: URL
  http_proxy_user: site
  http_proxy_password: {env: PROXY}
os: {distribution: debian, version: "12", reboot: false, free_disk_gib: {/var/lib/rancher: 1}, tolerate: [time service]}
"""


def behind(lab: Lab) -> None:
    """Leave all hosts but the first, where the proxy is, without a way back to this machine."""
    for host in lab.hosts[1:]:
        host.run("ip", "route", "add", "blackhole", "10.77.255.254/32")


def test_machines_are_enrolled_and_prepared_through_the_proxy(up: Any, tmp_path: Path) -> None:
    lab = up(3, prepared=True)
    behind(lab)
    with before_ssh(lab.hosts[0], tmp_path, PASSWORD) as proxy:
        (tmp_path / "cluster.yaml").write_text(SPEC.replace("KEY", str(lab.key)).replace("URL", proxy.url))
        right, wrong = (Command(tmp_path, tmp_path / word, {"PROXY": word}) for word in (PASSWORD, "canary-96"))
        right.call("host-keys", "--yes", check=True)
        refused = wrong.call("run", "cluster.yaml")
        seen = proxy.connected()
        done = right.call("run", "cluster.yaml")

    assert (tmp_path / "known_hosts").read_text().split() != []
    assert {*(tmp_path / "known_hosts").read_text().splitlines()} == {*lab.known_hosts.read_text().splitlines()}
    assert refused.returncode == 65, refused.stdout + refused.stderr
    assert f"HTTP proxy {proxy.url} refuses the login of {USER}" in refused.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    assert seen == {f"{host.address}:22" for host in lab.hosts}
    stored = [file for file in tmp_path.glob("canary-9*/store/**/*") if file.is_file()]
    assert stored
    assert not [file for file in stored if "canary-9" in file.read_text(errors="replace")]


def test_who_is_not_reached_through_the_proxy_is_told_what_it_said(up: Any, tmp_path: Path) -> None:
    lab = up(3)
    behind(lab)
    lab.hosts[2].unplug()
    (tmp_path / "right").write_text(PASSWORD)
    with before_ssh(lab.hosts[0], tmp_path, PASSWORD) as proxy:
        good = HttpProxy.of(proxy.url, USER, str(tmp_path / "right"))
        near = Jump(address=lab.hosts[1].address, key_path=str(lab.key))
        ways = {
            "through": {"proxy": good},
            "jumping": {"jump": near.behind(good)},
            "locked_out": {"proxy": HttpProxy.of(proxy.url)},
            "jumping_locked_out": {"jump": near.behind(HttpProxy.of(proxy.url))},
            "another_port": {"proxy": good, "port": 23},
            "no_proxy_there": {"proxy": HttpProxy.of(f"http://{lab.hosts[0].address}:3129")},
            "no_http": {"proxy": HttpProxy.of(f"http://{lab.hosts[0].address}:22")},
        }
        hosts: list[PlayHost] = [reached(lab, lab.hosts[1], name=name, **words) for name, words in ways.items()]
        hosts.append(reached(lab, lab.hosts[2], name="unplugged", proxy=good))
        hosts.append(reached(lab, lab.hosts[0], name="jumped_to", jump=near.behind(good)))
        played = playing.play(PlayRequest(playbook="identify", hosts=tuple(hosts), known_hosts=str(lab.known_hosts)))

    outcomes = {outcome.host: outcome for outcome in played.hosts}
    fine = {name for name, outcome in outcomes.items() if outcome.status is HostStatus.OK}
    assert fine == {"through", "jumping", "jumped_to"}, outcomes
    assert {name: outcome.kind for name, outcome in outcomes.items() if name not in fine} == {
        "locked_out": FailureKind.SSH_PROXY_LOGIN,
        "jumping_locked_out": FailureKind.SSH_PROXY_LOGIN,
        "another_port": FailureKind.SSH_PROXY,
        "no_proxy_there": FailureKind.SSH_PROXY,
        "no_http": FailureKind.SSH_PROXY,
        "unplugged": FailureKind.NETWORK,
    }, outcomes
    said = {name: outcome.message for name, outcome in outcomes.items()}
    assert "refuses CONNECT to 10.77.0.2:23 (403" in said["another_port"]
    assert all(said[name].startswith(f"HTTP proxy http://{lab.hosts[0].address}:") for name in outcomes if name not in fine)
    assert PASSWORD not in repr(played)
