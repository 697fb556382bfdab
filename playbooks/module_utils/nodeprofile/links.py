"""Network interfaces of the fabric: whether they are present, and their MTU now and after a boot."""

from __future__ import annotations

import glob
import os

from ansible.module_utils.nodeprofile import link_names, network_managers, pod_interfaces
from ansible.module_utils.nodeprofile.item import (
    DIFFERS,
    CannotChange,
    Item,
    NodeAccess,
    RebootPending,
    Unavailable,
    item,
    measured,
    read_text,
    settle,
)
from ansible.module_utils.nodeprofile.reachability import CLASS

NAME_AFTER_BOOT = "its interface gets its name with the next boot"


def links(node: NodeAccess, wanted: dict, pending: list, pods: "pod_interfaces.PodInterfaces", root: str = "") -> list:
    """Check that the fabric's interfaces are present, set their MTU, and return the setting results.

    `wanted` has `names`, or PCI `devices` (vendor:device) where names are not given, and `mtu` (0: any). `pending` are names that
    only the next boot brings; `pods` knows the interfaces that pods hold, which are left alone.
    """
    shown = root + CLASS
    if not wanted:
        return []
    names = list(wanted.get("names") or [])
    devices = [] if names else wanted.get("devices") or []
    present = [name for name in names if not pods.has(name)] or links_of_devices(devices, shown)
    away = [name for name in names if pods.has(name)] if names else pods.slots()
    mtu = int(wanted.get("mtu") or 0)
    if not present and not away:
        want = "an interface of %s" % ", ".join(wanted.get("devices") or ["the fabric"])
        return [item("links", "failed", want=want, before="none", why="no network interface belongs to such a device")]
    rows = [
        pods.leave_alone("link " + name, "present") if name in away else _presence(name, name in pending, shown) for name in names
    ]
    if mtu:
        rows += [_mtu(node, name, mtu, present, name in pending, shown) for name in present]
        rows += [pods.leave_alone("MTU of " + name, str(mtu)) for name in away]
    return rows


def links_of_devices(wanted: list, shown: str = CLASS) -> list:
    """Return the names of the interfaces of PCI devices, given as vendor:device in hex as `lspci -n` prints them, sorted.

    `shown` is the folder with all interfaces, /sys/class/net.
    """
    return sorted(path.split("/")[-2] for path in glob.glob(shown + "/*/device") if pod_interfaces.device_ids(path) in wanted)


def _presence(name: str, is_pending: bool, shown: str) -> Item:
    if is_pending:
        return item("link " + name, DIFFERS, want="present", before="absent", why=NAME_AFTER_BOOT)
    good = os.path.exists("%s/%s" % (shown, name))
    others = ", ".join(sorted(other for other in os.listdir(shown) if other != "lo"))
    return measured("link " + name, good, "present", "present" if good else "absent", "the machine shows %s" % (others or "none"))


def _mtu(node: NodeAccess, name: str, want: int, ours: list, is_pending: bool, shown: str) -> Item:
    kept, at_boot = network_managers.manager_of(node, name), link_names.sets_mtu(name, want)

    def read() -> str:
        if is_pending:
            raise RebootPending(NAME_AFTER_BOOT)
        if not os.path.exists("%s/%s" % (shown, name)):
            raise Unavailable("the machine has no interface %s" % name)
        current = read_text("%s/%s/mtu" % (shown, name)).strip()
        # the right MTU now is not enough if the interface's manager gives it another one at boot
        return current if current != str(want) or at_boot or not kept or kept.has(want) else "%s until the next boot" % current

    def change() -> None:
        if kept is None and not at_boot:
            raise CannotChange("neither systemd-networkd nor NetworkManager manages %s: set its MTU where it is configured" % name)
        if kept is not None:
            kept.require_for_none_but(ours)
            kept.keep(want)
        node.must("ip", "link", "set", "dev", name, "mtu", str(want))

    return settle(node, "MTU of " + name, str(want), read, change)
