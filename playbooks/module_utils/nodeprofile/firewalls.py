"""firewalld and ufw: what of the openings of `firewall` each still keeps closed, and how it opens them, running and kept for the
next boot. firewalld is never reloaded: it takes away what kube-proxy and Canal have in iptables then (rancher/rke2#774)."""

from __future__ import annotations

import ipaddress

from ansible.module_utils.nodeprofile import reach
from ansible.module_utils.nodeprofile.item import CannotChange, Node, read_text

ACCEPT = ["ACCEPT"]
TRUSTED = "trusted"
"""The zone of firewalld whose packets all come in, and go through."""
RUNNING, KEPT = (), ("--permanent",)
RULE = 'rule family="%s" source address="%s" port port="%s" protocol="%s" accept'
HARMLESS = ("Warning: ALREADY_ENABLED", "Warning: ZONE_ALREADY_SET")
OURS = "made by bringup"
"""The comment of our rules in ufw."""


class Firewalld:
    """Zones: ports are opened in the one by which machines of the cluster come in, and whose networks are trusted are sources of
    one that accepts all. Of the two configurations each is changed by itself, which needs no reload."""

    unit = "firewalld.service"

    def __init__(self, node: Node, near: list, address: str, root: str = "") -> None:
        self._node, self._address, self._root = node, address, root
        self._near = [one for one in map(_network, near) if one is not None and not one.is_loopback]

    def closed(self, needed: list) -> list:
        """The openings that lack, in the running configuration or in the one that a boot brings."""
        lacking = {one for one, *_ in self._lacking(needed)}
        return [one for one in needed if one in lacking]

    def open(self, needed: list) -> None:
        """Make them: one call for all of a kind in a zone."""
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
        now = self._zones(RUNNING)
        names = self._names(now)
        every = ((RUNNING, now), (KEPT, self._zones(KEPT)))
        return [(one, place, *step) for place, zones in every for one in needed for step in _steps(one, zones, names)]

    def _zones(self, place: tuple) -> dict:
        """What each zone says, by key; a rule is one value."""
        zones: dict = {}
        zone: dict = {}
        said: list = []
        for line in self._node.must("firewall-cmd", *place, "--list-all-zones").splitlines():
            if line.startswith("\t"):
                said.append(line.strip())
            elif line.startswith("  "):
                key, _, values = line.strip().partition(":")
                said = zone[key] = values.split()
            elif line.strip():
                zone = zones[line.split()[0]] = {}
        return zones

    def _names(self, zones: dict) -> list:
        """The zones by which machines of the cluster come in: those of the interfaces that lead to them, which is the default one
        for an interface that is in none, and those whose sources they, or this machine, are among; a source goes before an
        interface."""
        links = self._links()
        held = {link for zone in zones.values() for link in zone.get("interfaces", [])}
        by_link = [name for name, zone in zones.items() if links & set(zone.get("interfaces", []))]
        if not links or links - held:
            by_link.append(self._node.must("firewall-cmd", "--get-default-zone").strip())
        by_source = [name for name, zone in zones.items() if any(self._is_near(source) for source in zone.get("sources", []))]
        return list(dict.fromkeys([*by_link, *by_source]))

    def _links(self) -> set:
        """The interface with the address that SSH dials, which is not always the node's, else those of default routes; and all
        with an address in the cluster's networks."""
        held = reach.addresses(self._node)
        dialled = {link for link, local in held if local == self._address} - {"lo"} or set(reach.default_routes(self._root))
        return dialled | {link for link, local in held if link != "lo" and self._is_near(local)}

    def _is_near(self, source: str) -> bool:
        network = _network(source)
        return network is not None and any(network.version == one.version and network.overlaps(one) for one in self._near)


