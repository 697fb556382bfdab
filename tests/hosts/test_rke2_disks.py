"""Hosts with disks of the site for RKE2 that others use too or that are empty, and a virtual address that a reset takes back."""

from typing import Any

import pytest
from hostlab.lab import Init
from rke2_plays import Site, lacks, nodes, play, said
from site_disks import DATA, LINKED, MADE, script

pytestmark = pytest.mark.sampled("rke2 on hosts")


def test_a_link_to_where_others_keep_things_too_is_left_alone(up: Any, site: Site) -> None:
    lab = up(1, Init.SSHD)
    (host,) = lab.hosts
    host.run("sh", "-ec", script(LINKED + MADE, (DATA,)))
    host.run("sh", "-c", f"mkdir /data{DATA}/photos; touch /data{DATA}/photos/one")

    result = play(lab, site, "rke2_reset", [host])

    assert f"{DATA} leads to /data{DATA}, where photos lies, which RKE2 has not made: nothing was removed" in said(result)[0][2]
    assert host.run("cat", f"{DATA}/server/db/etcd/member").strip() == "old"


def test_an_empty_disk_for_etcd_is_no_cluster(up: Any, site: Site) -> None:
    lab = up(2, Init.SYSTEMD)
    for host in lab.hosts:
        host.run("sh", "-c", f"mkdir -p {DATA}/server/db/etcd; mount -t tmpfs site {DATA}/server/db/etcd")
        host.run("mkdir", f"{DATA}/server/db/etcd/lost+found")

    result = play(lab, site, "rke2_server", list(lab.hosts))

    assert said(result) == []
    assert lacks(result, "server") == ""
    assert sorted(nodes(lab.hosts[1])) == [host.name for host in lab.hosts], "one cluster, not one each"


def test_a_server_that_is_taken_back_no_longer_answers_at_the_virtual_address(up: Any, site: Site) -> None:
    lab = up(1, Init.SSHD)
    (host,) = lab.hosts
    link = host.run("ip", "route", "get", lab.hosts[0].address.rpartition(".")[0] + ".254").split(" dev ")[1].split()[0]
    for address in ("192.0.2.10/32", "192.0.2.11/32"):
        host.run("ip", "address", "add", address, "dev", link)
    for network in ("198.51.100.128/25", "203.0.113.0/24"):
        host.run("ip", "route", "add", "blackhole", network)
    host.run("mkdir", "-p", DATA)

    told = {"rke2_reset_virtual_address": "192.0.2.10", "rke2_reset_pods": "198.51.100.0/24"}
    result = play(lab, site, "rke2_reset", [host], **told)

    assert said(result) == []
    traces = result.hosts[0].facts["traces"]
    assert (traces["addresses"], traces["looked"]["addresses"] > 1) == ([], True)
    left = host.run("ip", "-oneline", "address", "show")
    assert (traces["routes"], traces["looked"]["routes"] > 1) == ([], True)
    dropping = [line.split()[1] for line in host.run("ip", "route", "show").splitlines() if line.startswith("blackhole")]
    assert dropping == ["203.0.113.0/24"], "that of the pods is gone, and the site's own stays"
    assert ("192.0.2.10/32" in left, "192.0.2.11/32" in left, lab.hosts[0].address in left) == (False, True, True)
