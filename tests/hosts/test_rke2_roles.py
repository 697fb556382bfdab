"""A host that is a server of a cluster, or an agent, and that a spec has as the other: refused before anything is written."""

from typing import Any

import pytest
from hostlab.host import Host
from hostlab.lab import Init
from rke2_plays import Site, play, said

pytestmark = pytest.mark.sampled("rke2 on hosts")


def test_a_host_whose_role_has_changed_is_left_as_it_is(up: Any, site: Site) -> None:
    lab = up(2, Init.SYSTEMD)
    server, agent = lab.hosts
    assert said(play(lab, site, "rke2_server", [server])) == []
    assert said(play(lab, site, "rke2_agent", [agent], [server])) == []
    before = shown(server), shown(agent)

    result = play(lab, site, "rke2_agent", [server], rke2_ready_seconds=6)
    assert "RKE2 runs here as a server, and the spec has it as an agent: reset the host first" in result.hosts[0].message
    result = play(lab, site, "rke2_server", [agent], [server], rke2_ready_seconds=6)
    assert "RKE2 runs here as an agent, and the spec has it as a server: reset the host first" in result.hosts[0].message
    assert (shown(server), shown(agent)) == before


def shown(host: Host) -> str:
    """The host's configuration, and which start of which service this is."""
    return host.run("sh", "-c", "cat /etc/rancher/rke2/config.yaml; systemctl show --property=InvocationID rke2-server rke2-agent")
