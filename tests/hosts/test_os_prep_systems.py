"""OS prep where a distribution brings something of its own: dnf on rpm, a firewall that runs, NetworkManager.

All programs are the real ones; the packages that dnf installs are made here, and Debian called Rocky Linux is a stand-in.
"""

from pathlib import Path
from typing import Any

import pytest
import release_site
import rpm_site
from hostlab import debian, network
from hostlab.host import Host
from hostlab.lab import Init
from hostlab.profile import judged, request, variables
from hostlab.waiting import until

from steps.clients.ansible import playing
from steps.contract.host_play import HostStatus, PlayResult
from steps.contract.verdict import FailureClass
from steps.stages.os_prep import probe
from steps.stages.os_prep.contract import Item, ItemStatus
from workflows.catalog import profile as catalog

pytestmark = pytest.mark.sampled("preparing hosts")

FAMILY = "rocky"
INSTALL = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--no-install-recommends")

CANAL = """
ip link add flannel.1 type vxlan id 1 dev eth0 dstport 8472
ip addr add 10.42.0.0/32 dev flannel.1
ip link set flannel.1 up
"""
NETWORK_SECONDS = 30

LOCK = Path("/var/cache/dnf/metadata_lock.pid")
"""dnf takes whoever it names for the holder of its lock, as long as that process runs."""
FIREWALL = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
"""A stand-in for firewalld, which is on in every Rocky Linux after its installer."""
PLUGINS = "/usr/lib/python3/dist-packages/dnf-plugins"
NEEDS_RESTARTING = """import dnf
@dnf.plugin.register_command
class NeedsRestarting(dnf.cli.Command):
    aliases = ("needs-restarting",)
    @staticmethod
    def set_argparser(parser):
        parser.add_argument("-r", action="store_true")
    def run(self):
        print("Reboot should not be necessary.")
"""
"""Short stand-in for the command `needs-restarting`, which the real dnf-plugins-core brings."""


def items(result: PlayResult, host: Host) -> dict[str, Item]:
    """Return the items that the module reports of a host, by name."""
    node = next(node for node in probe.from_play(result.hosts).nodes if node.node == host.name)
    return {item.name: item for item in node.items}


@pytest.mark.sampled(None)
def test_dnf_installs_what_lacks_and_a_second_run_changes_nothing(up: Any, tmp_path: Path) -> None:
    profile = catalog.of_system(FAMILY)
    packages = [name.split(" or ")[0] for name in profile["packages"]]
    rpm_site.repository(tmp_path / "site", [*packages, "libnetfilter"], {"conntrack-tools": "libnetfilter"})
    lab = up(3, Init.SYSTEMD, lower=debian.with_dnf())
    good, closed, locked = lab.hosts
    for host in lab.hosts:
        host.run("sh", "-c", f"mkdir -p {PLUGINS}; cat > {PLUGINS}/needs_restarting.py", text=NEEDS_RESTARTING)
    good.run("sh", "-c", "cat > /etc/systemd/system/firewalld.service; systemctl enable --now firewalld", text=FIREWALL)
    locked.run("sh", "-c", f"mkdir -p {LOCK.parent}; echo 1 > {LOCK}")
    with release_site.serving(tmp_path / "site") as url:
        repository(good, url)
        repository(good, f"{url}/gone", "away")
        repository(closed, f"{url}/gone")
        repository(locked, url)
        wanted = {"packages": [*profile["packages"], "no-such-package"], "system": profile["system"] | {"lock_seconds": 1}}
        first = playing.play(request(lab, variables=variables(FAMILY, **wanted)))
        repository(closed, url)
        locked.run("rm", str(LOCK))
        second = playing.play(request(lab, variables=variables(FAMILY)))

    seen = items(first, good)
    assert {seen[f"package {name}"].status for name in profile["packages"]} == {ItemStatus.CHANGED}
    assert "'away'" in seen["package socat"].why, "what others have is installed without one that is away"
    assert any("1 node with a package repository that does not serve" in note for note in judged(first).notes)
    assert "reboot for packages" not in seen
    assert seen["package chrony"].after == f"{rpm_site.VERSION}-1"
    assert "no-such-package" in seen["package no-such-package"].why
    assert seen["time service"].after == "chronyd.service", "a unit that a package has just brought is started"
    assert seen["service firewalld.service"].status is ItemStatus.CHANGED
    assert good.run("sh", "-c", "systemctl is-active firewalld; systemctl is-enabled firewalld; true").split() == [
        "inactive",
        "disabled",
    ]
    assert good.run("rpm", "--query", "libnetfilter") == f"libnetfilter-{rpm_site.VERSION}-1.noarch\n", (
        "what a package needs comes too"
    )
    assert good.run("cat", "/usr/share/stand-in/socat") == "socat\n"
    why = [item.why for item in items(first, closed).values() if item.name.startswith("package ")]
    assert len(why) == 1
    assert "its repositories cannot be reached" in why[0]
    assert judged(first).failure_class is FailureClass.DEPENDENCY
    (held,) = [item.why for item in items(first, locked).values() if item.name.startswith("package ")]
    assert held.startswith("another package manager holds the lock"), held

    assert [outcome.status for outcome in second.hosts] == [HostStatus.OK] * 3, [outcome.message for outcome in second.hosts]
    assert [outcome.changed for outcome in second.hosts] == [0, 1, 1]
    assert judged(second).is_pass, judged(second).reason
    assert probe.from_play(second.hosts).nodes[0].facts.os_id == FAMILY


