"""MTU and routes of the fabric's interfaces, kept by the real systemd-networkd and the real NetworkManager over a boot; names, as
the real udev gives them. The interface is one end of a pair of virtual ones."""

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from ansible.module_utils.nodeprofile import link_names
from hostlab import network
from hostlab.host import Host, answers
from hostlab.lab import Init, Lab
from hostlab.profile import judged, request, variables
from hostlab.waiting import until

from steps.clients.ansible import playing
from steps.contract.host_play import HostStatus, PlayResult
from steps.stages.os_prep import probe
from steps.stages.os_prep.contract import Item

pytestmark = pytest.mark.sampled("preparing hosts")

NAME, OWN, GATEWAY = "fabric0", "192.168.50.1/24", "192.168.50.254"
INSTALL = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--no-install-recommends")
WANTED = {
    "links": {"names": [NAME], "mtu": 1400},
    "routes": [
        {"to": "172.16.0.0/12", "via": GATEWAY},
        {"to": "198.51.100.0/24", "device": NAME},
        {"to": "fd01::/64", "via": "fd00::2"},
    ],
}
ITEMS = (f"MTU of {NAME}", *(f"route {route['to']}" for route in WANTED["routes"]))
SECONDS = 30.0
UNIT = f"""[Unit]
DefaultDependencies=no
Before=network-pre.target
Wants=network-pre.target
[Service]
Type=oneshot
# a boot of a host leaves its network namespace as it is
ExecStart=-ip link delete {NAME}
ExecStart=ip link add {NAME} type veth peer name switch0
ExecStart=ip link set switch0 up
[Install]
WantedBy=sysinit.target
"""


def plugged(host: Host) -> None:
    """The interface is there at once, and at each boot before anything configures it."""
    host.run("sh", "-c", "cat > /etc/systemd/system/fabric.service", text=UNIT)
    host.run("systemctl", "enable", "--now", "fabric.service")


def networkd(host: Host, names: str = NAME) -> None:
    """systemd-networkd configures it, and others of these names alike."""
    text = f"[Match]\nName={names}\n[Network]\nAddress={OWN}\nAddress=fd00::1/64\n"
    host.run("sh", "-c", "mkdir -p /etc/systemd/network; cat > /etc/systemd/network/20-fabric.network", text=text)
    host.run("systemctl", "unmask", "systemd-networkd.service")
    host.run("systemctl", "enable", "--now", "systemd-networkd.service")


def manager(host: Host) -> None:
    """NetworkManager configures it."""
    host.run(*INSTALL, "network-manager")
    host.run("systemctl", "enable", "--now", "NetworkManager.service")
    addresses = ("ipv4.method", "manual", "ipv4.addresses", OWN, "ipv6.method", "manual", "ipv6.addresses", "fd00::1/64")
    host.run("nmcli", "connection", "add", "type", "ethernet", "ifname", NAME, "con-name", "fabric", *addresses)
    host.run("nmcli", "connection", "up", "fabric")


def items(result: PlayResult) -> dict[str, Item]:
    """Return the items that the module reports of the only host, by name."""
    return {item.name: item for item in probe.from_play(result.hosts).nodes[0].items}


def is_up(host: Host) -> bool:
    """Return True if the interface has its address."""
    return OWN in host.run("sh", "-c", f"ip -brief address show dev {NAME} 2>&1 || true")


def routes(host: Host) -> list[str]:
    """The routes through the interface that somebody gave it, in words of `ip`."""
    said = host.run("sh", "-c", f"ip route show dev {NAME}; ip -6 route show dev {NAME}")
    return [line for line in said.splitlines() if line.split()[0] in {route["to"] for route in WANTED["routes"]}]


def play(lab: Lab, **wanted: Any) -> PlayResult:
    """The profile with the fabric, or with other wishes for it."""
    return playing.play(request(lab, variables=variables("debian", **(wanted or WANTED))))


