"""The playbooks rke2_server and rke2_agent on systemd hosts, with a stand-in for RKE2's release: download, join, ready, again."""

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rke2_stand_in
import yaml
from hostlab.lab import Init, Lab

from steps.clients import ansible
from steps.contract.play import HostStatus, PlayHost, PlayRequest, PlayResult
from steps.contract.stages.rke2 import PlayExpectation
from steps.gates import rke2 as gate
from steps.probes import rke2 as probe

VERSION = "v1.35.7+rke2r1"
NEWER = "v1.35.8+rke2r1"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def source(tmp_path: Path, up: Any) -> Iterator[str]:
    """Address of a download site with two releases, as the hosts see it."""
    for version in (VERSION, NEWER):
        rke2_stand_in.release(tmp_path / "site", version)
    with http.server.ThreadingHTTPServer(("", 0), functools.partial(Quiet, directory=str(tmp_path / "site"))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://10.77.255.254:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def play(lab: Lab, playbook: str, chosen: slice, token: Path, source: str, **variables: Any) -> PlayResult:
    groups = ("gpu", "agent" if playbook == "rke2_agent" else "server")
    key = str(lab.key)
    hosts = tuple(PlayHost(name=host.name, address=host.address, key_path=key, groups=groups) for host in lab.hosts[chosen])
    common = {
        "rke2_version": VERSION,
        "rke2_source": source,
        "rke2_registration_address": lab.hosts[0].address,
        "rke2_ready_seconds": 20,
        "rke2_kubelet_args": {"max-pods": "250"},
        "rke2_node_labels": {"gpu": ["bringup/group=gpu", "site/rack=0"], "cpu": ["bringup/group=cpu"]},
        "rke2_node_taints": {"gpu": ["nvidia.com/gpu=present:NoSchedule"]},
        "rke2_host_labels": {lab.hosts[2].name if len(lab.hosts) > 2 else "": ["site/rack=7"]},
    }
    return ansible.play(
        PlayRequest(
            playbook=playbook,
            hosts=hosts,
            known_hosts=str(lab.known_hosts),
            variables=common | variables,
            secret_variables={"rke2_token": str(token)},
        )
    )


def passes(result: PlayResult, kind: str, version: str = VERSION) -> bool:
    names = tuple(outcome.host for outcome in result.hosts)
    decide = getattr(gate, f"{kind}s")
    return bool(
        decide(probe.from_play(result.hosts), PlayExpectation(version=version, service=f"rke2-{kind}", nodes=names)).is_pass
    )


def test_servers_and_agents_join_once_and_upgrade(up: Any, source: str, tmp_path: Path) -> None:
    lab = up(3, Init.SYSTEMD)
    token = tmp_path / "token"
    token.write_text("canary-55")
    servers, agents = slice(0, 2), slice(2, 3)

    first = play(lab, "rke2_server", servers, token, source)
    assert [outcome.status for outcome in first.hosts] == [HostStatus.OK, HostStatus.OK], first
    assert passes(first, "server")
    assert f"https://{lab.hosts[0].address}:6443" in first.hosts[0].facts["kubeconfig"]
    assert "kubeconfig" not in first.hosts[1].facts
    assert lab.hosts[1].run("cat", "/etc/rancher/rke2/config.yaml").count("server: https://10.77.0.1:9345") == 1

    joined = play(lab, "rke2_agent", agents, token, source)
    assert passes(joined, "agent"), joined
    config = yaml.safe_load(lab.hosts[2].run("cat", "/etc/rancher/rke2/config.yaml"))
    assert config["kubelet-arg"] == ["max-pods=250"]
    assert config["node-label"] == ["bringup/group=gpu", "site/rack=7"], "a host's own label wins"
    assert config["node-taint"] == ["nvidia.com/gpu=present:NoSchedule"]

    again = [play(lab, "rke2_server", servers, token, source), play(lab, "rke2_agent", agents, token, source)]
    assert [outcome.changed for result in again for outcome in result.hosts] == [0, 0, 0]

    newer = play(lab, "rke2_agent", agents, token, source, rke2_version=NEWER)
    assert passes(newer, "agent", NEWER), newer


def test_a_wrong_checksum_and_a_wrong_token_are_told(up: Any, source: str, tmp_path: Path) -> None:
    lab = up(2, Init.SYSTEMD)
    token = tmp_path / "token"
    token.write_text("canary-56")

    refused = play(lab, "rke2_server", slice(0, 1), token, source, rke2_checksum="0" * 64)
    assert "did not match" in refused.hosts[0].message
    assert lab.hosts[0].run("ls", "/usr/local/bin") == ""

    assert passes(play(lab, "rke2_server", slice(0, 1), token, source), "server")
    token.write_text("canary-57")
    stranger = play(lab, "rke2_agent", slice(1, 2), token, source, rke2_ready_seconds=4)
    assert stranger.hosts[0].status is HostStatus.FAILED
    assert "not ready after 4 s" in stranger.hosts[0].message
    assert "401" in stranger.hosts[0].message
