"""DNS servers and search domains of the machine, set in the configuration of the program that writes resolv.conf.

systemd-resolved keeps servers per link (from DHCP or the link's configuration) beside global ones. A name that no link claims goes
to the global servers alone only if these serve all names (`Domains=~.`, resolved.conf(5)). Settings of other writers are not
changed (`resolv_writers`).
"""

from __future__ import annotations

import os
import re

from ansible.module_utils.nodeprofile.item import FAILED, CannotChange, NodeAccess, item, read_text, settle
from ansible.module_utils.nodeprofile.resolv_writers import RESOLV, advice

RESOLVE = "/run/systemd/resolve"
RESOLVED = "/etc/systemd/resolved.conf.d/90-bringup.conf"
NM_DNS_CONFIG = "/etc/NetworkManager/conf.d/90-bringup-dns.conf"
NM_RUNTIME = "/run/NetworkManager"
BUS = "org.freedesktop.NetworkManager"
RC_MANAGER = (BUS, "/org/freedesktop/NetworkManager/DnsManager", BUS + ".DnsManager", "RcManager")
"""The D-Bus property that says how NetworkManager writes resolv.conf."""
LEFT_ALONE, BY_LINK = ('s "unmanaged"', 's "immutable"'), 's "symlink"'
"""Values with which NetworkManager never writes resolv.conf, and one that leaves a foreign link alone (NetworkManager.conf(5))."""
ALL_NAMES = "~."


def dns(node: NodeAccess, servers: list, search: list, root: str = "") -> list:
    """Set the DNS servers, in order, and search domains; return the setting result in a list, empty if none are wanted."""
    if not servers and not search:
        return []
    try:
        present = _current(node, root)
    except CannotChange as reason:
        return [item("DNS", FAILED, want=_line(servers, search, False), why=str(reason))]
    owner = _writer(node, root)
    everywhere = owner == "resolved" if servers else present[2]
    if owner == "manager":
        # its own settings take the place of all that links brought, and without servers it passes them over
        servers, search = servers or present[0], search or present[1]
    want = _line(servers or present[0], search or present[1], everywhere)
    wanted = (servers, search, everywhere)
    why = _why_site_must_change(node, servers, search, root) if owner == "nobody" and _line(*present) != want else ""
    if why:
        return [item("DNS", FAILED, want=want, before=_line(*present), why=why)]
    return [settle(node, "DNS", want, lambda: _line(*_current(node, root)), lambda: _change(node, owner, *wanted, root))]


def _why_site_must_change(node: NodeAccess, servers: list, search: list, root: str) -> str:
    try:
        return advice(node, servers, search, root)
    except OSError as reason:
        return str(reason)


def _line(servers: list, search: list, everywhere: bool) -> str:
    way = " for all names" if everywhere else ""
    return "servers %s%s; search %s" % (" ".join(servers) or "none", way, " ".join(search) or "none")


def _current(node: NodeAccess, root: str) -> tuple:
    """Return present servers, present search domains, and True if systemd-resolved asks its global servers for all names."""
    if not _is_below(RESOLVE, root):
        rows = [line.split() for line in read_text(root + RESOLV).splitlines()]
        servers, search, domain = (
            [word for row in rows if row[:1] == [key] for word in row[1:]] for key in ("nameserver", "search", "domain")
        )
        # `domain` means a search domain too, and some write it alone where it is the only one (resolv.conf(5); dhcpcd)
        return servers, [word for word in search or domain if word != "."], False
    domains = _global_words(node.must("resolvectl", "domain"))
    return _global_words(node.must("resolvectl", "dns")), [word for word in domains if word[0] != "~"], ALL_NAMES in domains


def _global_words(output: str) -> list:
    """Return the words after `Global:` in resolvectl's output, including continuation lines."""
    match = re.search(r"^Global:(.*(?:\n[ \t].*)*)", output, re.MULTILINE)
    return match.group(1).split() if match else []


def _is_below(folder: str, root: str) -> bool:
    """Return True if /etc/resolv.conf is a link to a file in this folder of the program that writes it."""
    return os.path.realpath(root + RESOLV).startswith(root + folder + "/")


def _writer(node: NodeAccess, root: str) -> str:
    """Return the writer of /etc/resolv.conf that we can configure: `resolved`, `manager` (NetworkManager) or `nobody`."""
    if _is_below(RESOLVE, root):
        return "resolved"
    return "manager" if "NetworkManager" in read_text(root + RESOLV)[:200] or _is_network_manager_writer(node, root) else "nobody"


def _is_network_manager_writer(node: NodeAccess, root: str) -> bool:
    """Return True if NetworkManager runs and writes resolv.conf, so that its next reload would overwrite other changes."""
    if not os.path.isdir(root + NM_RUNTIME):
        return False
    code, mode, _ = node.run("busctl", "--auto-start=no", "get-property", *RC_MANAGER)
    elsewhere = os.path.islink(root + RESOLV) and not _is_below(NM_RUNTIME, root)
    return code == 0 and mode.strip() not in LEFT_ALONE and not (elsewhere and mode.strip() == BY_LINK)


def _change(node: NodeAccess, owner: str, servers: list, search: list, everywhere: bool, root: str) -> None:
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
        node.write(root + NM_DNS_CONFIG, _text(lines), 0o644)
        node.must("nmcli", "general", "reload")
    else:
        ours = (*("nameserver",) * bool(servers), *("search",) * bool(search))
        kept = [line for line in read_text(root + RESOLV).splitlines() if line.split()[:1] not in ([key] for key in ours)]
        added = ["search " + " ".join(search)] * bool(search) + ["nameserver " + server for server in servers]
        node.write(root + RESOLV, "\n".join([*kept, *added]) + "\n", 0o644)


def _text(lines: list) -> str:
    return "\n".join(["# Made by bringup.", *lines]) + "\n"
