"""Names of interfaces by their PCI address: written for the next boots, given at once where nothing uses the interface."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import link_names, pod_interfaces

from tests.unit.playbooks.machine import Machine

SLOT, OWN = "0000:18:00.0", "10.10.0.11"
NONE = pod_interfaces.PodInterfaces(Machine({}), [], [], {})
ADDRESSES = '[{"ifname":"lo","addr_info":[{"local":"127.0.0.1"}]},{"ifname":"bond0","addr_info":[{"local":"10.10.0.11"}]}]'


def interface(root: Path, name: str, address: str = SLOT, *, up: bool = False, below: str = "") -> None:
    """One as sysfs shows it; `below`: it is on a virtio device of its PCI device."""
    shown, device = root / "sys/class/net", root / "sys/devices/pci0000:17" / address / below
    device.mkdir(parents=True, exist_ok=True)
    (shown / name).mkdir(parents=True)
    (shown / name / "device").symlink_to(device)
    (shown / name / "flags").write_text("0x1003\n" if up else "0x1002\n")


def machine(root: Path, *, check_mode: bool = False, alternatives: tuple[str, ...] = ()) -> Machine:
    """`alternatives`: other names of an interface, as the kernel knows them; sysfs has none."""
    shown, others = root / "sys/class/net", set(alternatives)

    def ip(command: tuple[str, ...]) -> tuple[int, str, str]:
        if command == ("ip", "-json", "address"):
            return 0, ADDRESSES, ""
        if command[:5] == ("ip", "link", "property", "del", "dev"):
            there = command[7] in others
            others.discard(command[7])
            return (0, "", "") if there else (2, "", "RTNETLINK answers: Invalid argument")
        assert command[:4] == ("ip", "link", "set", "dev")
        if command[6] in others:
            return 2, "", "RTNETLINK answers: File exists"
        os.rename(shown / command[4], shown / command[6])
        return 0, "", ""

    return Machine({"ip": ip}, check_mode=check_mode, root=root)


def named(node: Machine, *, rebooted: bool = False, mtu: int = 0) -> dict[str, dict[str, str]]:
    rows = link_names.named_links(node, {"fab0": SLOT}, {"fab0": mtu}, OWN, rebooted, NONE, str(node.root))
    return {row["name"]: row for row in rows}


@pytest.mark.parametrize("below", ["", "virtio2"])
def test_one_that_nothing_uses_is_given_its_name_at_once_and_keeps_it(tmp_path: Path, below: str) -> None:
    interface(tmp_path, "ens1np0", below=below)
    node = machine(tmp_path)
    row = named(node, mtu=4092)[f"name of {SLOT}"]
    assert (row["status"], row["before"], row["after"]) == ("changed", "ens1np0", "fab0")
    assert (tmp_path / "etc/systemd/network/10-bringup-fab0.link").read_text() == (
        f"# Made by bringup.\n[Match]\nPath=pci-{SLOT}\n\n[Link]\nName=fab0\n"
        "AlternativeNamesPolicy=database onboard slot path\nMACAddressPolicy=persistent\nMTUBytes=4092\n"
    )
    assert node.reloads == ["initramfs"], "it names interfaces first"
    again = named(machine(tmp_path, check_mode=True), mtu=4092)
    assert [row["status"] for row in again.values()] == ["ok", "ok"]


def test_one_of_its_own_alternative_names_becomes_its_name(tmp_path: Path) -> None:
    interface(tmp_path, "ens1np0")
    row = named(machine(tmp_path, alternatives=("fab0", "enp24s0np0")))[f"name of {SLOT}"]
    assert (row["status"], row["after"]) == ("changed", "fab0"), row


def test_one_that_is_in_use_waits_for_a_boot_and_fails_where_that_did_not_bring_it(tmp_path: Path) -> None:
    interface(tmp_path, "ens1np0", up=True)
    node = machine(tmp_path)
    row = named(node)[f"name of {SLOT}"]
    assert (row["status"], row["before"]) == ("differs", "ens1np0")
    assert node.reboots == [f"name of {SLOT}: it is in use as ens1np0; the next boot brings the name"]
    assert node.said == [("ip", "-json", "address")]
    assert link_names.names_after_boot(list(named(node).values())) == ["fab0"]
    row = named(machine(tmp_path, check_mode=True), rebooted=True)[f"name of {SLOT}"]
    assert row["status"] == "failed"
    assert "the boot did not bring the name, it is ens1np0: see `udevadm info" in row["why"]


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
    assert not (several / "etc").exists(), "the next boot would give the name to either"


def test_a_boot_since_our_file_was_written_that_did_not_bring_the_name_is_not_waited_for_again(tmp_path: Path) -> None:
    interface(tmp_path, "ens1np0", up=True)
    assert named(machine(tmp_path))[f"name of {SLOT}"]["status"] == "differs"
    (tmp_path / "proc").mkdir()
    for btime, status in (("1", "differs"), ("99999999999", "failed")):
        (tmp_path / "proc/stat").write_text(f"cpu 1\nbtime {btime}\n")
        assert named(machine(tmp_path))[f"name of {SLOT}"]["status"] == status


def default_route(root: Path) -> None:
    (root / "proc/net").mkdir(parents=True)
    (root / "proc/net/route").write_text("Iface\tDest\nens1np0\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n")


def below_the_address(root: Path) -> None:
    (root / "sys/class/net/bond0").mkdir()
    (root / "sys/class/net/bond0/lower_ens1np0").mkdir()


def of_netplan(root: Path) -> None:
    (root / "sys/class/net/ens1np0/address").write_text("52:54:00:12:34:56\n")
    (root / "run/udev/rules.d").mkdir(parents=True)
    (root / "run/udev/rules.d/99-netplan-x.rules").write_text('ACTION=="add", ATTR{address}=="52:54:00:12:34:56", NAME="fabric"\n')


def of_a_file(root: Path) -> None:
    (root / "sys/class/net/ens1np0/ifindex").write_text("7\n")
    (root / "run/udev/data").mkdir(parents=True)
    (root / "run/udev/data/n7").write_text("E:ID_NET_LINK_FILE=/etc/systemd/network/05-mlx.link\n")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (default_route, "ens1np0 carries the default route or this machine's address"),
        (below_the_address, "ens1np0 carries the default route or this machine's address"),
        (of_netplan, "/run/udev/rules.d/99-netplan-x.rules names ens1np0"),
        (of_a_file, "/etc/systemd/network/05-mlx.link configures ens1np0: give it the name there"),
    ],
)
def test_one_that_the_machine_is_reached_by_or_that_others_name_keeps_its_name(
    tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    interface(tmp_path, "ens1np0")
    make(tmp_path)
    (row,) = named(machine(tmp_path)).values()
    assert row["status"] == "failed"
    assert why in row["why"]
    assert not (tmp_path / "etc/systemd").exists()
