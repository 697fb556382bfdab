"""Hosts with disks of the site for RKE2, mounted or behind links: a reset empties them, and they stay; volumes of pods keep what is
in them. One play resets all hosts, each made otherwise, and another finds nothing more to do."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import release_site
from hostlab import lab
from hostlab.host import Host
from hostlab.lab import Init
from rke2_plays import RELEASES, Site, play
from site_disks import DATA, LINKED, MADE, script

from steps.contract.host_play import HostOutcome, HostStatus

pytestmark = pytest.mark.sampled("rke2 on hosts")

SCRIPTS = """
mkdir -p @SHARE@ /srv/snapshots
mount --bind /srv/snapshots @SHARE@
echo precious > @SHARE@/nightly
printf '#!/bin/sh\nexit 0\n' > /usr/local/bin/rke2-killall.sh
printf '#!/bin/sh\nrm -rf /etc/rancher/rke2 /var/lib/kubelet @DATA@\nrm -d /var/lib/rancher\n' > /usr/local/bin/rke2-uninstall.sh
chmod +x /usr/local/bin/rke2-*.sh
"""
"""RKE2's own script for the end removes its folders and whatever is mounted in them (rke2-uninstall.sh, `rm -rf`); links alone."""
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
"""Mounts of a driver container that was started twice and killed. A folder of the host, with all that is mounted there, is
mounted in it too; the mounts are shared, so unmounting in the container's copy also unmounts on the host."""


SHIM = f"""
mkdir -p /var/lib/rancher/k3s {DATA}/data/v1/bin
echo precious > /var/lib/rancher/k3s/state
cp /usr/bin/sleep {DATA}/data/v1/bin/shim
setsid {DATA}/data/v1/bin/shim 10000 >&- 2>&- <&- &
"""
DISKS = ((DATA, "/var/lib/kubelet"), (DATA + "/server/db",), (DATA, DATA + "/server/db"))
LINKS = (("/var/lib/rancher",), (DATA, "/var/lib/kubelet"), (DATA + "/server/db",))
CASES = {
    "scripts": script(MADE + SCRIPTS),
    **{f"disks {disks}": script(MADE.replace("@DISKS@", " ".join(disks))) for disks in DISKS},
    **{f"links {links}": script(LINKED + MADE + SCRIPTS, links) + SHIM for links in LINKS},
    "driver": DRIVER_CONTAINER + f"mkdir -p {DATA}",
    "no rke2": DRIVER_CONTAINER,
}
"""Name of a case → shell that prepares its host before the first play."""


@dataclass(frozen=True)
class Reset:
    """A host, and what became of it in both plays."""

    host: Host
    first: HostOutcome
    again: HostOutcome

    @property
    def traces(self) -> dict[str, list[str]]:
        """Return the traces of RKE2 that the first play still found at its end."""
        return {kind: found for kind, found in self.first.facts["traces"].items() if kind != "looked" and found}


@pytest.fixture(scope="module")
def resets(able: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Reset]]:
    """All cases, by name."""
    folder = tmp_path_factory.mktemp("resets")
    lab.down()
    made = lab.up(len(CASES), Init.SSHD)
    hosts = dict(zip(CASES, made.hosts, strict=True))
    for name, words in CASES.items():
        hosts[name].run("sh", "-ec", words)
    assert all(hosts[f"links {links}"].run("sh", "-c", "find /data -type f | wc -l").strip() != "0" for links in LINKS)
    for name in ("driver", "no rke2"):
        assert hosts[name].run("cat", "/srv/site/rows", "/run/nvidia/driver/srv/site/rows").split() == ["precious"] * 2
    with release_site.offered(folder, RELEASES) as url:
        site = Site(url, folder / "site", folder)
        first, again = (
            {outcome.host: outcome for outcome in play(made, site, "rke2_reset", list(made.hosts)).hosts} for _ in range(2)
        )
    yield {name: Reset(host, first[host.name], again[host.name]) for name, host in hosts.items()}
    lab.down()


@pytest.mark.parametrize("name", list(CASES))
def test_a_reset_comes_to_its_end_and_a_second_one_changes_nothing(resets: dict[str, Reset], name: str) -> None:
    reset = resets[name]
    assert (reset.first.status, reset.first.message) == (HostStatus.OK, "")
    assert (reset.again.status, reset.again.changed) == (HostStatus.OK, 0)


def test_volumes_and_shares_are_unmounted_before_rke2_uninstalls_itself(resets: dict[str, Reset]) -> None:
    reset = resets["scripts"]
    assert reset.first.facts["traces"]["paths"] == []
    assert reset.host.run("cat", "/srv/volume/rows", "/srv/snapshots/nightly").split() == ["precious", "precious"]


@pytest.mark.parametrize("disks", DISKS)
def test_disks_of_the_site_are_emptied_where_they_are(resets: dict[str, Reset], disks: tuple[str, ...]) -> None:
    reset = resets[f"disks {disks}"]
    traces = reset.first.facts["traces"]
    assert (traces["paths"], traces["mounts"]) == ([], [])
    places = [line.split()[1] for line in reset.host.run("cat", "/proc/mounts").splitlines() if line.startswith("site ")]
    assert sorted(places) == sorted(disks), "the site's disks stay"
    assert reset.host.run("find", *disks, "-type", "f") == ""
    assert reset.host.run("cat", "/srv/volume/rows").strip() == "precious"


@pytest.mark.parametrize("links", LINKS)
def test_what_links_of_the_site_lead_to_is_removed_and_the_links_stay(resets: dict[str, Reset], links: tuple[str, ...]) -> None:
    reset = resets[f"links {links}"]
    host = reset.host
    assert reset.traces == {}
    assert host.run("sh", "-c", "find /data /var/lib/rancher/ -type f -not -path '*/k3s/*'") == ""
    assert host.run("sh", "-c", "pgrep -f '^/var/lib/rancher/rke2/data' || true") == ""
    assert [host.run("readlink", link).strip() for link in links] == [f"/data{link}" for link in links]
    assert host.run("cat", "/srv/volume/rows", "/srv/snapshots/nightly", "/var/lib/rancher/k3s/state").split() == ["precious"] * 3


def test_the_root_of_a_driver_container_is_unmounted_and_nothing_of_the_host(resets: dict[str, Reset]) -> None:
    reset, other = resets["driver"], resets["no rke2"]
    assert reset.traces == {}
    assert "/run/nvidia" not in reset.host.run("cat", "/proc/mounts")
    assert reset.host.run("cat", "/srv/site/rows").strip() == "precious"
    assert reset.host.run("ls", "/run/nvidia").split() == ["driver"], "nor does the next cluster take the validation for its own"
    assert other.first.changed == 0
    assert other.host.run("cat", "/run/nvidia/driver/srv/site/rows").strip() == "precious", "without an RKE2 it may be another's"
