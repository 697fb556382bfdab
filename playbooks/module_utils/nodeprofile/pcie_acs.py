"""PCIe Access Control Services (ACS): bridges that redirect peer-to-peer traffic to the root complex make GPUDirect slow or wrong.

Source: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
"""

from __future__ import annotations

import glob
import os
import struct

from ansible.module_utils.nodeprofile import profile_files, systemd_services
from ansible.module_utils.nodeprofile.item import CannotChange, NodeAccess, Unavailable, read_text, settle

DEVICES = "/sys/bus/pci/devices"
BRIDGE = "0x0604"
EXTENDED = 0x100
"""Offset of a device's extended capabilities in its configuration space (PCIe base specification 7.6)."""
STATUS, HAS_LIST, LIST, EXPRESS = 0x06, 0x10, 0x34, 0x10
"""Offset of the status, its bit for a list of capabilities, the list's offset, PCI Express's id (PCI specification 3.0, 6.7)."""
ACS, CONTROL = 0x000D, 6
"""Id of the capability Access Control Services, and the offset of its control register."""
NO_DEVICE = b"\xff\xff"
"""Vendor id that is read where no device answers (PCI specification 3.0, 6.2.1)."""
LOCKDOWN = "/sys/kernel/security/lockdown"
LOCKED = (
    "the kernel is locked down (Secure Boot), and lets nobody write PCI configuration: turn ACS off in the firmware, or Secure "
    "Boot, or say os.peer_to_peer: false"
)
SCRIPT = "/usr/local/sbin/bringup-acs-off"
UNIT = "bringup-acs-off.service"
SCRIPT_TEXT = """#!/bin/sh
# Made by bringup: turns PCIe ACS off on every bridge that has it, so that GPUs and NICs reach each other directly.
for device in /sys/bus/pci/devices/*; do
    case "$(cat "$device/class")" in
        0x0604*) setpci -s "${device##*/}" ECAP_ACS+6.w=0000 2>/dev/null || true ;;
    esac
done
"""
UNIT_TEXT = """# Made by bringup.
[Unit]
Description=Turn PCIe ACS off for peer-to-peer traffic
Before=rke2-server.service rke2-agent.service

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/bringup-acs-off
RemainAfterExit=yes

[Install]
WantedBy=multi-user.target
"""


def acs(node: NodeAccess, wanted: str) -> list:
    """Turn ACS off on all PCI bridges, now and at every boot, by one script; return the setting results.

    Empty unless `off` is wanted.
    """
    if wanted != "off":
        return []
    off = settle(node, "PCIe ACS", "off", lambda: _read(bridges()), lambda: turn_off(node))
    if off["status"] == "unavailable":
        return [off]
    script = profile_files.whole_file(node, "file " + SCRIPT, SCRIPT, SCRIPT_TEXT, "0755")
    if not systemd_services.has_systemd():
        return [off, script]
    unit = profile_files.whole_file(node, "file /etc/systemd/system/" + UNIT, "/etc/systemd/system/" + UNIT, UNIT_TEXT)
    return [off, script, unit, _enabled(node)]


def _enabled(node: NodeAccess) -> dict:
    def read() -> str:
        return node.run("systemctl", "is-enabled", UNIT)[1].strip() or "absent"

    def change() -> None:
        node.must("systemctl", "daemon-reload")
        node.must("systemctl", "enable", UNIT)

    return settle(node, "boot unit " + UNIT, "enabled", read, change)


def turn_off(node: NodeAccess, lockdown: str = LOCKDOWN) -> None:
    """Write and run the script that turns ACS off. Raises CannotChange if the kernel is locked down and would ignore its writes."""
    lockdown_state = read_text(lockdown)
    if lockdown_state and "[none]" not in lockdown_state:
        raise CannotChange(LOCKED)
    node.write(SCRIPT, SCRIPT_TEXT, 0o755)
    node.must("setpci", "--version")
    node.must(SCRIPT)


def _read(controls: dict) -> str:
    on = sorted(address for address, control in controls.items() if control)
    rows = ["%s 0x%02x" % (address, controls[address]) for address in on[:3]]
    return "on: %s%s" % (", ".join(rows), " and %d more" % (len(on) - 3) if len(on) > 3 else "") if on else "off"


def bridges() -> dict:
    """Return address → ACS control word of every PCI bridge that has ACS. Raises Unavailable if the machine shows no bridges."""
    folders = [path for path in glob.glob(DEVICES + "/*") if read_text(path + "/class").startswith(BRIDGE)]
    if not folders:
        raise Unavailable("this machine shows no PCI bridges: it is virtual, and ACS is its host's")
    return control_words({os.path.basename(path): _configuration(path) for path in folders})


def control_words(spaces: dict) -> dict:
    """Return address → ACS control word of each device with ACS.

    Raises Unavailable if a configuration space is not fully readable.
    """
    hidden = sorted(address for address, space in spaces.items() if is_truncated(space))
    if hidden:
        raise Unavailable("the extended configuration space of %s cannot be read: see `lspci -vvv -s %s`" % (hidden[0], hidden[0]))
    controls = {address: control(space) for address, space in spaces.items()}
    return {address: word for address, word in controls.items() if word is not None}


def is_truncated(space: bytes) -> bool:
    """Return True if a device may have extended capabilities that these bytes of its configuration space do not show.

    A device without PCI Express has none. Users other than root see only 64 bytes. A device that has left the bus or has no power
    reads as all ones.
    """
    if space[:2] == NO_DEVICE:
        return True
    if len(space) > EXTENDED:
        return False
    return len(space) < EXTENDED or EXPRESS in _capabilities(space)


def _capabilities(space: bytes) -> set:
    """Return the ids of a device's ordinary capabilities; reading stops if their list is cyclic."""
    kinds, seen, at = set(), set(), space[LIST] if space[STATUS] & HAS_LIST else 0
    while 0x40 <= at < EXTENDED - 1 and at not in seen:
        seen.add(at)
        kinds.add(space[at])
        at = space[at + 1] & 0xFC
    return kinds


def _configuration(folder: str) -> bytes:
    with open(folder + "/config", "rb") as source:
        return source.read(4096)


def control(space: bytes) -> "int | None":
    """Return the ACS control word in a configuration space, None if the device has no ACS; reading stops if the list is cyclic."""
    at, seen = EXTENDED, set()
    while at >= EXTENDED and at + 8 <= len(space) and at not in seen:
        seen.add(at)
        (header,) = struct.unpack_from("<I", space, at)
        if header & 0xFFFF == ACS:
            return int(struct.unpack_from("<H", space, at + CONTROL)[0])
        at = header >> 20  # the upper 12 bits are the offset of the next capability
    return None
