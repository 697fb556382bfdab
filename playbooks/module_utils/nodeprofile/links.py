"""Interfaces of the fabric: whether they are there, and their MTU now and after a boot."""

from __future__ import annotations

import glob
import os

from ansible.module_utils.nodeprofile import keepers, link_names
from ansible.module_utils.nodeprofile.item import (
    DIFFERS,
    CannotChange,
    Item,
    Node,
    Unavailable,
    Waiting,
    item,
    measured,
    read_text,
    settle,
)
from ansible.module_utils.nodeprofile.reach import CLASS

NAMED_LATER = "its interface gets its name with the next boot"


def links(node: Node, wanted: dict, pending: list) -> list:
    """`names`: interfaces that must be there; without names, those of PCI `devices` (vendor:device). `mtu` is theirs, 0 for any.
    `pending`: names that only the next boot brings."""
    if not wanted:
        return []
    names = list(wanted.get("names") or [])
    found = names or of_devices(wanted.get("devices") or [])
    mtu = int(wanted.get("mtu") or 0)
    if not found:
        want = "an interface of %s" % ", ".join(wanted.get("devices") or ["the fabric"])
        return [item("links", "failed", want=want, before="none", why="no network interface belongs to such a device")]
    rows = [_there(name, name in pending) for name in names]
    return rows + ([_mtu(node, name, mtu, found, name in pending) for name in found] if mtu else [])


def of_devices(wanted: list, shown: str = CLASS) -> list:
    """Interfaces of PCI devices, by vendor:device in hex as lspci -n has them; `shown` is the folder of all interfaces."""
    found = []
    for path in glob.glob(shown + "/*/device"):
        pair = ":".join(read_text(path + "/" + part).strip()[2:] for part in ("vendor", "device"))
        if pair in wanted:
            found.append(path.split("/")[-2])
    return sorted(found)


def _there(name: str, is_pending: bool) -> Item:
    if is_pending:
        return item("link " + name, DIFFERS, want="present", before="absent", why=NAMED_LATER)
    good = os.path.exists("%s/%s" % (CLASS, name))
    others = ", ".join(sorted(other for other in os.listdir(CLASS) if other != "lo"))
    return measured("link " + name, good, "present", "present" if good else "absent", "the machine shows %s" % (others or "none"))


def _mtu(node: Node, name: str, want: int, ours: list, is_pending: bool) -> Item:
    kept, at_boot = keepers.keeper(node, name), link_names.brings(name, want)

    def read() -> str:
        if is_pending:
            raise Waiting(NAMED_LATER)
        if not os.path.exists("%s/%s" % (CLASS, name)):
            raise Unavailable("the machine has no interface %s" % name)
        now = read_text("%s/%s/mtu" % (CLASS, name)).strip()
        return now if now != str(want) or at_boot or not kept or kept.has(want) else "%s until the next boot" % now

    def change() -> None:
        if kept is None and not at_boot:
            raise CannotChange("neither systemd-networkd nor NetworkManager manages %s: set its MTU where it is configured" % name)
        if kept is not None:
            kept.require_for_none_but(ours)
            kept.keep(want)
        node.must("ip", "link", "set", "dev", name, "mtu", str(want))

    return settle(node, "MTU of " + name, str(want), read, change)
