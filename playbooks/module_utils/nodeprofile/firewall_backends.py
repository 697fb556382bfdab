"""Adapters for firewalld and ufw: each tells which openings are closed, and opens them at once and for later boots.

firewalld is never reloaded, because a reload removes the iptables rules of kube-proxy and Canal (rancher/rke2#774).
"""

from __future__ import annotations

import ipaddress

from ansible.module_utils.nodeprofile import reachability
from ansible.module_utils.nodeprofile.item import CannotChange, NodeAccess, read_text

ACCEPT = ["ACCEPT"]
TRUSTED = "trusted"
"""The firewalld zone that accepts and forwards all packets."""
RUNNING, PERMANENT = (), ("--permanent",)
RULE = 'rule family="%s" source address="%s" port port="%s" protocol="%s" accept'
HARMLESS = ("Warning: ALREADY_ENABLED", "Warning: ZONE_ALREADY_SET")
OURS = "made by bringup"
"""Comment on the rules that we add to ufw."""


class Firewalld:
    """Adapter for firewalld: opens ports in the zones that see the cluster's machines, and adds pod networks to zone `trusted`.

    The running and the permanent configuration are changed separately, so that no reload is needed.
    """

    unit = "firewalld.service"

    def __init__(self, node: NodeAccess, near: list, address: str, root: str = "") -> None:
        self._node, self._address, self._root = node, address, root
        self._near = [near for near in map(_network, near) if near is not None and not near.is_loopback]

    def closed(self, needed: list) -> list:
        """Return those of the needed openings that the running or the permanent configuration lacks."""
        lacking = {opening for opening, *_ in self._lacking(needed)}
        return [opening for opening in needed if opening in lacking]

    def open(self, needed: list) -> None:
        """Add the missing openings to both configurations, with one call for each zone and option. Raises CannotChange."""
        calls: dict = {}
        for _, place, zone, option, value in self._lacking(needed):
            calls.setdefault((place, zone, option), []).append("%s=%s" % (option, value))
        for (place, zone, _), options in calls.items():
            code, _, error = self._node.run("firewall-cmd", *place, "--zone=" + zone, *options)
            # of several options firewall-cmd only warns, where one was refused
            refused = [
                line for line in error.splitlines() if line.startswith(("Warning:", "Error:")) and not line.startswith(HARMLESS)
            ]
            if code != 0 or refused:
                raise CannotChange("firewall-cmd in zone %s: %s" % (zone, "; ".join(refused) or error.strip()[-400:]))

    def _lacking(self, needed: list) -> list:
        running = self._zones(RUNNING)
        names = self._names(running)
        every = ((RUNNING, running), (PERMANENT, self._zones(PERMANENT)))
        return [(row, place, *step) for place, zones in every for row in needed for step in _missing_steps(row, zones, names)]

    def _zones(self, place: tuple) -> dict:
        """Return zone → key → list of values (a rich rule is one value); `place` selects the running or permanent configuration."""
        # firewall-cmd prints a zone at the margin, its keys indented by blanks, and rich rules by tabs below their key
        zones: dict = {}
        zone: dict = {}
        values_of_key: list = []
        for line in self._node.must("firewall-cmd", *place, "--list-all-zones").splitlines():
            if line.startswith("\t"):
                values_of_key.append(line.strip())
            elif line.startswith("  "):
                key, _, values = line.strip().partition(":")
                values_of_key = zone[key] = values.split()
            elif line.strip():
                zone = zones[line.split()[0]] = {}
        return zones

    def _names(self, zones: dict) -> list:
        """Return the names of the zones through which packets from the cluster's machines arrive.

        These are the zones of the interfaces that lead to them (the default zone for an interface in none), and zones whose sources
        include them or this machine. firewalld matches a source before an interface.
        """
        links = self._links()
        assigned = {link for zone in zones.values() for link in zone.get("interfaces", [])}
        by_link = [name for name, zone in zones.items() if links & set(zone.get("interfaces", []))]
        if not links or links - assigned:
            by_link.append(self._node.must("firewall-cmd", "--get-default-zone").strip())
        by_source = [name for name, zone in zones.items() if any(self._is_near(source) for source in zone.get("sources", []))]
        return list(dict.fromkeys([*by_link, *by_source]))

    def _links(self) -> set:
        """Return the interfaces with the address that SSH dials (else with a default route) and those in the cluster's networks."""
        rows = reachability.addresses(self._node)
        dialled = {link for link, local in rows if local == self._address} - {"lo"} or set(reachability.default_routes(self._root))
        return dialled | {link for link, local in rows if link != "lo" and self._is_near(local)}

    def _is_near(self, source: str) -> bool:
        network = _network(source)
        return network is not None and any(network.version == near.version and network.overlaps(near) for near in self._near)


def _missing_steps(opening: tuple, zones: dict, names: list) -> list:
    """Return a (zone, option, value) for each firewall-cmd call that an opening still needs; empty if it is open in all `names`."""
    port, source = opening
    if not port:
        trusted = [network for zone in zones.values() if zone.get("target") == ACCEPT for network in zone.get("sources", [])]
        return [] if any(_is_within(source, network) for network in trusted) else [(TRUSTED, "--add-source", source)]
    number, _, kind = port.partition("/")
    family = "ipv6" if ":" in source else "ipv4"
    option, value = ("--add-rich-rule", RULE % (family, source, number, kind)) if source else ("--add-port", port)
    lacking = []
    for name in names:
        zone = zones.get(name, {})
        if zone.get("target") != ACCEPT and not _covers(zone.get("ports", []), port) and value not in zone.get("rich rules", []):
            lacking.append((name, option, value))
    return lacking


