"""Routes: one that is absent is set and kept, one that leads another way stays; and whether there is a default route."""

from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import pod_interfaces, routes

from tests.unit.playbooks.machine import Machine

NONE = pod_interfaces.PodInterfaces(Machine({}), [], [], {})

# what `ip -json route show exact` of iproute2 6.1 prints
BY_HAND = '[{"dst":"172.16.0.0/12","gateway":"10.99.0.2","dev":"v0","flags":[]}]'
ONE = '[{"dst":"172.16.0.0/12","gateway":"10.99.0.2","dev":"v0","protocol":"static","flags":[]}]'
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
    (row,) = routes.routes(machine, [{"to": "172.16.0.0/12", "via": via, "device": device}], [], NONE)
    assert (row["status"], row.get("after") or row["before"]) == (status, seen)


def test_a_route_of_ip_version_six_is_asked_for_as_such() -> None:
    machine = Machine(
        {"ip": lambda command: (0, '[{"dst":"fd01::/64","gateway":"fd00::2","dev":"v1"}]' if "-6" in command else "[]", "")}
    )
    (row,) = routes.routes(machine, [{"to": "fd01::/64", "via": "fd00::2"}], [], NONE)
    assert row["status"] == "ok"


NETWORKD = "  Network File: /etc/systemd/network/10-v0.network\n"
ON_LINK = '[{"dst":"10.99.0.2","dev":"v0","prefsrc":"10.99.0.1","flags":[]}]'
FAR = '[{"dst":"10.99.0.2","gateway":"10.0.0.1","dev":"eth0","flags":[]}]'
FILE = "/etc/systemd/network/10-v0.network.d/90-bringup-routes.conf"


def fabric(shown: str, *, get: str = ON_LINK, networkctl: str = NETWORKD) -> Machine:
    """A machine whose route appears once it is set."""
    now = [shown]

    def ip(command: tuple[str, ...]) -> tuple[int, str, str]:
        if "get" in command:
            return 0, get, ""
        if "replace" in command:
            now[0] = BY_HAND
        return 0, now[0], ""

    return Machine({"ip": ip, "networkctl": lambda command: (0, networkctl if command[-1] == "v0" else "", "")})


def test_a_route_that_is_absent_is_set_and_kept_on_the_interface_of_its_gateway() -> None:
    machine = fabric("[]")
    (row,) = routes.routes(machine, [{"to": "172.16.0.0/12", "via": "10.99.0.2"}], [], NONE)
    assert ("ip", "route", "replace", "172.16.0.0/12", "via", "10.99.0.2", "dev", "v0") in machine.said
    assert "Destination=172.16.0.0/12\nGateway=10.99.0.2\n" in machine.written[FILE]
    # the file is not on this machine, so that the second reading says what a boot would
    assert (row["status"], row["before"], row["after"]) == ("failed", "absent", "via 10.99.0.2 until the next boot")


def test_a_route_waits_for_an_interface_that_gets_its_name_by_the_next_boot() -> None:
    for entry in ({"to": "172.16.0.0/12", "device": "fab0"}, {"to": "172.16.0.0/12", "via": "10.99.0.2"}):
        machine = fabric("[]")
        (row,) = routes.routes(machine, [entry], ["fab0"], NONE)
        assert (row["status"], row["why"]) == ("differs", routes.NAME_AFTER_BOOT)
        assert machine.written == {}


def test_a_route_that_was_set_by_hand_is_kept_and_one_of_the_configuration_left_alone() -> None:
    wanted = [{"to": "172.16.0.0/12", "via": "10.99.0.2"}]
    by_hand = fabric(BY_HAND)
    assert routes.routes(by_hand, wanted, [], NONE)[0]["before"] == "via 10.99.0.2 until the next boot"
    assert list(by_hand.written) == [FILE]
    configured, unmanaged = fabric(ONE), fabric(BY_HAND, networkctl="  Network File: n/a\n")
    for machine in (configured, unmanaged):
        assert routes.routes(machine, wanted, [], NONE)[0]["status"] == "ok", "who sets them at each boot has a script for it"
        assert machine.written == {}


@pytest.mark.parametrize(
    ("machine", "device", "why"),
    [
        (fabric("[]", get=FAR), None, "the gateway 10.99.0.2 is on no network of this machine"),
        (fabric("[]", networkctl="  Network File: n/a\n"), "lo", "neither systemd-networkd nor NetworkManager manages lo"),
        (fabric("[]", networkctl="  Network File: n/a\n"), "no-such", "the machine has no interface no-such"),
        (fabric(DOWN), "v0", "its link is down"),
        (fabric(SEVERAL), "v9", "it leads another way"),
        (fabric(BLACKHOLE), None, "it leads another way"),
    ],
)
def test_a_route_that_cannot_be_set_says_why_and_nothing_is_changed(machine: Machine, device: str | None, why: str) -> None:
    (row,) = routes.routes(machine, [{"to": "172.16.0.0/12", "via": "10.99.0.2", "device": device}], [], NONE)
    assert row["status"] == "failed"
    assert why in row["why"]
    assert machine.written == {}
    assert not any("replace" in command for command in machine.said)


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
    (row,) = routes.default_route(True, str(tmp_path))
    assert (row["status"], row["after"]) == (status, seen)
    assert routes.default_route(False, str(tmp_path)) == []