def _steps(opening: tuple, zones: dict, names: list) -> list:
    """Zone, option and value of what firewalld lacks of an opening."""
    port, source = opening
    if not port:
        trusted = [one for zone in zones.values() if zone.get("target") == ACCEPT for one in zone.get("sources", [])]
        return [] if any(_is_within(source, one) for one in trusted) else [(TRUSTED, "--add-source", source)]
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
    """None for what is no network, such as a MAC address or a set of addresses."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _is_within(inner: str, outer: str) -> bool:
    one, other = ipaddress.ip_network(inner), _network(outer)
    return isinstance(other, type(one)) and one.subnet_of(other)


def _covers(there: list, wanted: str) -> bool:
    """Whether ports are open already: firewalld joins ranges that touch."""
    low, high, kind = _range(wanted)
    return any(first <= low and high <= last and one == kind for first, last, one in map(_range, there))


def _range(port: str) -> tuple:
    numbers, _, kind = port.partition("/")
    first, _, last = numbers.partition("-")
    return int(first), int(last or first), kind


class Ufw:
    """Rules as iptables has them: those that run are asked of it, those that are kept are in ufw's files. What is routed between
    pods, ufw's default for forwarded packets refuses: routes to and from their networks are let through."""

    unit = "ufw.service"

    def __init__(self, node: Node, root: str = "") -> None:
        self._node, self._root = node, root

    @staticmethod
    def is_on(root: str = "") -> bool:
        """Whether a start of its service brings its rules."""
        return "ENABLED=yes" in read_text(root + "/etc/ufw/ufw.conf").split()

    def runs(self) -> bool:
        """Whether its rules are in the kernel."""
        return self._node.has("ufw") and self._node.run(*_listing("4", "input"))[0] == 0

    def closed(self, needed: list) -> list:
        """The openings that lack, among the rules that run or in the files that a boot brings."""
        there = self._kept() & self._running(needed)
        return [one for one in needed if not set(_rules(one)) <= there]

    def open(self, needed: list) -> None:
        """Add the rules, which ufw puts into its files and into the kernel; what only the kernel lacks, a reload brings."""
        kept = self._kept()
        for one in needed:
            for rule, command in zip(_rules(one), _commands(one)):
                if rule not in kept:
                    self._node.must("ufw", *command, "comment", OURS)
        if self.closed(needed):
            self._node.must("ufw", "reload")

    def _kept(self) -> set:
        return _read("".join(read_text("%s/etc/ufw/%s" % (self._root, name)) for name in ("user.rules", "user6.rules")))

    def _running(self, needed: list) -> set:
        versions = ["4", "6"] if any(":" in source for _, source in needed) else ["4"]
        chains = [(version, chain) for version in versions for chain in ("input", "forward")]
        return _read("\n".join(self._node.must(*_listing(version, chain)) for version, chain in chains))


def _listing(version: str, chain: str) -> tuple:
    """The command that lists a chain of ufw; others may hold the lock of all chains."""
    tool, prefix = ("iptables", "ufw") if version == "4" else ("ip6tables", "ufw6")
    return (tool, "-w", "10", "-S", "%s-user-%s" % (prefix, chain))


def _read(text: str) -> set:
    """Rules of a listing or a file. Files leave out the names of matches, and the mask of one address."""
    rows = [line.replace("ufw6-", "ufw-").split() for line in text.splitlines() if line.startswith("-A ")]
    return {frozenset((key, _plain(value)) for key, value in zip(row[::2], row[1::2]) if key != "-m") for row in rows}


def _plain(value: str) -> str:
    return value[: -len("/32")] if value.endswith("/32") and ":" not in value else value.replace("/128", "")


def _rules(opening: tuple) -> list:
    """The rules of an opening, in the order of `_commands`."""
    port, source = opening
    if not port:
        ways = (("input", "-s"), ("forward", "-s"), ("forward", "-d"))
        return [frozenset({("-A", "ufw-user-" + chain), (end, _plain(source)), ("-j", "ACCEPT")}) for chain, end in ways]
    number, _, kind = port.partition("/")
    found = {("-A", "ufw-user-input"), ("-p", kind), ("-j", "ACCEPT")}
    found.add(("--dports", number.replace("-", ":")) if "-" in number else ("--dport", number))
    return [frozenset(found | {("-s", _plain(source))} if source else found)]


def _commands(opening: tuple) -> list:
    """What ufw is told for each rule of an opening."""
    port, source = opening
    if not port:
        return [["allow", "from", source], ["route", "allow", "from", source], ["route", "allow", "to", source]]
    number, _, kind = port.replace("-", ":").partition("/")
    if source:
        return [["allow", "proto", kind, "from", source, "to", "any", "port", number]]
    return [["allow", "%s/%s" % (number, kind)]]
