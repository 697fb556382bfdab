"""A reset on hosts whose disks the site mounted for RKE2: they stay mounted, and empty; volumes of pods keep what is in them."""

from typing import Any

import pytest
from hostlab.lab import Init
from rke2_plays import Site, play, said

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
printf '#!/bin/sh\nrm -rf /var/lib/kubelet @DATA@\n' > /usr/local/bin/rke2-uninstall.sh
chmod +x /usr/local/bin/rke2-*.sh
"""
"""RKE2's own script for the end removes its folders and whatever is mounted in them (rke2-uninstall.sh, `rm -rf`)."""


def test_volumes_and_shares_are_unmounted_before_rke2_uninstalls_itself(up: Any, site: Site) -> None:
    lab = up(1, Init.SSHD)
    (host,) = lab.hosts
    words = MADE + SCRIPTS
    for name, path in {"DISKS": "", "SHARE": DATA + "/server/db/snapshots", "DATA": DATA, "VOLUME": VOLUME}.items():
        words = words.replace(f"@{name}@", path)
    host.run("sh", "-ec", words)

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
