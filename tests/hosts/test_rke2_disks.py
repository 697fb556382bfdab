"""Hosts with disks of the site for RKE2, mounted or behind links: a reset empties them, and they stay; volumes of pods keep what is
in them. An empty disk at etcd's place is no etcd."""

from typing import Any

import pytest
from hostlab.lab import Init
from rke2_plays import Site, lacks, nodes, play, said

DATA = "/var/lib/rancher/rke2"
VOLUME = "/var/lib/kubelet/pods/1f3c/volumes/kubernetes.io~csi/pvc-7/mount"
MADE = """
for disk in @DISKS@; do
    mkdir -p $disk
    mount -t tmpfs site $disk
done
mkdir -p @DATA@/server/db/etcd @DATA@/agent @VOLUME@ /srv/volume
echo old > @DATA@/server/db/etcd/member
echo old > @DATA@/agent/kubelet.kubeconfig
echo old > /var/lib/kubelet/cpu_manager_state
echo precious > /srv/volume/rows
mount --bind /srv/volume @VOLUME@
"""


SCRIPTS = """
mkdir -p @SHARE@ /srv/snapshots
mount --bind /srv/snapshots @SHARE@
echo precious > @SHARE@/nightly
printf '#!/bin/sh\nexit 0\n' > /usr/local/bin/rke2-killall.sh
printf '#!/bin/sh\nrm -rf /etc/rancher/rke2 /var/lib/kubelet @DATA@\nrm -d /var/lib/rancher\n' > /usr/local/bin/rke2-uninstall.sh
chmod +x /usr/local/bin/rke2-*.sh
"""
"""RKE2's own script for the end removes its folders and whatever is mounted in them (rke2-uninstall.sh, `rm -rf`); links alone."""
LINKED = """
for place in @LINKS@; do
    mkdir -p /data$place $(dirname $place)
    ln -s /data$place $place
done
"""


DRIVER_CONTAINER = """
mount --make-rshared /
mkdir -p /srv/site /run/driver /run/nvidia/driver /run/nvidia/validations
mount -t tmpfs site /srv/site
echo precious > /srv/site/rows
mount -t tmpfs container /run/driver
mkdir /run/driver/dev /run/driver/srv
mount -t tmpfs container /run/driver/dev
mount --rbind /srv /run/driver/srv
for start in first second; do mount --rbind /run/driver /run/nvidia/driver; done
mount --make-rprivate /run/driver
umount --recursive --lazy /run/driver
"""
"""What a driver container that was started twice and killed leaves. A folder of the host is in it with all that is mounted there:
what is unmounted below is unmounted there too, as the folder is shared."""


def script(words: str, links: tuple[str, ...] = ()) -> str:
    """The words with their paths."""
    places = {"LINKS": " ".join(links), "DISKS": "", "SHARE": DATA + "/server/db/snapshots", "DATA": DATA, "VOLUME": VOLUME}
    for name, path in places.items():
        words = words.replace(f"@{name}@", path)
    return words


def test_volumes_and_shares_are_unmounted_before_rke2_uninstalls_itself(up: Any, site: Site) -> None:
    lab = up(1, Init.SSHD)
    (host,) = lab.hosts
    host.run("sh", "-ec", script(MADE + SCRIPTS))

    result = play(lab, site, "rke2_reset", [host])

    assert said(result) == []
    assert result.hosts[0].facts["traces"]["paths"] == []
    assert host.run("cat", "/srv/volume/rows", "/srv/snapshots/nightly").split() == ["precious", "precious"]


@pytest.mark.parametrize("disks", [(DATA, "/var/lib/kubelet"), (DATA + "/server/db",), (DATA, DATA + "/server/db")])
def test_disks_of_the_site_are_emptied_where_they_are(up: Any, site: Site, disks: tuple[str, ...]) -> None:
    lab = up(1, Init.SSHD)
    (host,) = lab.hosts
    host.run("sh", "-ec", MADE.replace("@DISKS@", " ".join(disks)).replace("@DATA@", DATA).replace("@VOLUME@", VOLUME))

    result = play(lab, site, "rke2_reset", [host])

    assert said(result) == []
    traces = result.hosts[0].facts["traces"]
    assert (traces["paths"], traces["mounts"]) == ([], [])
    places = [line.split()[1] for line in host.run("cat", "/proc/mounts").splitlines() if line.startswith("site ")]
    assert sorted(places) == sorted(disks), "the site's disks stay"
    assert host.run("find", *disks, "-type", "f") == ""
    assert host.run("cat", "/srv/volume/rows").strip() == "precious"
    assert play(lab, site, "rke2_reset", [host]).hosts[0].changed == 0


@pytest.mark.parametrize("links", [("/var/lib/rancher",), (DATA, "/var/lib/kubelet"), (DATA + "/server/db",)])
def test_what_links_of_the_site_lead_to_is_removed_and_the_links_stay(up: Any, site: Site, links: tuple[str, ...]) -> None:
    lab = up(1, Init.SSHD)
    (host,) = lab.hosts
    host.run("sh", "-ec", script(LINKED + MADE + SCRIPTS, links))
    host.run("sh", "-c", f"mkdir -p /var/lib/rancher/k3s {DATA}/data/v1/bin; echo precious > /var/lib/rancher/k3s/state")
    host.run("sh", "-c", f"cp /usr/bin/sleep {DATA}/data/v1/bin/shim; setsid {DATA}/data/v1/bin/shim 10000 >&- 2>&- <&- &")
    assert host.run("sh", "-c", "find /data -type f | wc -l").strip() != "0"

    result = play(lab, site, "rke2_reset", [host])

    assert said(result) == []
    traces = result.hosts[0].facts["traces"]
    assert {kind: found for kind, found in traces.items() if kind != "looked" and found} == {}
    assert host.run("sh", "-c", "find /data /var/lib/rancher/ -type f -not -path '*/k3s/*'") == ""
    assert host.run("sh", "-c", "pgrep -f '^/var/lib/rancher/rke2/data' || true") == ""
    assert [host.run("readlink", link).strip() for link in links] == [f"/data{link}" for link in links]
    assert host.run("cat", "/srv/volume/rows", "/srv/snapshots/nightly", "/var/lib/rancher/k3s/state").split() == ["precious"] * 3
    assert play(lab, site, "rke2_reset", [host]).hosts[0].changed == 0


def test_the_root_of_a_driver_container_is_unmounted_and_nothing_of_the_host(up: Any, site: Site) -> None:
    lab = up(2, Init.SSHD)
    host, other = lab.hosts
    for one in lab.hosts:
        one.run("sh", "-ec", DRIVER_CONTAINER)
        assert one.run("cat", "/srv/site/rows", "/run/nvidia/driver/srv/site/rows").split() == ["precious"] * 2
    host.run("mkdir", "-p", DATA)

    result = play(lab, site, "rke2_reset", [host, other])

    assert said(result) == []
    traces = result.hosts[0].facts["traces"]
    assert {kind: found for kind, found in traces.items() if kind != "looked" and found} == {}
    assert "/run/nvidia" not in host.run("cat", "/proc/mounts")
    assert host.run("cat", "/srv/site/rows").strip() == "precious"
    assert host.run("ls", "/run/nvidia").split() == ["driver"], "nor does the next cluster take the validation for its own"
    assert result.hosts[1].changed == 0
    assert other.run("cat", "/run/nvidia/driver/srv/site/rows").strip() == "precious", "without an RKE2 it may be another's"


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