def repository(host: Host, url: str, name: str = "site") -> None:
    """Let dnf know of one repository."""
    text = f"[{name}]\nname={name}\nbaseurl={url}\ngpgcheck=0\n"
    host.run("sh", "-c", f"mkdir -p /etc/yum.repos.d; cat > /etc/yum.repos.d/{name}.repo", text=text)


def test_the_repository_of_rke2s_policy_comes_before_the_policy_and_that_of_a_site_stays(up: Any, tmp_path: Path) -> None:
    """By the catalog's own layer, with the site's mirror in place of RKE2's; its packages are stand-ins, and not signed."""
    profile = catalog.of_system(FAMILY)
    policy = catalog.layers()["selinux_enforcing"].profile
    packages = [name.split(" or ")[0] for name in profile["packages"]]
    rpm_site.repository(tmp_path / "site", packages, {})
    rpm_site.repository(tmp_path / "rke2", policy["packages"], {})
    lab = up(2, Init.SYSTEMD, lower=debian.with_dnf())
    bare, own = lab.hosts
    for host in lab.hosts:
        host.run("sh", "-c", f"mkdir -p {PLUGINS}; cat > {PLUGINS}/needs_restarting.py", text=NEEDS_RESTARTING)
    with release_site.serving(tmp_path) as url:
        for host in lab.hosts:
            repository(host, f"{url}/site")
        repository(own, f"{url}/rke2", "rancher-rke2-common")
        mirror = {"baseurl": f"{url}/rke2", "gpgcheck": "0", "repo_gpgcheck": "0"}
        wanted = catalog.merge_layers(catalog.merge_layers(profile, policy), {"repositories": {"rke2-selinux": {"keys": mirror}}})
        told = variables(FAMILY, packages=wanted["packages"], repositories=wanted["repositories"])
        first = playing.play(request(lab, variables=told))
        second = playing.play(request(lab, variables=told))

    for host in lab.hosts:
        assert items(first, host)["package rke2-selinux"].status is ItemStatus.CHANGED, host.name
    brought, kept = (items(first, host)["repository of rke2-selinux"] for host in lab.hosts)
    assert (brought.status, kept.status) == (ItemStatus.CHANGED, ItemStatus.OK)
    assert kept.after == "/etc/yum.repos.d/rancher-rke2-common.repo, which is not bringup's"
    written = bare.run("cat", "/etc/yum.repos.d/rancher-rke2.repo").splitlines()
    assert written[:2] == ["# Made by bringup.", "[rancher-rke2-common-stable]"]
    assert f"baseurl={url}/rke2" in written
    assert own.run("ls", "/etc/yum.repos.d").split() == ["rancher-rke2-common.repo", "site.repo"]
    assert [outcome.changed for outcome in second.hosts] == [0, 0]


