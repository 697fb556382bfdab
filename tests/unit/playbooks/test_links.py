"""What keeps an interface's MTU over a boot: systemd-networkd's drop-in, NetworkManager's section, or nobody whom we know; and
whether there is a default route."""

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.nodeprofile import links
from ansible.module_utils.nodeprofile.item import CannotChange

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
    keeper = links.keeper(machine, "ens1np0")
    assert keeper.has(9000) is kept_by_it
    with pytest.raises(CannotChange, match=f"{own}: `nmcli connection modify {UUID} {setting} 9000`"):
        keeper.keep(machine, 9000)
    assert machine.written == {}


def test_a_connection_without_an_mtu_of_its_own_leaves_it_to_our_section() -> None:
    def nmcli(command: tuple[str, ...]) -> tuple[int, str, str]:
        shown = f"GENERAL.STATE:100 (connected)\nGENERAL.CON-UUID:{UUID}\n"
        return 0, shown if "device" in command else "802-3-ethernet.mtu:auto\n", ""

    machine = Machine({"nmcli": nmcli})
    assert kept(machine) is not None
    assert "ethernet.mtu=9000" in machine.written[links.MANAGER]


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


# what `ip -json route show exact` of iproute2 6.1 prints
ONE = '[{"dst":"172.16.0.0/12","gateway":"10.99.0.2","dev":"v0","flags":[]}]'
DOWN = '[{"dst":"172.16.0.0/12","gateway":"10.99.0.2","dev":"v0","flags":["linkdown"]}]'
SEVERAL = (
    '[{"dst":"192.168.0.0/16","flags":[],"nexthops":[{"gateway":"10.99.0.2","dev":"v0","weight":1,"flags":["dead","linkdown"]},'
    '{"gateway":"10.99.1.2","dev":"v1","weight":1,"flags":[]}]}]'
)
OVER_SIX = '[{"dst":"172.16.0.0/12","via":{"family":"inet6","host":"fe80::1"},"dev":"v0","flags":[]}]'
BLACKHOLE = '[{"type":"blackhole","dst":"10.5.0.0/16","flags":[]}]'


@pytest.mark.parametrize(
    ("said", "via", "device", "status", "seen"),
    [
        (ONE, "10.99.0.2", "v0", "ok", "via 10.99.0.2 dev v0"),
        (ONE, "10.99.0.9", None, "failed", "via 10.99.0.2 dev v0"),
        (DOWN, "10.99.0.2", None, "failed", "via 10.99.0.2 dev v0 linkdown"),
        (SEVERAL, "10.99.1.2", None, "ok", "via 10.99.1.2"),
        (SEVERAL, None, "v0", "failed", "via 10.99.0.2 dev v0 dead linkdown; via 10.99.1.2 dev v1"),
        (OVER_SIX, "fe80::1", "v0", "ok", "via fe80::1 dev v0"),
        (BLACKHOLE, "10.99.0.2", None, "failed", "blackhole"),
        ("[]", None, "v0", "failed", "absent"),
        ("", None, "v0", "failed", "absent"),
    ],
)
def test_a_route_counts_where_one_of_its_ways_is_the_wanted_one_and_works(
    said: str, via: str | None, device: str | None, status: str, seen: str
) -> None:
    machine = Machine({"ip": lambda _: (0, said, "")})
    (row,) = links.routes(machine, [{"to": "172.16.0.0/12", "via": via, "device": device}])
    assert (row["status"], row.get("after") or row["before"]) == (status, seen)


def test_a_route_of_ip_version_six_is_asked_for_as_such() -> None:
    machine = Machine(
        {"ip": lambda command: (0, '[{"dst":"fd01::/64","gateway":"fd00::2","dev":"v1"}]' if "-6" in command else "[]", "")}
    )
    (row,) = links.routes(machine, [{"to": "fd01::/64", "via": "fd00::2"}])
    assert row["status"] == "ok"


HEAD = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
ONE_NETWORK = "eth0\t0000000A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
REFUSED = "*\t00000000\t00000000\t0200\t0\t0\t0\t00000000\t0\t0\t0\n"
DEFAULT = "eth0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
NOWHERE = "00000000000000000000000000000000"
SIX = f"{NOWHERE} 00 {NOWHERE} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth1\n"
SIX_REFUSED = f"{NOWHERE} 00 {NOWHERE} 00 {NOWHERE} ffffffff 00000001 00000000 00200200       lo\n"


@pytest.mark.parametrize(
    ("four", "six", "status", "seen"),
    [
        (ONE_NETWORK + DEFAULT, "", "ok", "dev eth0"),
        (ONE_NETWORK, SIX, "ok", "dev eth1"),
        (ONE_NETWORK + REFUSED, SIX_REFUSED, "failed", "absent"),
    ],
)
def test_a_default_route_leads_to_an_interface(tmp_path: Path, four: str, six: str, status: str, seen: str) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/route").write_text(HEAD + four)
    (tmp_path / "proc/net/ipv6_route").write_text(six)
    (row,) = links.default_route(True, str(tmp_path))
    assert (row["status"], row["after"]) == (status, seen)
    assert links.default_route(False, str(tmp_path)) == []


def test_the_fabrics_interfaces_are_found_by_their_devices(tmp_path: Path) -> None:
    for name, vendor, device in (
        ("ib0", "15b3", "1021"),
        ("ens1", "15b3", "1023"),
        ("eth0", "8086", "1572"),
        ("ib1", "15b3", "1017"),
    ):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "device/vendor").write_text(f"0x{vendor}\n")
        (tmp_path / name / "device/device").write_text(f"0x{device}\n")
    (tmp_path / "lo").mkdir()
    assert links.of_devices(["15b3:1021", "15b3:1023"], str(tmp_path)) == ["ens1", "ib0"]
    assert links.of_devices(["15b3:a2dc"], str(tmp_path)) == []


def test_without_an_interface_of_the_fabrics_devices_nothing_passes() -> None:
    (row,) = links.links(Machine({}), {"devices": ["15b3:a2dc"], "mtu": 9000})
    assert (row["status"], row["want"], row["before"]) == ("failed", "an interface of 15b3:a2dc", "none")
