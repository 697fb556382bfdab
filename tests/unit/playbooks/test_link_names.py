"""Names of interfaces by their PCI address: written for the next boots, given at once where nothing uses the interface."""

import os
from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import link_names

from tests.unit.playbooks.machine import Machine

SLOT = "0000:18:00.0"


def interface(root: Path, name: str, address: str = SLOT, *, up: bool = False, below: str = "") -> None:
    """One as sysfs shows it; `below`: it is on a virtio device of its PCI device."""
    shown, device = root / "sys/class/net", root / "sys/devices/pci0000:17" / address / below
    device.mkdir(parents=True, exist_ok=True)
    (shown / name).mkdir(parents=True)
    (shown / name / "device").symlink_to(device)
    (shown / name / "flags").write_text("0x1003\n" if up else "0x1002\n")


def machine(root: Path, *, check_mode: bool = False) -> Machine:
    shown = root / "sys/class/net"

    def ip(command: tuple[str, ...]) -> tuple[int, str, str]:
        assert command[:4] == ("ip", "link", "set", "dev")
        os.rename(shown / command[4], shown / command[6])
        return 0, "", ""

    return Machine({"ip": ip}, check_mode=check_mode, root=root)


def named(node: Machine, *, rebooted: bool = False, mtu: int = 0) -> dict[str, dict[str, str]]:
    rows = link_names.named(node, {"fab0": SLOT}, {"fab0": mtu}, rebooted, str(node.root))
    return {row["name"]: row for row in rows}


@pytest.mark.parametrize("below", ["", "virtio2"])
def test_one_that_nothing_uses_is_given_its_name_at_once_and_keeps_it(tmp_path: Path, below: str) -> None:
    interface(tmp_path, "ens1np0", below=below)
    node = machine(tmp_path)
    row = named(node, mtu=4092)[f"name of {SLOT}"]
    assert (row["status"], row["before"], row["after"]) == ("changed", "ens1np0", "fab0")
    assert (tmp_path / "etc/systemd/network/10-bringup-fab0.link").read_text() == (
        f"# Made by bringup.\n[Match]\nPath=pci-{SLOT}\n\n[Link]\nName=fab0\nMTUBytes=4092\n"
    )
    assert node.reloads == ["initramfs"], "it names interfaces first"
    again = named(machine(tmp_path, check_mode=True), mtu=4092)
    assert [row["status"] for row in again.values()] == ["ok", "ok"]


def test_one_that_is_in_use_waits_for_a_boot_and_fails_where_that_did_not_bring_it(tmp_path: Path) -> None:
    interface(tmp_path, "ens1np0", up=True)
    node = machine(tmp_path)
    row = named(node)[f"name of {SLOT}"]
    assert (row["status"], row["before"]) == ("differs", "ens1np0")
    assert node.reboots == [f"name of {SLOT}: it is in use as ens1np0; the next boot brings the name"]
    assert node.said == []
    row = named(machine(tmp_path, check_mode=True), rebooted=True)[f"name of {SLOT}"]
    assert row["status"] == "failed"
    assert "the reboot did not bring the name, it is ens1np0: see `udevadm test-builtin net_setup_link" in row["why"]


def test_what_is_not_there_or_not_one_or_named_already_is_said(tmp_path: Path) -> None:
    none, several, taken = tmp_path / "none", tmp_path / "several", tmp_path / "taken"
    (none / "sys/class/net").mkdir(parents=True)
    interface(several, "ens1p0")
    interface(several, "ens1p1")
    interface(taken, "ens1")
    interface(taken, "fab0", "0000:19:00.0")
    for root, why in (
        (none, f"no network interface is at {SLOT}"),
        (several, f"several interfaces are at {SLOT}: ens1p0, ens1p1"),
        (taken, "another interface has this name"),
    ):
        row = named(machine(root))[f"name of {SLOT}"]
        assert row["status"] == "failed"
        assert why in row["why"]
