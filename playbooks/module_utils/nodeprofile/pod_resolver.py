"""Name servers that pods will be given: those of the machine, if pods can reach them. Nothing is changed.

RKE2 hands the first of two files to the kubelet in which every name server is a global unicast address. If neither is, it writes a
file of its own with `nameserver 8.8.8.8`, which in most machine rooms answers nobody (k3s-io/k3s, pkg/agent/config/config.go).
"""

from __future__ import annotations

import ipaddress

from ansible.module_utils.nodeprofile.item import FAILED, OK, Item, item, read_text

NAME = "DNS of pods"
WANT = "name servers that pods can reach"
PUBLIC = "8.8.8.8"


def dns_of_pods(files: list, root: str = "") -> list:
    """Return, in a list, the setting result for the name servers of pods; empty if there are no `files` (paths) to look at.

    `files` are the resolv.conf files in the order in which RKE2 tries them. A machine without any name server passes with a remark:
    names are not resolved there, so pods lose nothing.
    """
    return [_result(files, root)] if files else []


def _result(files: list, root: str) -> Item:
    present = {path: name_servers(read_text(root + path)) for path in files}
    for servers in present.values():
        if servers and all(map(is_reachable, servers)):
            return item(NAME, OK, want=WANT, after=WANT)
    rows = ["%s has %s" % (path, ", ".join(servers)) for path, servers in present.items() if servers]
    if not rows:
        return item(NAME, OK, want=WANT, after=WANT, why="no file of the machine names a server, so pods get %s" % PUBLIC)
    bad = [server for servers in present.values() for server in servers if not is_reachable(server)]
    why = "%s: no pod reaches %s, and RKE2 gives pods %s instead" % ("; ".join(rows), ", ".join(dict.fromkeys(bad)), PUBLIC)
    return item(NAME, FAILED, want=WANT, before=", ".join(dict.fromkeys(bad)), after=", ".join(dict.fromkeys(bad)), why=why)


def name_servers(text: str) -> list:
    """Return the addresses of the lines `nameserver` of a resolv.conf."""
    rows = [line.split() for line in text.splitlines()]
    return [row[1] for row in rows if row[:1] == ["nameserver"] and len(row) > 1]


def is_reachable(server: str) -> bool:
    """Return True if a name server's address is global unicast: not loopback, link-local, multicast or unspecified."""
    try:
        address = ipaddress.ip_address(server)
    except ValueError:
        return False  # with a zone, as in fe80::1%eth0, it is link-local
    return not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)
