"""Keeping an interface's MTU and routes over a boot: by a drop-in of systemd-networkd, by NetworkManager, or by nothing known."""

import os
from typing import Any

import pytest
from ansible.module_utils.nodeprofile import network_managers
from ansible.module_utils.nodeprofile.item import CannotChange

from tests.unit.playbooks.machine import Machine

NETWORKD = "● 4: ens1np0\n  Link File: n/a\n  Network File: /run/systemd/network/10-netplan-ens1np0.network\n"


def kept(machine: Machine, mtu: int = 9000) -> Any:
    keeper = network_managers.manager_of(machine, "ens1np0")
    if keeper is not None:
        keeper.keep(mtu)
    return keeper


def test_networkd_gets_a_drop_in_beside_its_own_file() -> None:
    machine = Machine({"networkctl": lambda command: (0, NETWORKD if command[-1] == "ens1np0" else "", "")})
    assert kept(machine) is not None
    assert machine.written == {
        "/etc/systemd/network/10-netplan-ens1np0.network.d/90-bringup.conf": "# Made by bringup.\n[Link]\nMTUBytes=9000\n"
    }


def test_network_manager_gets_a_section_and_learns_of_it() -> None:
    machine = Machine({"nmcli": lambda _: (0, "GENERAL.STATE:100 (connected)\n", "")})
    assert kept(machine) is not None
    (text,) = machine.written.values()
    assert "match-device=interface-name:ens1np0\nethernet.mtu=9000\ninfiniband.mtu=9000\n" in text
    assert machine.reloads == ["networkmanager"]


UUID = "5fb06bd0-0bb0-7ffb-45f1-d6edd65f3e03"


@pytest.mark.parametrize(
    ("setting", "own", "kept_by_it"),
    [("802-3-ethernet.mtu", "9000", True), ("802-3-ethernet.mtu", "1500", False), ("infiniband.mtu", "2044", False)],
)
def test_a_connections_own_mtu_goes_before_our_section(setting: str, own: str, kept_by_it: bool) -> None:
    def nmcli(command: tuple[str, ...]) -> tuple[int, str, str]:
        if "device" in command:
            return 0, f"GENERAL.STATE:100 (connected)\nGENERAL.CON-UUID:{UUID}\n", ""
        assert command[-3:] == ("connection", "show", UUID)
        return 0, f"connection.id:eth0\nconnection.type:x\n{setting}:{own}\nipv4.method:auto\n", ""

    machine = Machine({"nmcli": nmcli})
    keeper = network_managers.manager_of(machine, "ens1np0")
    assert keeper.has(9000) is kept_by_it
    with pytest.raises(CannotChange, match=f"{own}: `nmcli connection modify {UUID} {setting} 9000`"):
        keeper.keep(9000)
    assert machine.written == {}


def test_a_connection_without_an_mtu_of_its_own_leaves_it_to_our_section() -> None:
    def nmcli(command: tuple[str, ...]) -> tuple[int, str, str]:
        shown = f"GENERAL.STATE:100 (connected)\nGENERAL.CON-UUID:{UUID}\n"
        return 0, shown if "device" in command else "802-3-ethernet.mtu:auto\n", ""

    machine = Machine({"nmcli": nmcli})
    assert kept(machine) is not None
    assert "ethernet.mtu=9000" in machine.written[network_managers.NM_CONFIG]


def test_an_interface_that_network_manager_leaves_alone_has_no_keeper() -> None:
    assert kept(Machine({"nmcli": lambda _: (0, "GENERAL.STATE:10 (unmanaged)\n", "")})) is None
    assert kept(Machine({"networkctl": lambda _: (0, "  Network File: n/a\n", "")})) is None
    assert kept(Machine({})) is None


SAID = [
    "ipv4.routes:{ ip = 192.168.0.0/16, nh = 10.1.0.1 }; { ip = 10.3.0.0/16 }\n"
    "ipv6.routes:{ ip = fd01::/64, nh = fd00::2, mt = 5 }\n",
    "ipv4.routes:192.168.0.0/16 10.1.0.1, 10.3.0.0/16\nipv6.routes:fd01::/64 fd00::2 5\n",
]


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize(
    ("to", "via", "has"),
    [
        *(("192.168.0.0/16", "10.1.0.1", True), ("10.3.0.0/16", "", True), ("fd01::/64", "fd00::2", True)),
        *(("192.168.0.0/16", "10.1.0.2", False), ("10.3.0.0/16", "10.1.0.1", False), ("168.0.0/16", "", False)),
    ],
)
def test_a_connections_routes_are_read(said: str, to: str, via: str, has: bool) -> None:
    assert network_managers.NetworkManager(Machine({}), "ens1", UUID, said).has_route(to, via) is has


def test_a_route_is_added_to_the_connection() -> None:
    machine = Machine({"nmcli": lambda _: (0, "", "")})
    network_managers.NetworkManager(machine, "ens1", UUID).keep_route("fd01::/64", "fd00::2")
    network_managers.NetworkManager(machine, "ens1", UUID).keep_route("10.3.0.0/16", "")
    assert machine.said == [
        ("nmcli", "connection", "modify", UUID, "+ipv6.routes", "fd01::/64 fd00::2"),
        ("nmcli", "connection", "modify", UUID, "+ipv4.routes", "10.3.0.0/16"),
    ]
    with pytest.raises(CannotChange, match="no connection for ens1"):
        network_managers.NetworkManager(machine, "ens1").keep_route("10.3.0.0/16", "")


def test_networkd_keeps_each_route_in_its_drop_in() -> None:
    machine = Machine({})
    network_managers.Networkd(machine, "/run/systemd/network/10-netplan-ens1.network").keep_route("192.168.0.0/16", "10.1.0.1")
    assert machine.written == {
        "/etc/systemd/network/10-netplan-ens1.network.d/90-bringup-routes.conf": (
            "# Made by bringup.\n[Route]\nDestination=192.168.0.0/16\nGateway=10.1.0.1\n"
        )
    }


def test_a_file_of_networkd_that_configures_others_too_gets_no_drop_in() -> None:
    """Whatever is on this machine besides lo is configured by the same file here: `Name=en*` of many images."""
    others = [name for name in os.listdir("/sys/class/net") if name != "lo"]
    machine = Machine({"networkctl": lambda _: (0, NETWORKD, "")})
    with pytest.raises(CannotChange, match="too: give ens1np0 a file of its own"):
        network_managers.manager_of(machine, "ens1np0").require_for_none_but(["ens1np0"])
    network_managers.manager_of(machine, "ens1np0").require_for_none_but(["ens1np0", *others])