def _network(text: str) -> "ipaddress.IPv4Network | ipaddress.IPv6Network | None":
    """Return the text parsed as an IP network, or None for other firewalld sources such as MAC addresses and IP sets."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _is_within(inner: str, outer: str) -> bool:
    network, other = ipaddress.ip_network(inner), _network(outer)
    return isinstance(other, type(network)) and network.subnet_of(other)


def _covers(there: list, wanted: str) -> bool:
    """Return True if one of the open port ranges `there` contains the wanted ports; firewalld joins adjacent ranges."""
    low, high, kind = _range(wanted)
    return any(first <= low and high <= last and protocol == kind for first, last, protocol in map(_range, there))


def _range(port: str) -> tuple:
    numbers, _, kind = port.partition("/")
    first, _, last = numbers.partition("-")
    return int(first), int(last or first), kind


class Ufw:
    """Adapter for ufw: running rules are listed by iptables, permanent ones are read from ufw's files.

    By default ufw refuses forwarded packets, so routes to and from the pod networks are allowed.
    """

    unit = "ufw.service"

    def __init__(self, node: NodeAccess, root: str = "") -> None:
        self._node, self._root = node, root

    @staticmethod
    def is_on(root: str = "") -> bool:
        """Return True if ufw is enabled in its configuration, so that its service would load rules."""
        return "ENABLED=yes" in read_text(root + "/etc/ufw/ufw.conf").split()

    def runs(self) -> bool:
        """Return True if ufw is installed and its rules are in the kernel."""
        return self._node.has("ufw") and self._node.run(*_listing("4", "input"))[0] == 0

    def closed(self, needed: list) -> list:
        """Return those of the needed openings that the running rules or ufw's files lack."""
        there = self._kept() & self._running(needed)
        return [opening for opening in needed if not set(_rules(opening)) <= there]

    def open(self, needed: list) -> None:
        """Add the rules that ufw's files lack; reload ufw if the kernel still lacks some. Raises CannotChange."""
        kept = self._kept()
        for opening in needed:
            for rule, command in zip(_rules(opening), _commands(opening)):
                if rule not in kept:
                    self._node.must("ufw", *command, "comment", OURS)
        if self.closed(needed):
            self._node.must("ufw", "reload")

    def _kept(self) -> set:
        return _parse_rules("".join(read_text("%s/etc/ufw/%s" % (self._root, name)) for name in ("user.rules", "user6.rules")))

    def _running(self, needed: list) -> set:
        versions = ["4", "6"] if any(":" in source for _, source in needed) else ["4"]
        chains = [(version, chain) for version in versions for chain in ("input", "forward")]
        return _parse_rules("\n".join(self._node.must(*_listing(version, chain)) for version, chain in chains))


def _listing(version: str, chain: str) -> tuple:
    """Return the command that lists ufw's user chain `input` or `forward`; it waits up to 10 s for the xtables lock."""
    tool, prefix = ("iptables", "ufw") if version == "4" else ("ip6tables", "ufw6")
    return (tool, "-w", "10", "-S", "%s-user-%s" % (prefix, chain))


def _parse_rules(text: str) -> set:
    """Return each rule of an iptables listing or ufw file as a frozenset of (option, value), so that both forms compare equal.

    ufw's files omit the names of matches and the mask of a single address.
    """
    rows = [line.replace("ufw6-", "ufw-").split() for line in text.splitlines() if line.startswith("-A ")]
    return {frozenset((key, _without_host_mask(value)) for key, value in zip(row[::2], row[1::2]) if key != "-m") for row in rows}


def _without_host_mask(value: str) -> str:
    return value[: -len("/32")] if value.endswith("/32") and ":" not in value else value.replace("/128", "")


def _rules(opening: tuple) -> list:
    """Return the iptables rules that ufw makes of an opening, in the form of `_parse_rules` and the order of `_commands`."""
    port, source = opening
    if not port:
        ways = (("input", "-s"), ("forward", "-s"), ("forward", "-d"))
        return [
            frozenset({("-A", "ufw-user-" + chain), (end, _without_host_mask(source)), ("-j", "ACCEPT")}) for chain, end in ways
        ]
    number, _, kind = port.partition("/")
    rule = {("-A", "ufw-user-input"), ("-p", kind), ("-j", "ACCEPT")}
    rule.add(("--dports", number.replace("-", ":")) if "-" in number else ("--dport", number))
    return [frozenset(rule | {("-s", _without_host_mask(source))} if source else rule)]


def _commands(opening: tuple) -> list:
    """Return ufw's arguments for each rule that an opening needs."""
    port, source = opening
    if not port:
        return [["allow", "from", source], ["route", "allow", "from", source], ["route", "allow", "to", source]]
    number, _, kind = port.replace("-", ":").partition("/")
    if source:
        return [["allow", "proto", kind, "from", source, "to", "any", "port", number]]
    return [["allow", "%s/%s" % (number, kind)]]
