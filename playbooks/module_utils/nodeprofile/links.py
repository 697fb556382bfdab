"""Interfaces of the fabric: their names, their MTU now and after a boot, and whether the routes through them are there."""

from __future__ import annotations

import glob
import json
import os
import re

from ansible.module_utils.nodeprofile.item import CannotChange, Item, Node, Unavailable, item, measured, read_text, settle

CLASS = "/sys/class/net"
MANAGER = "/etc/NetworkManager/conf.d/90-bringup-fabric.conf"
NETWORKD = "/etc/systemd/network/%s.d/90-bringup.conf"


def links(node: Node, wanted: dict) -> list:
    """`names`: interfaces that must be there; without names, those of PCI `devices` (vendor:device). `mtu` is theirs, 0 for any."""
    if not wanted:
        return []
    names = list(wanted.get("names") or [])
    found = names or of_devices(wanted.get("devices") or [])
    mtu = int(wanted.get("mtu") or 0)
    if not found:
        want = "an interface of %s" % ", ".join(wanted.get("devices") or ["the fabric"])
        return [item("links", "failed", want=want, before="none", why="no network interface belongs to such a device")]
    rows = [_there(name) for name in names]
    return rows + ([_mtu(node, name, mtu) for name in found] if mtu else [])


def of_devices(wanted: list, shown: str = CLASS) -> list:
    """Interfaces of PCI devices, by vendor:device in hex as lspci -n has them; `shown` is the folder of all interfaces."""
    found = []
    for path in glob.glob(shown + "/*/device"):
        pair = ":".join(read_text(path + "/" + part).strip()[2:] for part in ("vendor", "device"))
        if pair in wanted:
            found.append(path.split("/")[-2])
    return sorted(found)


def _there(name: str) -> Item:
    good = os.path.exists("%s/%s" % (CLASS, name))
    others = ", ".join(sorted(other for other in os.listdir(CLASS) if other != "lo"))
    return measured("link " + name, good, "present", "present" if good else "absent", "the machine shows %s" % (others or "none"))


def _mtu(node: Node, name: str, want: int) -> Item:
    kept = keeper(node, name)

    def read() -> str:
        if not os.path.exists("%s/%s" % (CLASS, name)):
            raise Unavailable("the machine has no interface %s" % name)
        now = read_text("%s/%s/mtu" % (CLASS, name)).strip()
        return now if now != str(want) or not kept or kept.has(want) else "%s until the next boot" % now

    def change() -> None:
        if kept is None:
            raise CannotChange("neither systemd-networkd nor NetworkManager manages %s: set its MTU where it is configured" % name)
        kept.keep(node, want)
        node.must("ip", "link", "set", "dev", name, "mtu", str(want))

    return settle(node, "MTU of " + name, str(want), read, change)


class Networkd:
    """A drop-in beside the .network file by which systemd-networkd configures an interface."""

    def __init__(self, network: str) -> None:
        self._path = NETWORKD % os.path.basename(network)

    def has(self, mtu: int) -> bool:
        """Whether the drop-in says this MTU."""
        return read_text(self._path) == self._text(mtu)

    def keep(self, node: Node, mtu: int) -> None:
        """Write the drop-in; networkd reads it with the next boot, and the MTU of now is set by hand."""
        node.write(self._path, self._text(mtu), 0o644)

    @staticmethod
    def _text(mtu: int) -> str:
        return "# Made by bringup.\n[Link]\nMTUBytes=%d\n" % mtu


class Manager:
    """Our section of NetworkManager's configuration: defaults of one interface's connection, where that says nothing itself."""

    def __init__(self, name: str, connection: str = "", setting: str = "", own: str = "") -> None:
        self._name, self._connection, self._setting, self._own = name, connection, setting, own

    def has(self, mtu: int) -> bool:
        """Whether the connection says it itself, or leaves it to our sections, which have this one."""
        return self._own == str(mtu) if self._own else self._section(mtu) in read_text(MANAGER)

    def keep(self, node: Node, mtu: int) -> None:
        """Write the section in place of an older one of this interface."""
        if self._own:
            step = "nmcli connection modify %s %s %d" % (self._connection, self._setting, mtu)
            raise CannotChange("its connection in NetworkManager has an MTU of its own, %s: `%s`" % (self._own, step))
        old = re.sub(r"\[connection-bringup-%s\]\n(?:[^\[].*\n)*" % re.escape(self._name), "", read_text(MANAGER))
        node.reload("networkmanager")
        node.write(MANAGER, (old or "# Made by bringup.\n") + self._section(mtu), 0o644)

    def _section(self, mtu: int) -> str:
        lines = (self._name, self._name, mtu, mtu)
        return "[connection-bringup-%s]\nmatch-device=interface-name:%s\nethernet.mtu=%d\ninfiniband.mtu=%d\n" % lines


