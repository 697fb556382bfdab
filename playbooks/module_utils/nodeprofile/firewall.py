"""A firewall that the site keeps running: firewalld and ufw let in what the cluster needs and keep all other rules as they are.

An opening is a pair of a port with its protocol and a source network (empty: any). An opening without a port is a network of pods
or services, from which everything is accepted and forwarded, as K3s advises for both firewalls
(docs.k3s.io/installation/requirements). The network plugin's interfaces have addresses of the pod network and need no opening of
their own. SSH and ICMP, which Cilium's health checks use, are let in by both firewalls by default. Refusing rules of the site go
first in either firewall; the gates of stage rke2 find out whether pods reach each other.
"""

from __future__ import annotations

from ansible.module_utils.nodeprofile import systemd_services
from ansible.module_utils.nodeprofile.firewall_backends import Firewalld, Ufw
from ansible.module_utils.nodeprofile.item import CHANGED, DIFFERS, FAILED, OK, CannotChange, Item, NodeAccess, item, settle

NAME = "firewall"
FIREWALLD, UFW = "firewalld.service", "ufw.service"
RULE_LOADERS = (
    "nftables.service",
    "netfilter-persistent.service",
    "iptables.service",
    "ip6tables.service",
    "SuSEfirewall2.service",
)
"""systemd units that load the site's own packet filter rules, which only the site can change."""
SITE_RULES_NOTE = "%s loads rules of the site's own, which stay as they are: see that they let in %s, and packets of pods through"
ALL_INBOUND_RULES = "what RKE2's inbound rules say"
RUNS = ("active", "reloading", "activating")


def firewall(node: NodeAccess, wanted: dict, server: bool, address: str, root: str = "") -> list:
    """Open the running firewalls for the cluster, now and for later boots, and return the setting result in a list.

    `wanted` has `nodes`, `servers` and `api` (ports of every machine, among servers, and of servers for all), `networks` (where the
    cluster's machines are; without them ports are open to all) and `pods` (networks of pods and services). With nothing wanted,
    only a note about the site's own rules is returned, if there are any.
    """
    if not wanted:
        return _site_rules(node, root)
    needed = openings(wanted, server)
    want = "lets in " + describe(needed)
    try:
        states = systemd_services.units(node, [FIREWALLD, UFW, *RULE_LOADERS]) if systemd_services.has_systemd(root) else {}
        running = _running_firewalls(node, states, [*wanted.get("networks", []), address], address, root)
    except CannotChange as reason:
        return [item(NAME, FAILED, want=want, why=str(reason))]
    strangers = [name for name in RULE_LOADERS if states and states[name]["ActiveState"] in RUNS]
    late = _starts_at_boot(states, [wall.unit for wall in running], root)
    if late:
        why = "%s does not run now, and comes with the next boot: start it first, or disable it" % late
        return [item(NAME, FAILED, want=want, before="not running", after="not running", why=why)]
    if running:
        row = _open_firewalls(node, want, needed, running)
    else:
        row = item(NAME, OK, want=want, after=", ".join(strangers) or "none runs")
    if strangers and "why" not in row:
        row["why"] = SITE_RULES_NOTE % (" and ".join(strangers), describe(needed))
    return [row]


def _site_rules(node: NodeAccess, root: str) -> list:
    """Return a setting result that names the units that load the site's own rules, in a list; an empty list if there are none."""
    try:
        states = systemd_services.units(node, list(RULE_LOADERS)) if systemd_services.has_systemd(root) else {}
    except CannotChange:
        return []  # an item of services says that systemd does not answer
    strangers = [name for name in RULE_LOADERS if states and states[name]["ActiveState"] in RUNS]
    if not strangers:
        return []
    names = " and ".join(strangers)
    return [item(NAME, OK, want="as the site has it", after=", ".join(strangers), why=SITE_RULES_NOTE % (names, ALL_INBOUND_RULES))]


def openings(wanted: dict, server: bool) -> list:
    """Return the openings that this machine needs, as pairs of PORT/PROTOCOL and source network; either may be empty (any)."""
    ports = [*wanted.get("nodes", []), *(wanted.get("servers", []) if server else [])]
    rows = [(port, source) for source in wanted.get("networks") or [""] for port in ports]
    rows += [(port, "") for port in wanted.get("api", []) if server]
    return rows + [("", network) for network in wanted.get("pods", [])]


def describe(needed: list) -> str:
    """Return openings as one text, grouped by source network."""
    sources = dict.fromkeys(source for _, source in needed)
    ports = {source: ", ".join(port or "all" for port, origin in needed if origin == source) for source in sources}
    return "; ".join(text + (" from " + source if source else "") for source, text in ports.items())


def _open_firewalls(node: NodeAccess, want: str, needed: list, running: list) -> Item:
    def read() -> str:
        closed = [(wall, wall.closed(needed)) for wall in running]
        return "; ".join("%s lacks %s" % (wall.unit, describe(rows)) for wall, rows in closed if rows) or want

    def change() -> None:
        for wall in running:
            wall.open(needed)

    row = settle(node, NAME, want, read, change)
    if row["status"] in (CHANGED, DIFFERS):
        before, after = ("%s\n" % text for text in (row["before"], want))
        node.diffs.append({"before_header": NAME, "after_header": NAME, "before": before, "after": after})
    return row


def _running_firewalls(node: NodeAccess, seen: dict, near: list, address: str, root: str) -> list:
    """Return an adapter for each of firewalld and ufw that runs. ufw has no process, so it runs if its chains exist."""
    firewalls: list = []
    if seen and seen[FIREWALLD]["ActiveState"] in RUNS:
        firewalls.append(Firewalld(node, near, address, root))
    ufw = Ufw(node, root)
    return [*firewalls, ufw] if ufw.runs() else firewalls


def _starts_at_boot(seen: dict, running: list, root: str) -> str:
    """Return the unit of a stopped firewall that the next boot starts, whose rules nobody has checked; empty if there is none."""
    for unit in (FIREWALLD, UFW):
        if seen and unit not in running and seen[unit]["UnitFileState"] == "enabled" and (unit == FIREWALLD or Ufw.is_on(root)):
            return unit
    return ""
