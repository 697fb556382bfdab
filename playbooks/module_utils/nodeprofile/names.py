"""DNS: the servers and search domains of the machine, where what writes its resolv.conf reads them.

systemd-resolved keeps the servers of each link (by DHCP, or of its configuration) beside its own; a name that no link claims goes
to the own ones alone where these are for all names (`Domains=~.`, resolved.conf(5)). What others write is not changed
(`resolv_writers`).
"""

from __future__ import annotations

import os

from ansible.module_utils.nodeprofile.item import FAILED, CannotChange, Node, item, read_text, settle
from ansible.module_utils.nodeprofile.resolv_writers import RESOLV, elsewhere

RESOLVE = "/run/systemd/resolve"
RESOLVED = "/etc/systemd/resolved.conf.d/90-bringup.conf"
MANAGER = "/etc/NetworkManager/conf.d/90-bringup-dns.conf"
RUNS = "/run/NetworkManager"
BUS = "org.freedesktop.NetworkManager"
KEEPER = (BUS, "/org/freedesktop/NetworkManager/DnsManager", BUS + ".DnsManager", "RcManager")
"""The property that says how NetworkManager keeps resolv.conf."""
LEFT_ALONE, BY_LINK = ('s "unmanaged"', 's "immutable"'), 's "symlink"'
"""What it answers where it writes none, or none that is a link to another file than its own (NetworkManager.conf(5))."""
ALL_NAMES = "~."


def dns(node: Node, servers: list, search: list, root: str = "") -> list:
    """The servers that the machine asks, in their order, and its search domains; nothing where none are wanted."""
    if not servers and not search:
        return []
    try:
        now = _seen(node, root)
    except CannotChange as reason:
        return [item("DNS", FAILED, want=_line(servers, search, False), why=str(reason))]
    owner = _owner(node, root)
    everywhere = owner == "resolved" if servers else now[2]
    if owner == "manager":
        # its own settings take the place of all that links brought, and without servers it passes them over
        servers, search = servers or now[0], search or now[1]
    want = _line(servers or now[0], search or now[1], everywhere)
    said = (servers, search, everywhere)
    why = _elsewhere(node, servers, search, root) if owner == "nobody" and _line(*now) != want else ""
    if why:
        return [item("DNS", FAILED, want=want, before=_line(*now), why=why)]
    return [settle(node, "DNS", want, lambda: _line(*_seen(node, root)), lambda: _change(node, owner, *said, root))]


def _elsewhere(node: Node, servers: list, search: list, root: str) -> str:
    try:
        return elsewhere(node, servers, search, root)
    except OSError as reason:
        return str(reason)


def _line(servers: list, search: list, everywhere: bool) -> str:
    way = " for all names" if everywhere else ""
    return "servers %s%s; search %s" % (" ".join(servers) or "none", way, " ".join(search) or "none")


def _seen(node: Node, root: str) -> tuple:
    """Servers, search domains, and whether systemd-resolved is to ask its own servers for all names."""
    if not _is_below(RESOLVE, root):
        rows = [line.split() for line in read_text(root + RESOLV).splitlines()]
        servers, search, domain = (
            [word for row in rows if row[:1] == [key] for word in row[1:]] for key in ("nameserver", "search", "domain")
        )
        # `domain` means a search domain too, and some write it alone where it is the only one (resolv.conf(5); dhcpcd)
        return servers, [word for word in search or domain if word != "."], False
    domains = _own(node.must("resolvectl", "domain"))
    return _own(node.must("resolvectl", "dns")), [word for word in domains if word[0] != "~"], ALL_NAMES in domains


def _own(said: str) -> list:
    """What `resolvectl` prints after `Global:`; it goes on in the next lines where these begin with blanks."""
    words, ours = [], False
    for line in said.splitlines():
        if not line[:1].isspace():
            ours = line.startswith("Global:")
            line = line.partition(":")[2]
        words += line.split() if ours else []
    return words


def _is_below(folder: str, root: str) -> bool:
    """Whether resolv.conf is a link into a folder: that of whoever writes it."""
    return os.path.realpath(root + RESOLV).startswith(root + folder + "/")


def _owner(node: Node, root: str) -> str:
    """Who writes /etc/resolv.conf by settings that we change: resolved, manager (NetworkManager, also where it has had no reason
    yet), or nobody."""
    if _is_below(RESOLVE, root):
        return "resolved"
    return "manager" if "NetworkManager" in read_text(root + RESOLV)[:200] or _will_write(node, root) else "nobody"


def _will_write(node: Node, root: str) -> bool:
    """Whether NetworkManager runs and says that resolv.conf is its own: the next reload would undo what another writes there."""
    if not os.path.isdir(root + RUNS):
        return False
    code, said, _ = node.run("busctl", "--auto-start=no", "get-property", *KEEPER)
    elsewhere = os.path.islink(root + RESOLV) and not _is_below(RUNS, root)
    return code == 0 and said.strip() not in LEFT_ALONE and not (elsewhere and said.strip() == BY_LINK)


def _change(node: Node, owner: str, servers: list, search: list, everywhere: bool, root: str) -> None:
    if owner == "resolved":
        # an empty value takes back what files before ours say
        domains = [*search, *[ALL_NAMES] * everywhere]
        lines = ["[Resolve]", *["DNS=", "DNS=" + " ".join(servers)] * bool(servers)]
        lines += [*["Domains="] * bool(search), "Domains=" + " ".join(domains)]
        node.write(root + RESOLVED, _text(lines), 0o644)
        node.must("systemctl", "restart", "systemd-resolved")
    elif owner == "manager":
        lines = ["[global-dns]", *["searches=" + ",".join(search)] * bool(search)]
        lines += ["[global-dns-domain-*]", "servers=" + ",".join(servers)] if servers else []
        node.write(root + MANAGER, _text(lines), 0o644)
        node.must("nmcli", "general", "reload")
    else:
        ours = (*("nameserver",) * bool(servers), *("search",) * bool(search))
        kept = [line for line in read_text(root + RESOLV).splitlines() if line.split()[:1] not in ([key] for key in ours)]
        said = ["search " + " ".join(search)] * bool(search) + ["nameserver " + server for server in servers]
        node.write(root + RESOLV, "\n".join([*kept, *said]) + "\n", 0o644)


def _text(lines: list) -> str:
    return "\n".join(["# Made by bringup.", *lines]) + "\n"