def boot_again(host: Host) -> None:
    """Reboot, and wait until it is up."""
    before = host.boot_id()
    with suppress(subprocess.CalledProcessError):
        host.run("systemctl", "reboot", "--no-block")
    assert until(lambda: host.boot_id() not in ("", before) and answers(host, time.monotonic() + 1), SECONDS)


@pytest.mark.parametrize("configure", [networkd, manager])
def test_mtu_and_routes_are_set_now_and_are_there_after_a_boot(up: Any, configure: Callable[[Host], None]) -> None:
    lab = up(1, Init.SYSTEMD)
    host = lab.hosts[0]
    plugged(host)
    configure(host)
    assert until(lambda: is_up(host), SECONDS), host.run("ip", "address")

    first = play(lab)
    assert judged(first).is_pass, judged(first).reason
    assert {name: items(first)[name].status.value for name in ITEMS} == dict.fromkeys(ITEMS, "changed")
    assert len(routes(host)) == len(WANTED["routes"])
    again = play(lab)
    assert [(outcome.status, outcome.changed) for outcome in again.hosts] == [(HostStatus.OK, 0)]

    boot_again(host)
    assert until(lambda: is_up(host) and len(routes(host)) == len(WANTED["routes"]), SECONDS), host.run("ip", "route")
    assert all("proto static" in line for line in routes(host)), "set by whoever configures the interface"
    last = play(lab)
    assert [(outcome.status, outcome.changed) for outcome in last.hosts] == [(HostStatus.OK, 0)], items(last)


def test_another_gateway_is_followed_and_a_route_that_would_take_ssh_elsewhere_is_not_set(up: Any) -> None:
    lab = up(1, Init.SYSTEMD, prepared=True)
    host = lab.hosts[0]
    plugged(host)
    networkd(host)
    assert until(lambda: is_up(host), SECONDS), host.run("ip", "address")
    to, cuts = "172.16.0.0/12", {"to": f"{network.GATEWAY}/32", "device": NAME}
    for gateway in (GATEWAY, "192.168.50.253"):
        result = play(lab, routes=[{"to": to, "via": gateway}, cuts])
        seen = items(result)
        assert (seen[f"route {to}"].status.value, seen[f"route {to}"].after) == ("changed", f"via {gateway}")
        assert f"{network.GATEWAY} has a connection open" in seen[f"route {cuts['to']}"].why
        assert host.run("ip", "route", "show", to).split()[1:3] == ["via", gateway]
    assert host.run("cat", "/etc/systemd/network/20-fabric.network.d/90-bringup-routes.conf").count("[Route]") == 1


def test_a_file_of_networkd_for_several_interfaces_gets_nothing_that_is_meant_for_one(up: Any) -> None:
    lab = up(1, Init.SYSTEMD, prepared=True)
    host = lab.hosts[0]
    plugged(host)
    networkd(host, f"{NAME} switch0")
    assert until(lambda: is_up(host), SECONDS), host.run("ip", "address")
    seen = items(play(lab))
    assert all("20-fabric.network configures switch0 too" in seen[name].why for name in ITEMS), seen
    assert routes(host) == []


def test_udev_gives_the_name_by_our_file(up: Any) -> None:
    """`udevadm test-builtin` is udev's own reader of such files. Where the interface is on the PCI bus, which udev itself would
    have found out, is written into udev's records by the test."""
    lab = up(1, Init.SYSTEMD)
    host, address = lab.hosts[0], "0000:18:00.0"
    host.run(*INSTALL, "udev")
    plugged(host)
    host.run("sh", "-c", "cat > " + link_names.FILE % "fab0", text=link_names.link_file(address, "fab0", 0))
    index = host.run("cat", f"/sys/class/net/{NAME}/ifindex").strip()
    host.run("sh", "-c", f"mkdir -p /run/udev/data; echo E:ID_PATH=pci-{address} > /run/udev/data/n{index}")
    said = host.run("udevadm", "test-builtin", "net_setup_link", f"/sys/class/net/{NAME}")
    assert {f"ID_NET_LINK_FILE={link_names.FILE % 'fab0'}", "ID_NET_NAME=fab0"} <= set(said.splitlines())
