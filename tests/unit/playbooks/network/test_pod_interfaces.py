"""Interfaces that pods have: left with their names, MTUs and routes where RKE2 gives whole devices away, and missed elsewhere."""

from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import link_names, links, pod_interfaces, routes

from tests.unit.playbooks.machine import Answer, Machine

FIRST, SECOND, OTHER = "0000:18:00.0", "0000:3b:00.0", "0000:5e:00.0"
NIC = "15b3:1021"
PLACES = {"fab0": FIRST, "fab1": SECOND}


def device(root: Path, slot: str, pair: str = NIC, *, driver: bool = True, interface: str = "") -> None:
    """A device on the bus, as sysfs shows it, with an interface of this machine or none."""
    bus, real = root / "sys/bus/pci/devices", root / "sys/devices/pci0000:17" / slot
    for folder in (bus, real, root / "sys/class/net"):
        folder.mkdir(parents=True, exist_ok=True)
    for part, value in zip(("vendor", "device"), pair.split(":"), strict=True):
        (real / part).write_text(f"0x{value}\n")
    if driver:
        (real / "driver").mkdir()
    (bus / slot).symlink_to(real)
    if interface:
        (root / "sys/class/net" / interface).mkdir()
        (root / "sys/class/net" / interface / "device").symlink_to(real)
        (root / "sys/class/net" / interface / "mtu").write_text("4092\n")


def machine(root: Path, *, rke2: str = "active", check_mode: bool = False, **tools: Answer) -> Machine:
    """One with systemd and RKE2, which is in this state."""
    (root / "run/systemd/system").mkdir(parents=True, exist_ok=True)
    units = f"ActiveState=inactive\nUnitFileState=\n\nActiveState={rke2}\nUnitFileState=enabled\n"
    return Machine({"systemctl": lambda _: (0, units, ""), **tools}, check_mode=check_mode, root=root)


def pods(
    node: Machine, *names: str, places: dict[str, str] | None = None, devices: tuple[str, ...] = (NIC,)
) -> pod_interfaces.PodInterfaces:
    return pod_interfaces.PodInterfaces(node, list(devices), list(names), places or {}, str(node.root))


def statuses(rows: list[dict[str, str]]) -> dict[str, tuple[str, str]]:
    return {row["name"]: (row["status"], row.get("after", "")) for row in rows}


def test_what_a_pod_has_is_left_with_its_mtu_and_said(tmp_path: Path) -> None:
    device(tmp_path, FIRST)
    device(tmp_path, SECOND, interface="fab1")
    node = machine(tmp_path)
    away = pods(node, "fab0", "fab1")
    assert statuses(links.links(node, {"names": ["fab0", "fab1"], "mtu": 4092}, [], away, str(tmp_path))) == {
        "link fab0": ("ok", "in a pod's network"),
        "link fab1": ("ok", "present"),
        "MTU of fab1": ("ok", "4092"),
        "MTU of fab0": ("ok", "in a pod's network"),
    }
    (summary,) = away.summary()
    assert (summary["name"], summary["status"]) == ("interfaces of pods", "ok")
    assert summary["why"] == "left as they are: link fab0, MTU of fab0"


def test_where_devices_are_named_those_that_pods_have_go_by_their_place(tmp_path: Path) -> None:
    device(tmp_path, FIRST)
    node = machine(tmp_path)
    rows = links.links(node, {"devices": [NIC], "mtu": 4092}, [], pods(node), str(tmp_path))
    assert statuses(rows) == {f"MTU of {FIRST}": ("ok", "in a pod's network")}


@pytest.mark.parametrize("missed", ["no RKE2", "another mode", "not on the bus", "without a driver", "another device"])
def test_what_no_pod_can_have_is_missed_as_ever(tmp_path: Path, missed: str) -> None:
    if missed != "not on the bus":
        device(tmp_path, FIRST, "15b3:a2dc" if missed == "another device" else NIC, driver=missed != "without a driver")
    device(tmp_path, SECOND, interface="fab1")
    node = machine(tmp_path, rke2="inactive" if missed == "no RKE2" else "active")
    away = pods(node, "fab0", "fab1", devices=() if missed == "another mode" else (NIC,))
    (there, _, mtu, _) = links.links(node, {"names": ["fab0", "fab1"], "mtu": 4092}, [], away, str(tmp_path))
    assert (there["status"], there["after"], mtu["status"]) == ("failed", "absent", "unavailable")
    assert away.summary() == []