def test_a_firewall_that_runs_is_stopped_and_networkmanager_leaves_canal_alone(up: Any) -> None:
    lab = up(1, Init.SYSTEMD)
    host = lab.hosts[0]
    host.run(*INSTALL, "network-manager", "ufw")
    host.run("sh", "-c", "ufw allow 22/tcp; ufw --force enable; systemctl enable --now ufw.service NetworkManager.service")
    host.run("sh", "-c", CANAL)
    assert "-P INPUT DROP" in host.run("iptables", "-S", "INPUT")
    assert until(lambda: managed(host, "flannel.1").startswith("connected"), NETWORK_SECONDS), "it takes what it does not know"

    host.run("sh", "-c", f"echo 'deb http://{network.GATEWAY}:1/ away main' > /etc/apt/sources.list.d/away.list")
    told = variables(dns={"servers": [network.GATEWAY], "search": ["lab.example.org"]})
    first = playing.play(request(lab, variables=told))
    again = playing.play(request(lab, variables=told))

    assert judged(first).is_pass, judged(first).reason
    socat = items(first, host)["package socat"]
    assert (socat.status, f"http://{network.GATEWAY}:1/" in socat.why) == (ItemStatus.CHANGED, True), socat
    assert items(first, host)["DNS"].status is ItemStatus.CHANGED
    asked = host.run("cat", "/etc/resolv.conf")
    assert ("by NetworkManager" in asked, asked.split()[-4:]) == (
        True,
        ["search", "lab.example.org", "nameserver", network.GATEWAY],
    )
    assert items(first, host)["service ufw.service"].status is ItemStatus.CHANGED
    assert items(first, host)["reload networkmanager"].status is ItemStatus.CHANGED
    assert "-P INPUT ACCEPT" in host.run("iptables", "-S", "INPUT")
    assert host.run("sh", "-c", "systemctl is-active ufw; systemctl is-enabled ufw; true").split() == ["inactive", "disabled"]
    assert until(lambda: managed(host, "flannel.1") == "unmanaged", NETWORK_SECONDS)
    assert managed(host, "eth0").startswith("connected")
    assert host.run("systemctl", "is-active", "NetworkManager") == "active\n"
    assert [(outcome.status, outcome.changed) for outcome in again.hosts] == [(HostStatus.OK, 0)]


RESOLVCONF = "mkdir /run/resolvconf; mv /etc/resolv.conf /run/resolvconf/; ln -s /run/resolvconf/resolv.conf /etc/resolv.conf"
"""As Debian's package leaves it."""
DHCLIENT = "cp /usr/bin/sleep /usr/sbin/dhclient; systemd-run --unit=dhclient /usr/sbin/dhclient infinity"
"""A stand-in for one that holds a lease: what it is called is all that is seen of it."""


def test_a_resolv_conf_that_another_writes_is_left_alone_until_it_is_nobodys(up: Any) -> None:
    lab = up(2, Init.SYSTEMD, prepared=True)
    linked, leased = lab.hosts
    linked.run("sh", "-c", RESOLVCONF)
    leased.run("sh", "-c", DHCLIENT)
    before = [host.run("cat", "/etc/resolv.conf") for host in lab.hosts]

    told = variables(dns={"servers": [network.GATEWAY], "search": ["lab.example.org"]})
    first = playing.play(request(lab, variables=told))
    leased.run("systemctl", "stop", "dhclient")
    second = playing.play(request(lab, variables=told))

    for host, writer, file in ((linked, "resolvconf", "/etc/network/interfaces"), (leased, "dhclient", "/etc/dhcp/dhclient.conf")):
        failed = [item for item in items(first, host).values() if item.status is ItemStatus.FAILED]
        assert [item.name for item in failed] == ["DNS"]
        assert failed[0].why.startswith(f"{writer} writes /etc/resolv.conf anew: write `")
        assert f"{network.GATEWAY}" in failed[0].why
        assert f" in {file}, and " in failed[0].why
    assert judged(first).failure_class is FailureClass.DEPENDENCY
    assert linked.run("readlink", "/etc/resolv.conf") == "/run/resolvconf/resolv.conf\n"
    assert linked.run("cat", "/etc/resolv.conf") == before[0]
    assert items(second, linked)["DNS"].status is ItemStatus.FAILED
    assert items(second, leased)["DNS"].status is ItemStatus.CHANGED
    assert leased.run("cat", "/etc/resolv.conf").endswith(f"search lab.example.org\nnameserver {network.GATEWAY}\n")


def managed(host: Host, link: str) -> str:
    """Return the state of a link in NetworkManager; an empty text if NetworkManager does not know the link."""
    rows = dict(line.split(":", 1) for line in host.run("nmcli", "--terse", "--fields", "DEVICE,STATE", "device").splitlines())
    return rows.get(link, "")


@pytest.mark.long
def test_a_real_ubuntu_is_brought_to_its_profile_and_resolved_asks_whom_it_is_told_to(up: Any) -> None:
    lab = up(2, Init.SYSTEMD, lower=debian.ubuntu())
    told = variables("ubuntu", dns={"servers": [network.GATEWAY], "search": ["lab.example.org"]})
    first = playing.play(request(lab, variables=told))
    assert judged(first).is_pass, judged(first).reason
    host = lab.hosts[0]
    assert items(first, host)["package socat"].status is ItemStatus.CHANGED
    assert items(first, host)["DNS"].status is ItemStatus.CHANGED
    asked = host.run("resolvectl", "status")
    assert network.GATEWAY in asked
    assert "lab.example.org" in asked
    again = playing.play(request(lab, variables=told))
    assert [(outcome.status, outcome.changed) for outcome in again.hosts] == [(HostStatus.OK, 0), (HostStatus.OK, 0)]
    assert judged(again).is_pass, judged(again).reason
