"""Routes of the GPU fabric, set now and kept for later boots, and a check for the default route that RKE2 needs."""

from __future__ import annotations

import ipaddress
import json
import os

from ansible.module_utils.nodeprofile import network_managers, pod_interfaces, reachability
from ansible.module_utils.nodeprofile.item import CannotChange, Item, NodeAccess, RebootPending, measured, settle
from ansible.module_utils.nodeprofile.links import NAME_AFTER_BOOT


class NextHop:
    """One next hop of a route in the kernel: its gateway and interface, and whether they work.

    `down` lists what keeps the hop from working (no carrier, interface down, reject type). `by_hand` is True for a route without a
    protocol, which a boot removes.
    """

    def __init__(self, gateway: str, device: str, down: list, by_hand: bool) -> None:
        self.gateway, self.device, self.down, self.by_hand = gateway, device, down, by_hand

    def leads(self, via: str, device: str) -> bool:
        """Return True if the hop has this gateway and this interface; an empty argument matches any."""
        return (not via or self.gateway == via) and (not device or self.device == device)

    def __str__(self) -> str:
        return " ".join(["via " + self.gateway] * bool(self.gateway) + ["dev " + self.device] * bool(self.device) + self.down)


def default_route(wanted: bool, root: str = "") -> list:
    """Check that a default route leads to an interface; return the setting result in a list, empty unless `wanted`."""
    if not wanted:
        return []
    links = reachability.default_routes(root)
    shown = ", ".join("dev " + name for name in links) or "absent"
    why = "RKE2 does not start without one: give it where an interface is configured; one that leads nowhere is enough"
    return [measured("default route", bool(links), "present", shown, why)]


def routes(node: NodeAccess, wanted: list, pending: list, pods: "pod_interfaces.PodInterfaces") -> list:
    """Set each wanted route (`to` a network, `via` a gateway, `device` an interface) and return one setting result for each.

    A missing route is added, now and to its interface's configuration. One that leads another way is the site's and makes the
    setting fail. `pending` are names of interfaces that appear only after the next boot; `pods` knows the interfaces that pods
    hold, whose routes are left alone.
    """
    return [_route(node, entry["to"], entry.get("via") or "", entry.get("device") or "", pending, pods) for entry in wanted]


def _route(node: NodeAccess, to: str, via: str, device: str, pending: list, pods: "pod_interfaces.PodInterfaces") -> Item:
    want = " ".join(["via " + via] * bool(via) + ["dev " + device] * bool(device))
    # without -6, `ip` looks among the routes of IPv4 whatever the network is
    family = ["-6"] if ":" in to else []
    hops: list = []
    if _is_pod_route(node, family, to, via, device, pods):
        return pods.leave_alone("route " + to, want)

    def read() -> str:
        hops[:] = _next_hops(json.loads(node.must("ip", "-json", *family, "route", "show", "exact", to) or "[]"))
        working = [way for way in hops if way.leads(via, device) and not way.down]
        if not working and pending and (not device or device in pending):
            raise RebootPending(NAME_AFTER_BOOT)
        if not working:
            return "; ".join(map(str, hops)) or "absent"
        return want if _survives_boot(node, working, to, via) else want + " until the next boot"

    def change() -> None:
        if any(way.leads(via, device) and way.down for way in hops):
            raise CannotChange("its link is down: see the cable, the transceiver and the port of the switch")
        name = device or _on_link(node, family, via)
        kept = network_managers.manager_of(node, name)
        # the gateway of an earlier run; NetworkManager does not tell whose routes are
        own = kept.kept_via(to) if isinstance(kept, network_managers.Networkd) else None
        if not all(way.leads(via, device) or (way.device, way.gateway) == (name, own) for way in hops):
            raise CannotChange("it leads another way, which may have its reason: take that route away, or ask for it")
        if kept is None:
            raise CannotChange(_unmanaged(name))
        _require_no_cut_off(node, family, to, via, name)
        if not kept.has_route(to, via):
            kept.require_for_none_but([name])
            kept.keep_route(to, via)
        node.must("ip", *family, "route", "replace", to, *["via", via][: 2 * bool(via)], "dev", name)

    return settle(node, "route " + to, want, read, change)


def _is_pod_route(node: NodeAccess, family: list, to: str, via: str, device: str, pods: "pod_interfaces.PodInterfaces") -> bool:
    """Return True if a pod holds the route's interface: the named one, or else if neither the route nor its gateway is there."""
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


def _unmanaged(name: str) -> str:
    if not os.path.exists("%s/%s" % (reachability.CLASS, name)):
        return "the machine has no interface %s" % name
    return "neither systemd-networkd nor NetworkManager manages %s: give this route where it is configured" % name


def _survives_boot(node: NodeAccess, ways: list, to: str, via: str) -> bool:
    """Return True if the route will exist after a boot: it was not set by hand, or the interface's configuration has it too."""
    if not all(way.by_hand for way in ways):
        return True
    kept = network_managers.manager_of(node, ways[0].device)
    return kept is None or kept.has_route(to, via)  # without a manager, scripts of the site may set routes at each boot


def _require_no_cut_off(node: NodeAccess, family: list, to: str, via: str, name: str) -> None:
    """Raise CannotChange if the route would send answers to a machine with an open connection here, such as SSH, another way."""
    network = ipaddress.ip_network(to)
    for peer in sorted(reachability.client_addresses()):
        if ipaddress.ip_address(peer) not in network:
            continue
        rows = json.loads(node.must("ip", "-json", *family, "route", "show", "match", peer) or "[]")
        length, ways = max([(_length(row), _next_hops([row])) for row in rows] or [(-1, [])], key=lambda pair: pair[0])
        if length <= network.prefixlen and not any(way.leads(via, name) for way in ways):
            raise CannotChange("%s has a connection open, and this route would take it elsewhere: narrow it" % peer)


def _length(row: dict) -> int:
    """Return the prefix length of a route's network; an address without a length is one host and has all bits."""
    to = str(row.get("dst", ""))
    return 0 if to == "default" else ipaddress.ip_network(to).prefixlen


def _on_link(node: NodeAccess, family: list, via: str) -> str:
    """Return the interface whose network contains the gateway. Raises CannotChange if there is none."""
    matches = json.loads(node.must("ip", "-json", *family, "route", "get", via) or "[]")
    first = dict(matches[0]) if matches else {}
    if not first or first.get("gateway") or first.get("via"):
        raise CannotChange("the gateway %s is on no network of this machine" % via)
    return str(first.get("dev", ""))


def _next_hops(rows: list) -> list:
    """Return all next hops of the routes in `ip -json` output. A route of a reject type has one hop that is down."""
    hops = []
    for row in rows:
        refuses = [row["type"]] if row.get("type", "unicast") != "unicast" else []
        for hop in row.get("nexthops") or [row]:
            down = [flag for flag in hop.get("flags") or [] if flag in ("linkdown", "dead")]
            gateway = hop.get("gateway") or (hop.get("via") or {}).get("host", "")
            hops.append(NextHop(gateway, hop.get("dev", ""), refuses + down, row.get("protocol", "boot") == "boot"))
    return hops
