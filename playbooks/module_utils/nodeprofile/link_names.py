"""Names of interfaces by their place on the PCI bus, in files of systemd.link(5): udev goes by them when a device appears.

An interface that is in use keeps its name until the next boot; one that is down is given it at once. One by which this machine is
reached keeps its name: its configuration would not find it. One that a pod has is left.
"""

from __future__ import annotations

import glob
import os
import re

from ansible.module_utils.nodeprofile import files, given, reach
from ansible.module_utils.nodeprofile.item import FAILED, OK, CannotChange, Item, Node, Waiting, item, read_text, settle
from ansible.module_utils.nodeprofile.reach import CLASS

FILE = "/etc/systemd/network/10-bringup-%s.link"
UDEV = "/run/udev/data/n%s"
DEFAULT = "99-default.link"
UP = 1
"""IFF_UP among an interface's flags (netdevice(7))."""


def named(node: Node, wanted: dict, mtus: dict, address: str, rebooted: bool, pods: "given.Given", root: str = "") -> list:
    """`wanted`: name → PCI address (`0000:18:00.0`) of the interface that has it; `mtus`: name → what it is to start with;
    `address`: this machine's. `rebooted`: the machine was booted for it, so that waiting is over. `pods`: what pods have."""
    found: list = []
    for name, slot in sorted(wanted.items()):
        mtu = mtus.get(name, 0)
        if slot in pods.slots():
            found += _left(node, name, slot, mtu, pods, root)
        else:
            found += _both(node, name, slot, mtu, address, rebooted, root)
    return found


def _left(node: Node, name: str, slot: str, mtu: int, pods: "given.Given", root: str) -> list:
    """The file that an earlier run made, and nothing else: whether ours may be the first, only the interface tells."""
    label, path = "name of " + slot, FILE % name
    if not os.path.exists(root + path):
        return [item(label, FAILED, want=name, before=given.IN_A_POD, why="run again while no pod has it: it has no file of ours")]
    return [files.whole(node, "file " + path, root + path, text(slot, name, mtu), reload="initramfs"), pods.left(label, name)]


def _both(node: Node, name: str, slot: str, mtu: int, address: str, rebooted: bool, root: str) -> list:
    """The file, and the name that it gives; no file where it would name another interface, or cut the machine off."""
    label = "name of " + slot
    try:
        now = _now(slot, root + CLASS)
        if now != name:
            _may_change(node, now, slot, address, root)
    except CannotChange as reason:
        return [item(label, FAILED, want=name, why=str(reason))]
    path, content = FILE % name, text(slot, name, mtu)
    # an initramfs has a copy of its own, and names interfaces first
    file = files.whole(node, "file " + path, root + path, content, reload="initramfs")
    if file["status"] == FAILED:
        return [file]
    booted = rebooted or (file["status"] == OK and _booted_since(root + path, root))
    return [file, _named(node, label, name, slot, booted, root)]


def _named(node: Node, label: str, name: str, slot: str, booted: bool, root: str) -> Item:
    def read() -> str:
        now = _now(slot, root + CLASS)
        if now == name or not _is_up(now, root + CLASS):
            return now
        if booted:
            raise CannotChange("the boot did not bring the name, it is %s: see `udevadm info /sys/class/net/%s`" % (now, now))
        raise Waiting("it is in use as %s; the next boot brings the name" % now, now)

    def change() -> None:
        if os.path.exists("%s/%s" % (root + CLASS, name)):
            raise CannotChange("another interface has this name")
        now = _now(slot, root + CLASS)
        # the kernel gives no interface one of its own alternative names, as systemd's by slot or path are; mostly there is none
        node.run("ip", "link", "property", "del", "dev", now, "altname", name)
        node.must("ip", "link", "set", "dev", now, "name", name)

    return settle(node, label, name, read, change)


def pending(rows: list) -> list:
    """Names that only the next boot brings, of the items."""
    return [row["want"] for row in rows if row["name"].startswith("name of ") and row["status"] == "differs" and row.get("why")]


def text(slot: str, name: str, mtu: int) -> str:
    """The file that udev goes by: ID_PATH of a device on the PCI bus is its address. The first file that matches is the only one,
    so that what systemd's own says besides is said here too."""
    lines = ["# Made by bringup.", "[Match]", "Path=pci-" + slot, "", "[Link]", "Name=" + name]
    lines += ["AlternativeNamesPolicy=database onboard slot path", "MACAddressPolicy=persistent"]
    return "\n".join([*lines, *["MTUBytes=%d" % mtu] * bool(mtu)]) + "\n"


def brings(name: str, mtu: int) -> bool:
    """Whether our file gives the interface of a name this MTU at each boot."""
    return "MTUBytes=%d\n" % mtu in read_text(FILE % name)


def _may_change(node: Node, now: str, slot: str, address: str, root: str) -> None:
    """Raises CannotChange where another name would cut the machine off, or where somebody else names the interface."""
    if now in reach.carriers(node, address, root):
        raise CannotChange("%s carries the default route or this machine's address: its configuration would not find it" % now)
    index = read_text("%s/%s/ifindex" % (root + CLASS, now)).strip()
    used = re.search(r"^E:ID_NET_LINK_FILE=(.+)$", read_text(root + UDEV % index), re.MULTILINE)
    if used and os.path.basename(used.group(1)) != DEFAULT and "-bringup-" not in used.group(1):
        raise CannotChange("%s configures %s: give it the name there" % (used.group(1), now))
    mac = read_text("%s/%s/address" % (root + CLASS, now)).strip()
    for path in sorted(glob.glob(root + "/etc/udev/rules.d/*.rules") + glob.glob(root + "/run/udev/rules.d/*.rules")):
        for line in read_text(path).splitlines():
            if re.search(r"\bNAME:?=\s*\"", line) and any(word and word in line for word in (mac, slot)):
                raise CannotChange("%s names %s (netplan's set-name does that): change it there" % (path[len(root) :], now))


def _booted_since(path: str, root: str) -> bool:
    """Whether this machine was booted after a file was written."""
    found = re.search(r"^btime (\d+)$", read_text(root + "/proc/stat"), re.MULTILINE)
    return bool(found) and os.path.getmtime(path) < int(found.group(1))


def _now(slot: str, shown: str) -> str:
    """The interface at an address, by the name that it has."""
    found = given.at(slot, shown)
    if not found:
        raise CannotChange("no network interface is at %s: see `lspci -D | grep -i -e ethernet -e infiniband`" % slot)
    if len(found) > 1:
        raise CannotChange("several interfaces are at %s: %s" % (slot, ", ".join(found)))
    return found[0]


def _is_up(name: str, shown: str) -> bool:
    return bool(int(read_text("%s/%s/flags" % (shown, name)).strip() or "0", 16) & UP)
