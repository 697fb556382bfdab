"""Names of interfaces by their place on the PCI bus, in files of systemd.link(5): udev goes by them when a device appears.

An interface that is in use keeps its name until the next boot; one that is down is given it at once.
"""

from __future__ import annotations

import glob
import os

from ansible.module_utils.nodeprofile import files
from ansible.module_utils.nodeprofile.item import FAILED, CannotChange, Node, Waiting, read_text, settle

CLASS = "/sys/class/net"
FILE = "/etc/systemd/network/10-bringup-%s.link"
UP = 1
"""IFF_UP among an interface's flags (netdevice(7))."""


def named(node: Node, wanted: dict, mtus: dict, rebooted: bool, root: str = "") -> list:
    """`wanted`: name → PCI address (`0000:18:00.0`) of the interface that has it; `mtus`: name → what it is to start with.
    `rebooted`: the machine was booted for it, so that waiting is over."""
    rows = []
    for name, address in sorted(wanted.items()):
        # an initramfs has a copy of its own, and names interfaces first
        path, content = FILE % name, text(address, name, mtus.get(name, 0))
        file = files.whole(node, "file " + path, root + path, content, reload="initramfs")
        rows.append(file)
        if file["status"] != FAILED:
            rows.append(_named(node, name, address, rebooted, root + CLASS))
    return rows


def _named(node: Node, name: str, address: str, rebooted: bool, shown: str) -> dict:
    def read() -> str:
        now = _now(name, address, shown)
        if now == name or not _is_up(now, shown):
            return now
        if rebooted:
            how = "see `udevadm test-builtin net_setup_link /sys/class/net/%s`" % now
            raise CannotChange("the reboot did not bring the name, it is %s: %s" % (now, how))
        raise Waiting("it is in use as %s; the next boot brings the name" % now, now)

    def change() -> None:
        if os.path.exists("%s/%s" % (shown, name)):
            raise CannotChange("another interface has this name")
        node.must("ip", "link", "set", "dev", _now(name, address, shown), "name", name)

    return settle(node, "name of %s" % address, name, read, change)


def text(address: str, name: str, mtu: int) -> str:
    """The file that udev goes by: ID_PATH of a device on the PCI bus is its address."""
    lines = ["# Made by bringup.", "[Match]", "Path=pci-" + address, "", "[Link]", "Name=" + name]
    return "\n".join([*lines, *["MTUBytes=%d" % mtu] * bool(mtu)]) + "\n"


def brings(name: str, mtu: int) -> bool:
    """Whether our file gives the interface of a name this MTU at each boot."""
    return "MTUBytes=%d\n" % mtu in read_text(FILE % name)


def _now(name: str, address: str, shown: str) -> str:
    """The interface at an address, by the name that it has."""
    found = sorted(path.split("/")[-2] for path in glob.glob(shown + "/*/device") if _is_at(path, address))
    if not found:
        raise CannotChange("no network interface is at %s: see `lspci -D | grep -i -e ethernet -e infiniband`" % address)
    if len(found) > 1 and name not in found:
        raise CannotChange("several interfaces are at %s: %s" % (address, ", ".join(found)))
    return name if name in found else found[0]


def _is_at(path: str, address: str) -> bool:
    """Whether an interface's device is that of an address, or is on one: a virtio interface is below its PCI device."""
    real = os.path.realpath(path)
    return address in (os.path.basename(real), os.path.basename(os.path.dirname(real)))


def _is_up(name: str, shown: str) -> bool:
    return bool(int(read_text("%s/%s/flags" % (shown, name)).strip() or "0", 16) & UP)