def test_of_two_that_are_absent_with_one_device_nobody_knows_which_a_pod_has(tmp_path: Path) -> None:
    device(tmp_path, FIRST)
    node = machine(tmp_path)
    rows = links.links(node, {"names": ["fab0", "fab1"]}, [], pods(node, "fab0", "fab1"), str(tmp_path))
    assert {row["status"] for row in rows} == {"failed"}
    placed = links.links(node, {"names": ["fab0", "fab1"]}, [], pods(node, "fab0", "fab1", places=PLACES), str(tmp_path))
    assert [row["status"] for row in placed] == ["ok", "failed"], "their places tell"


def test_the_name_of_what_a_pod_has_is_left_and_its_file_kept_up(tmp_path: Path) -> None:
    device(tmp_path, FIRST, interface="fab0")
    (tmp_path / "sys/class/net/fab0/flags").write_text("0x1003\n")
    node = machine(tmp_path)

    def named(mtu: int) -> dict[str, tuple[str, str]]:
        away = pods(node, "fab0", places={"fab0": FIRST})
        rows = link_names.named_links(node, {"fab0": FIRST}, {"fab0": mtu}, "10.0.0.1", False, away, str(tmp_path))
        return {name: (status, after if "pod" in after else "") for name, (status, after) in statuses(rows).items()}

    file = "/etc/systemd/network/10-bringup-fab0.link"
    assert named(4092) == {f"file {file}": ("changed", ""), f"name of {FIRST}": ("ok", "")}
    taken = tmp_path / "taken"
    (tmp_path / "sys/class/net/fab0").rename(taken)
    assert named(4092) == {f"file {file}": ("ok", ""), f"name of {FIRST}": ("ok", "in a pod's network")}
    assert named(9000)[f"file {file}"] == ("changed", "")
    assert "MTUBytes=9000" in (tmp_path / file[1:]).read_text()
    (tmp_path / file[1:]).unlink()
    assert named(4092) == {f"name of {FIRST}": ("failed", "")}, "whether it may be named, only the interface tells"
    node = machine(tmp_path, rke2="inactive")
    assert named(4092) == {f"name of {FIRST}": ("failed", "")}
    taken.rename(tmp_path / "sys/class/net/fab0")
    assert named(4092) == {f"file {file}": ("changed", ""), f"name of {FIRST}": ("ok", "")}


def ip(get: str) -> Answer:
    """Of a machine without the route, which reaches its gateway like this."""
    return lambda command: (0, get if "get" in command else "[]", "")


FAR = '[{"dst":"10.99.0.2","gateway":"10.0.0.1","dev":"eth0","flags":[]}]'
ON_LINK = '[{"dst":"10.99.0.2","dev":"eth1","flags":[]}]'


@pytest.mark.parametrize(
    ("entry", "get", "status"),
    [
        ({"device": "fab0"}, FAR, "ok"),
        ({"device": "bond0"}, FAR, "failed"),
        ({"via": "10.99.0.2"}, FAR, "ok"),
        ({"via": "10.99.0.2"}, ON_LINK, "failed"),
    ],
)
def test_a_route_goes_with_its_interface(tmp_path: Path, entry: dict[str, str], get: str, status: str) -> None:
    device(tmp_path, FIRST)
    for rke2, expected in (("active", status), ("inactive", "failed")):
        node = machine(tmp_path, rke2=rke2, ip=ip(get))
        (row,) = routes.routes(node, [{"to": "172.16.0.0/12", **entry}], [], pods(node, "fab0"))
        assert row["status"] == expected
        assert (row.get("after") == "in a pod's network") is (expected == "ok")
        assert not any("replace" in command for command in node.said)


def test_of_what_is_not_asked_for_nothing_is_said(tmp_path: Path) -> None:
    device(tmp_path, FIRST)
    device(tmp_path, OTHER, "8086:1572", interface="eth0")
    assert pods(machine(tmp_path)).summary() == []
