"""Network interface names by PCI address, in systemd.link(5) files that udev applies when a device appears.

An interface in use keeps its name until the next boot; one that is down is renamed at once. An interface by which the machine is
reached keeps its name, because its configuration would not find it. Interfaces held by pods are left alone.
"""

from __future__ import annotations

import glob
import os
import re

from ansible.module_utils.nodeprofile import pod_interfaces, profile_files, reachability
from ansible.module_utils.nodeprofile.item import FAILED, OK, CannotChange, Item, NodeAccess, RebootPending, item, read_text, settle
from ansible.module_utils.nodeprofile.reachability import CLASS

FILE = "/etc/systemd/network/10-bringup-%s.link"
UDEV = "/run/udev/data/n%s"
DEFAULT = "99-default.link"
UP = 1
"""The flag IFF_UP of an interface that is up (netdevice(7))."""


def named_links(
    node: NodeAccess, wanted: dict, mtus: dict, address: str, rebooted: bool, pods: "pod_interfaces.PodInterfaces", root: str = ""
) -> list:
    """Give interfaces their wanted names, now or with the next boot; return setting results for each .link file and each name.

    `wanted` maps a name to a PCI address (`0000:18:00.0`), `mtus` a name to its initial MTU. `address` is this machine's.
    With `rebooted` (the machine was booted for the names) a missing name has failed. `pods` knows the interfaces that pods hold.
    """
    rows: list = []
    for name, slot in sorted(wanted.items()):
        mtu = mtus.get(name, 0)
        if slot in pods.slots():
            rows += _pod_link(node, name, slot, mtu, pods, root)
        else:
            rows += _link(node, name, slot, mtu, address, rebooted, root)
    return rows


def _pod_link(node: NodeAccess, name: str, slot: str, mtu: int, pods: "pod_interfaces.PodInterfaces", root: str) -> list:
    """Return the setting results of an interface that a pod holds: of its .link file and of its name, which stays.

    Without a .link file of an earlier run the setting fails, because nobody can tell whether a new file would be the first to
    match.
    """
    label, path = "name of " + slot, FILE % name
    if not os.path.exists(root + path):
        why = "run again while no pod has it: it has no file of ours"
        return [item(label, FAILED, want=name, before=pod_interfaces.IN_A_POD, why=why)]
    file = profile_files.whole_file(node, "file " + path, root + path, link_file(slot, name, mtu), reload="initramfs")
    return [file, pods.leave_alone(label, name)]


def _link(node: NodeAccess, name: str, slot: str, mtu: int, address: str, rebooted: bool, root: str) -> list:
    """Write the .link file of one interface, give it the name, and return the setting results of both.

    The setting fails, and nothing is written, if the name could cut the machine off or the site names the interface itself.
    """
    label = "name of " + slot
    try:
        link = _now(slot, root + CLASS)
        if link != name:
            _require_renamable(node, link, slot, address, root)
    except CannotChange as reason:
        return [item(label, FAILED, want=name, why=str(reason))]
    path, content = FILE % name, link_file(slot, name, mtu)
    # an initramfs has a copy of its own, and names interfaces first
    file = profile_files.whole_file(node, "file " + path, root + path, content, reload="initramfs")
    if file["status"] == FAILED:
        return [file]
    booted = rebooted or (file["status"] == OK and _is_older_than_boot(root + path, root))
    return [file, _link_name(node, label, name, slot, booted, root)]


def _link_name(node: NodeAccess, label: str, name: str, slot: str, booted: bool, root: str) -> Item:
    def read() -> str:
        link = _now(slot, root + CLASS)
        flags = int(read_text("%s/%s/flags" % (root + CLASS, link)).strip() or "0", 16)
        if link == name or not flags & UP:
            return link
        if booted:
            raise CannotChange("the boot did not bring the name, it is %s: see `udevadm info /sys/class/net/%s`" % (link, link))
        raise RebootPending("it is in use as %s; the next boot brings the name" % link, link)

    def change() -> None:
        if os.path.exists("%s/%s" % (root + CLASS, name)):
            raise CannotChange("another interface has this name")
        link = _now(slot, root + CLASS)
        # the kernel gives no interface one of its own alternative names, as systemd's by slot or path are; mostly there is none
        node.run("ip", "link", "property", "del", "dev", link, "altname", name)
        node.must("ip", "link", "set", "dev", link, "name", name)

    return settle(node, label, name, read, change)


def names_after_boot(rows: list) -> list:
    """Return the interface names that need a reboot to take effect, from the setting results of `named_links`."""
    return [row["want"] for row in rows if row["name"].startswith("name of ") and row["status"] == "differs" and row.get("why")]


def link_file(slot: str, name: str, mtu: int) -> str:
    """Return the text of an interface's .link file, with systemd's default policies, as only the first matching file applies."""
    lines = ["# Made by bringup.", "[Match]", "Path=pci-" + slot, "", "[Link]", "Name=" + name]
    lines += ["AlternativeNamesPolicy=database onboard slot path", "MACAddressPolicy=persistent"]
    return "\n".join([*lines, *["MTUBytes=%d" % mtu] * bool(mtu)]) + "\n"


def sets_mtu(name: str, mtu: int) -> bool:
    """Return True if our .link file gives the named interface this MTU at each boot."""
    return "MTUBytes=%d\n" % mtu in read_text(FILE % name)


def _require_renamable(node: NodeAccess, link: str, slot: str, address: str, root: str) -> None:
    """Raise CannotChange if renaming the interface `link` would cut the machine off, or if the site names it itself."""
    if link in reachability.access_links(node, address, root):
        raise CannotChange("%s carries the default route or this machine's address: its configuration would not find it" % link)
    index = read_text("%s/%s/ifindex" % (root + CLASS, link)).strip()
    used = re.search(r"^E:ID_NET_LINK_FILE=(.+)$", read_text(root + UDEV % index), re.MULTILINE)
    if used and os.path.basename(used.group(1)) != DEFAULT and "-bringup-" not in used.group(1):
        raise CannotChange("%s configures %s: give it the name there" % (used.group(1), link))
    mac = read_text("%s/%s/address" % (root + CLASS, link)).strip()
    for path in sorted(glob.glob(root + "/etc/udev/rules.d/*.rules") + glob.glob(root + "/run/udev/rules.d/*.rules")):
        for line in read_text(path).splitlines():
            if re.search(r"\bNAME:?=\s*\"", line) and any(word and word in line for word in (mac, slot)):
                raise CannotChange("%s names %s (netplan's set-name does that): change it there" % (path[len(root) :], link))


def _is_older_than_boot(path: str, root: str) -> bool:
    """Return True if the file was written before this machine's boot."""
    match = re.search(r"^btime (\d+)$", read_text(root + "/proc/stat"), re.MULTILINE)
    return bool(match) and os.path.getmtime(path) < int(match.group(1))


def _now(slot: str, shown: str) -> str:
    """Return the present name of the interface at a PCI address. Raises CannotChange if there is none or several."""
    interfaces = pod_interfaces.interfaces_at(slot, shown)
    if not interfaces:
        raise CannotChange("no network interface is at %s: see `lspci -D | grep -i -e ethernet -e infiniband`" % slot)
    if len(interfaces) > 1:
        raise CannotChange("several interfaces are at %s: %s" % (slot, ", ".join(interfaces)))
    return interfaces[0]
