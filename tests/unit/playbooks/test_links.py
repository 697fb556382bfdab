"""What keeps an interface's MTU over a boot: systemd-networkd's drop-in, NetworkManager's section, or nobody whom we know."""

from typing import Any

from ansible.module_utils.nodeprofile import links

from tests.unit.playbooks.machine import Machine

NETWORKD = "● 4: ens1np0\n  Link File: n/a\n  Network File: /run/systemd/network/10-netplan-ens1np0.network\n"


def kept(machine: Machine, mtu: int = 9000) -> Any:
    keeper = links.keeper(machine, "ens1np0")
    if keeper is not None:
        keeper.keep(machine, mtu)
    return keeper


def test_networkd_gets_a_drop_in_beside_its_own_file() -> None:
    machine = Machine({"networkctl": lambda _: (0, NETWORKD, "")})
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


def test_an_interface_that_network_manager_leaves_alone_has_no_keeper() -> None:
    assert kept(Machine({"nmcli": lambda _: (0, "GENERAL.STATE:10 (unmanaged)\n", "")})) is None
    assert kept(Machine({"networkctl": lambda _: (0, "  Network File: n/a\n", "")})) is None
    assert kept(Machine({})) is None


def test_an_mtu_that_nobody_keeps_is_not_changed_and_says_where_to_set_it() -> None:
    machine = Machine({"ip": lambda _: (0, "", "")})
    (row, item) = links.links(machine, {"names": ["lo"], "mtu": 1234})
    assert row["status"] == "ok"
    assert (item["status"], item["want"]) == ("failed", "1234")
    assert "set its MTU where it is configured" in item["why"]
    assert machine.said == []