def keeper(node: Node, name: str) -> "Networkd | Manager | None":
    """What configures an interface at boot; None where it is neither of the two."""
    _, output, _ = node.run("networkctl", "--no-pager", "--no-legend", "status", name)
    network = re.search(r"Network File: (/\S+\.network)", output)
    if network:
        return Networkd(network.group(1))
    _, output, _ = node.run("nmcli", "--terse", "--fields=GENERAL.STATE,GENERAL.CON-UUID", "device", "show", name)
    if not re.search(r"GENERAL.STATE:(?!10\b)\d+", output):
        return None
    connection = "".join(re.findall(r"^GENERAL.CON-UUID:([0-9a-f-]+)$", output, re.MULTILINE))
    said = node.run("nmcli", "--terse", "connection", "show", connection)[1] if connection else ""
    own = re.search(r"^((?:802-3-ethernet|infiniband)\.mtu):(\d+)$", said, re.MULTILINE)
    return Manager(name, connection, *(own.groups() if own else ()))


def default_route(wanted: bool, root: str = "") -> list:
    """Whether there is one, by IPv4 or IPv6, that leads to an interface (proc(5); the kernel's own refusals have none, or lo)."""
    if not wanted:
        return []
    rows = [line.split() for line in read_text(root + "/proc/net/route").splitlines()[1:]]
    found = [row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000" and row[0] != "*"]
    rows = [line.split() for line in read_text(root + "/proc/net/ipv6_route").splitlines()]
    found += [row[9] for row in rows if len(row) > 9 and row[0] == "0" * 32 and row[1] == "00" and row[9] != "lo"]
    seen = ", ".join("dev " + name for name in dict.fromkeys(found)) or "absent"
    why = "RKE2 does not start without one: give it where an interface is configured; one that leads nowhere is enough"
    return [measured("default route", bool(found), "present", seen, why)]


def routes(node: Node, wanted: list) -> list:
    """Routes: `to`, `via`, `device`. They are looked for and never set: only the network's configuration brings them with every
    boot, and it is the site's."""
    return [_route(node, entry["to"], entry.get("via") or "", entry.get("device") or "") for entry in wanted]


def _route(node: Node, to: str, via: str, device: str) -> Item:
    want = " ".join(["via " + via] * bool(via) + ["dev " + device] * bool(device))
    seen = []

    def read() -> str:
        # without -6, `ip` looks among the routes of IPv4 whatever the network is
        family = ["-6"] if ":" in to else []
        seen[:] = _ways(json.loads(node.must("ip", "-json", *family, "route", "show", "exact", to) or "[]"))
        if any(_leads(way, via, device) and not way[2] for way in seen):
            return want
        words = [["via " + gateway] * bool(gateway) + ["dev " + dev] * bool(dev) + down for gateway, dev, down in seen]
        return "; ".join(map(" ".join, words)) or "absent"

    def refuse() -> None:
        if any(_leads(way, via, device) for way in seen):
            raise CannotChange("its link is down: see the cable, the transceiver and the port of the switch")
        raise CannotChange("give this route where the interface is configured: one set by hand would be gone with the next boot")

    return settle(node, "route " + to, want, read, refuse)


def _leads(way: tuple, via: str, device: str) -> bool:
    return (not via or way[0] == via) and (not device or way[1] == device)


def _ways(rows: list) -> list:
    """Gateway and interface of each way of the routes, and what keeps it from working: a link without carrier, or an interface that
    is down. A route with several ways has them as its next hops; one that refuses (its type) has none."""
    found = []
    for row in rows:
        refuses = [row["type"]] if row.get("type", "unicast") != "unicast" else []
        for hop in row.get("nexthops") or [row]:
            down = [flag for flag in hop.get("flags") or [] if flag in ("linkdown", "dead")]
            gateway = hop.get("gateway") or (hop.get("via") or {}).get("host", "")
            found.append((gateway, hop.get("dev", ""), refuses + down))
    return found
