"""Routes of the fabric, now and after a boot, and the default route that RKE2 needs."""

from __future__ import annotations

import ipaddress
import json
import os

from ansible.module_utils.nodeprofile import given, keepers, reach
from ansible.module_utils.nodeprofile.item import CannotChange, Item, Node, Waiting, measured, settle
from ansible.module_utils.nodeprofile.links import NAMED_LATER


class Way:
    """One way of a route: gateway and interface, what keeps it from working (a link without carrier, an interface that is down, a
    refusal), and whether it was set by hand, so that a boot takes it away (`ip` says no protocol then)."""

    def __init__(self, gateway: str, device: str, down: list, by_hand: bool) -> None:
        self.gateway, self.device, self.down, self.by_hand = gateway, device, down, by_hand

    def leads(self, via: str, device: str) -> bool:
        """Whether it is the wanted one; what is empty may be any."""
        return (not via or self.gateway == via) and (not device or self.device == device)

    def __str__(self) -> str:
        return " ".join(["via " + self.gateway] * bool(self.gateway) + ["dev " + self.device] * bool(self.device) + self.down)


def default_route(wanted: bool, root: str = "") -> list:
    """Whether there is one that leads to an interface."""
    if not wanted:
        return []
    found = reach.default_routes(root)
    seen = ", ".join("dev " + name for name in found) or "absent"
    why = "RKE2 does not start without one: give it where an interface is configured; one that leads nowhere is enough"
    return [measured("default route", bool(found), "present", seen, why)]


def routes(node: Node, wanted: list, pending: list, pods: "given.Given") -> list:
    """Routes: `to`, `via`, `device`. One that is absent is set, and kept where the interface is configured; one that leads another
    way is the site's and stays. `pending`: interfaces that only the next boot brings; `pods`: what pods have, and its routes with
    it."""
    return [_route(node, entry["to"], entry.get("via") or "", entry.get("device") or "", pending, pods) for entry in wanted]


def _route(node: Node, to: str, via: str, device: str, pending: list, pods: "given.Given") -> Item:
    want = " ".join(["via " + via] * bool(via) + ["dev " + device] * bool(device))
    # without -6, `ip` looks among the routes of IPv4 whatever the network is
    family = ["-6"] if ":" in to else []
    seen: list = []
    if _is_left(node, family, to, via, device, pods):
        return pods.left("route " + to, want)

    def read() -> str:
        seen[:] = _ways(json.loads(node.must("ip", "-json", *family, "route", "show", "exact", to) or "[]"))
        working = [way for way in seen if way.leads(via, device) and not way.down]
        if not working and pending and (not device or device in pending):
            raise Waiting(NAMED_LATER)
        if not working:
            return "; ".join(map(str, seen)) or "absent"
        return want if _lasts(node, working, to, via) else want + " until the next boot"

    def change() -> None:
        if any(way.leads(via, device) and way.down for way in seen):
            raise CannotChange("its link is down: see the cable, the transceiver and the port of the switch")
        name = device or _on_link(node, family, via)
        kept = keepers.keeper(node, name)
        if not all(way.leads(via, device) or _is_ours(way, kept, to, name) for way in seen):
            raise CannotChange("it leads another way, which may have its reason: take that route away, or ask for it")
        if kept is None:
            raise CannotChange(_nobody(name))
        _cuts_nobody_off(node, family, to, via, name)
        if not kept.has_route(to, via):
            kept.require_for_none_but([name])
            kept.keep_route(to, via)
        node.must("ip", *family, "route", "replace", to, *["via", via][: 2 * bool(via)], "dev", name)

    return settle(node, "route " + to, want, read, change)


def _is_left(node: Node, family: list, to: str, via: str, device: str, pods: "given.Given") -> bool:
    """Whether a pod has the interface of a route: the named one; else where the route is absent, and its gateway on no network of
    this machine."""
    if device or not pods.slots():
        return bool(device) and pods.has(device)
    code, output, _ = node.run("ip", "-json", *family, "route", "show", "exact", to)
    if code or json.loads(output or "[]"):
        return False
    try:
        _on_link(node, family, via)
    except CannotChange:
        return True
    return False


def _is_ours(way: Way, kept: "keepers.Networkd | keepers.Manager | None", to: str, name: str) -> bool:
    """Whether an earlier run set it, with the gateway of then. A connection of NetworkManager does not tell whose routes it has."""
    return isinstance(kept, keepers.Networkd) and way.device == name and way.gateway == kept.kept_via(to)


def _nobody(name: str) -> str:
    if not os.path.exists("%s/%s" % (reach.CLASS, name)):
        return "the machine has no interface %s" % name
    return "neither systemd-networkd nor NetworkManager manages %s: give this route where it is configured" % name


def _lasts(node: Node, ways: list, to: str, via: str) -> bool:
    """Whether a route is there after a boot, as far as anybody tells: what was set by hand is not, unless it is kept beside. Where
    neither manager has the interface, the site's own scripts set routes by hand at each boot."""
    if not all(way.by_hand for way in ways):
        return True
    kept = keepers.keeper(node, ways[0].device)
    return kept is None or kept.has_route(to, via)


def _cuts_nobody_off(node: Node, family: list, to: str, via: str, name: str) -> None:
    """Raises CannotChange where a machine that has a connection open to this one, as SSH does, would be answered another way."""
    network = ipaddress.ip_network(to)
    for peer in sorted(reach.callers()):
        if ipaddress.ip_address(peer) not in network:
            continue
        rows = json.loads(node.must("ip", "-json", *family, "route", "show", "match", peer) or "[]")
        length, ways = max([(_length(row), _ways([row])) for row in rows] or [(-1, [])], key=lambda pair: pair[0])
        if length <= network.prefixlen and not any(way.leads(via, name) for way in ways):
            raise CannotChange("%s has a connection open, and this route would take it elsewhere: narrow it" % peer)


def _length(row: dict) -> int:
    """Of a route's prefix; an address without one has all bits."""
    to = str(row.get("dst", ""))
    return 0 if to == "default" else ipaddress.ip_network(to).prefixlen


def _on_link(node: Node, family: list, via: str) -> str:
    """The interface of the network that a gateway is on."""
    found = json.loads(node.must("ip", "-json", *family, "route", "get", via) or "[]")
    first = dict(found[0]) if found else {}
    if not first or first.get("gateway") or first.get("via"):
        raise CannotChange("the gateway %s is on no network of this machine" % via)
    return str(first.get("dev", ""))


def _ways(rows: list) -> list:
    """Every way of the routes. A route with several has them as its next hops; one that refuses (its type) has none."""
    found = []
    for row in rows:
        refuses = [row["type"]] if row.get("type", "unicast") != "unicast" else []
        for hop in row.get("nexthops") or [row]:
            down = [flag for flag in hop.get("flags") or [] if flag in ("linkdown", "dead")]
            gateway = hop.get("gateway") or (hop.get("via") or {}).get("host", "")
            found.append(Way(gateway, hop.get("dev", ""), refuses + down, row.get("protocol", "boot") == "boot"))
    return found
