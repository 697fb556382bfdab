"""A firewall that stays: firewalld and ufw let through what the cluster needs, now and after a boot, and keep all else as it is.

Openings are pairs: ports with their protocol, and the network that may come in by them (empty: any). Those without ports are the
networks of pods and services, from which everything is let in and through, as k3s advises for both firewalls
(docs.k3s.io/installation/requirements): addresses of the network plugin's interfaces are of the pods' network, so that these need
no words of their own. Nothing is opened for SSH, and ICMP, which Cilium's health checks use, both let in by themselves.
A rule of the site's that refuses goes before ours in either: whether pods reach each other, the gates of stage rke2 see.
"""

from __future__ import annotations

from ansible.module_utils.nodeprofile import services
from ansible.module_utils.nodeprofile.firewalls import Firewalld, Ufw
from ansible.module_utils.nodeprofile.item import CHANGED, DIFFERS, FAILED, OK, CannotChange, Item, Node, item, settle

NAME = "firewall"
FIREWALLD, UFW = "firewalld.service", "ufw.service"
OTHERS = ("nftables.service", "netfilter-persistent.service", "iptables.service", "ip6tables.service", "SuSEfirewall2.service")
"""What loads rules of the site's own, which nobody but the site can change."""
STRANGE = "%s loads rules of the site's own, which stay as they are: see that they let in %s, and packets of pods through"
ALL = "what RKE2's inbound rules say"
RUNS = ("active", "reloading", "activating")


def firewall(node: Node, wanted: dict, server: bool, address: str, root: str = "") -> list:
    """`nodes`, `servers` and `api`: ports of every machine, of servers among themselves, and of servers for all. `networks`: where
    machines of the cluster are; without them ports are open to all. `pods`: networks of pods and services. With nothing wanted,
    what others load is told alone."""
    if not wanted:
        return _of_others(node, root)
    needed = openings(wanted, server)
    want = "lets in " + words(needed)
    try:
        seen = services.units(node, [FIREWALLD, UFW, *OTHERS]) if services.has_systemd(root) else {}
        running = _running(node, seen, [*wanted.get("networks", []), address], address, root)
    except CannotChange as reason:
        return [item(NAME, FAILED, want=want, why=str(reason))]
    strangers = [name for name in OTHERS if seen and seen[name]["ActiveState"] in RUNS]
    late = _late(seen, [wall.unit for wall in running], root)
    if late:
        why = "%s does not run now, and comes with the next boot: start it first, or disable it" % late
        return [item(NAME, FAILED, want=want, before="not running", after="not running", why=why)]
    if running:
        row = _settled(node, want, needed, running)
    else:
        row = item(NAME, OK, want=want, after=", ".join(strangers) or "none runs")
    if strangers and "why" not in row:
        row["why"] = STRANGE % (" and ".join(strangers), words(needed))
    return [row]


def _of_others(node: Node, root: str) -> list:
    """What loads rules where no firewall stays: those that the profile stops are not all. Without any there is nothing to say."""
    try:
        seen = services.units(node, list(OTHERS)) if services.has_systemd(root) else {}
    except CannotChange:
        return []  # an item of services says that systemd does not answer
    strangers = [name for name in OTHERS if seen and seen[name]["ActiveState"] in RUNS]
    if not strangers:
        return []
    names = " and ".join(strangers)
    return [item(NAME, OK, want="as the site has it", after=", ".join(strangers), why=STRANGE % (names, ALL))]


def openings(wanted: dict, server: bool) -> list:
    """What this machine must let in."""
    ports = [*wanted.get("nodes", []), *(wanted.get("servers", []) if server else [])]
    rows = [(port, source) for source in wanted.get("networks") or [""] for port in ports]
    rows += [(port, "") for port in wanted.get("api", []) if server]
    return rows + [("", network) for network in wanted.get("pods", [])]


def words(needed: list) -> str:
    """Openings as a person reads them, those of one network together."""
    sources = dict.fromkeys(source for _, source in needed)
    return "; ".join(", ".join(port or "all" for port, one in needed if one == source) + _from(source) for source in sources)


def _from(source: str) -> str:
    return " from " + source if source else ""


def _settled(node: Node, want: str, needed: list, running: list) -> Item:
    def read() -> str:
        closed = [(wall, wall.closed(needed)) for wall in running]
        return "; ".join("%s lacks %s" % (wall.unit, words(rows)) for wall, rows in closed if rows) or want

    def change() -> None:
        for wall in running:
            wall.open(needed)

    row = settle(node, NAME, want, read, change)
    if row["status"] in (CHANGED, DIFFERS):
        before, after = ("%s\n" % text for text in (row["before"], want))
        node.diffs.append({"before_header": NAME, "after_header": NAME, "before": before, "after": after})
    return row


def _running(node: Node, seen: dict, near: list, address: str, root: str) -> list:
    """The firewalls that run and that we know. ufw is no process: it runs where its chains are."""
    found: list = []
    if seen and seen[FIREWALLD]["ActiveState"] in RUNS:
        found.append(Firewalld(node, near, address, root))
    ufw = Ufw(node, root)
    return [*found, ufw] if ufw.runs() else found


def _late(seen: dict, running: list, root: str) -> str:
    """A firewall that does not run, and will from the next boot on, with rules that nobody has looked at."""
    for unit in (FIREWALLD, UFW):
        if seen and unit not in running and seen[unit]["UnitFileState"] == "enabled" and (unit == FIREWALLD or Ufw.is_on(root)):
            return unit
    return ""
