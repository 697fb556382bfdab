"""Interfaces of the fabric: whether they are there, and their MTU now and after a boot."""

from __future__ import annotations

import glob
import os

from ansible.module_utils.nodeprofile import given, keepers, link_names
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


def links(node: Node, wanted: dict, pending: list, pods: "given.Given", root: str = "") -> list:
    """`names`: interfaces that must be there; without names, those of PCI `devices` (vendor:device). `mtu` is theirs, 0 for any.
    `pending`: names that only the next boot brings; `pods`: what pods have, which is left."""
    shown = root + CLASS
    if not wanted:
        return []
    names = list(wanted.get("names") or [])
    found = [name for name in names if not pods.has(name)] or of_devices([] if names else wanted.get("devices") or [], shown)
    away = [name for name in names if pods.has(name)] if names else pods.slots()
    mtu = int(wanted.get("mtu") or 0)
    if not found and not away:
        want = "an interface of %s" % ", ".join(wanted.get("devices") or ["the fabric"])
        return [item("links", "failed", want=want, before="none", why="no network interface belongs to such a device")]
    rows = [pods.left("link " + name, "present") if name in away else _there(name, name in pending, shown) for name in names]
    if not mtu:
        return rows
    rows += [_mtu(node, name, mtu, found, name in pending, shown) for name in found]
    return rows + [pods.left("MTU of " + name, str(mtu)) for name in away]


def of_devices(wanted: list, shown: str = CLASS) -> list:
    """Interfaces of PCI devices, by vendor:device in hex as lspci -n has them; `shown` is the folder of all interfaces."""
    return sorted(path.split("/")[-2] for path in glob.glob(shown + "/*/device") if given.pair(path) in wanted)


def _there(name: str, is_pending: bool, shown: str) -> Item:
    if is_pending:
        return item("link " + name, DIFFERS, want="present", before="absent", why=NAMED_LATER)
    good = os.path.exists("%s/%s" % (shown, name))
    others = ", ".join(sorted(other for other in os.listdir(shown) if other != "lo"))
    return measured("link " + name, good, "present", "present" if good else "absent", "the machine shows %s" % (others or "none"))


def _mtu(node: Node, name: str, want: int, ours: list, is_pending: bool, shown: str) -> Item:
    kept, at_boot = keepers.keeper(node, name), link_names.brings(name, want)

    def read() -> str:
        if is_pending:
            raise Waiting(NAMED_LATER)
        if not os.path.exists("%s/%s" % (shown, name)):
            raise Unavailable("the machine has no interface %s" % name)
        now = read_text("%s/%s/mtu" % (shown, name)).strip()
        return now if now != str(want) or at_boot or not kept or kept.has(want) else "%s until the next boot" % now

    def change() -> None:
        if kept is None and not at_boot:
            raise CannotChange("neither systemd-networkd nor NetworkManager manages %s: set its MTU where it is configured" % name)
        if kept is not None:
            kept.require_for_none_but(ours)
            kept.keep(want)
        node.must("ip", "link", "set", "dev", name, "mtu", str(want))

    return settle(node, "MTU of " + name, str(want), read, change)
