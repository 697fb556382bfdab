"""Interfaces of the fabric: found by their devices, and an MTU that nobody keeps is not set."""

from pathlib import Path

from ansible.module_utils.nodeprofile import links, pod_interfaces

from tests.unit.playbooks.machine import Machine

NONE = pod_interfaces.PodInterfaces(Machine({}), [], [], {})


def test_an_mtu_that_nobody_keeps_is_not_changed_and_says_where_to_set_it() -> None:
    machine = Machine({"ip": lambda _: (0, "", "")})
    (row, item) = links.links(machine, {"names": ["lo"], "mtu": 1234}, [], NONE)
    assert row["status"] == "ok"
    assert (item["status"], item["want"]) == ("failed", "1234")
    assert "set its MTU where it is configured" in item["why"]
    assert machine.said == []


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
    assert links.links_of_devices(["15b3:1021", "15b3:1023"], str(tmp_path)) == ["ens1", "ib0"]
    assert links.links_of_devices(["15b3:a2dc"], str(tmp_path)) == []


def test_without_an_interface_of_the_fabrics_devices_nothing_passes() -> None:
    (row,) = links.links(Machine({}), {"devices": ["15b3:a2dc"], "mtu": 9000}, [], NONE)
    assert (row["status"], row["want"], row["before"]) == ("failed", "an interface of 15b3:a2dc", "none")


def test_what_needs_an_interface_that_gets_its_name_by_the_next_boot_waits_for_it() -> None:
    machine = Machine({})
    rows = links.links(machine, {"names": ["fab0"], "mtu": 9000}, ["fab0"], NONE)
    assert {(row["name"], row["status"], row["why"]) for row in rows} == {
        ("link fab0", "differs", links.NAME_AFTER_BOOT),
        ("MTU of fab0", "differs", links.NAME_AFTER_BOOT),
    }
