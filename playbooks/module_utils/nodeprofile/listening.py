"""Ports that RKE2 is going to need: on a machine that has none yet, nobody else may listen there."""

from __future__ import annotations

import glob
import os
from typing import Iterator

from ansible.module_utils.nodeprofile import set_up
from ansible.module_utils.nodeprofile.item import Node, measured, read_text

LISTEN = "0A"
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def of_role(want: dict) -> list:
    """Those of every machine and of this one's role: an agent has no etcd of RKE2, and may well have one of the site's."""
    return want["ports"] + want["server_ports" if want["server"] else "agent_ports"]


def ports(node: Node, wanted: list, root: str = "") -> list:
    """One item for all ports, which names who listens; none where that is RKE2, which the advice would destroy."""
    numbers = {int(port) for port in wanted}
    taken = sorted({(port, inode) for port, inode in _listeners(root) if port in numbers})
    if not wanted or (taken and set_up.by_anyone(node, root)):
        return []
    seen = ", ".join("%d by %s" % (port, _owner(inode)) for port, inode in taken)
    want = "nobody listens on %s" % ", ".join(map(str, sorted(numbers)))
    return [
        measured("ports", not taken, want, seen or "free", "RKE2 needs these ports here: stop what holds them, or give it others")
    ]


def _listeners(root: str) -> Iterator[tuple]:
    """Port and socket of everything that listens (proc(5): local address is HEX:PORT, the tenth field the inode)."""
    for table in TABLES:
        for row in (line.split() for line in read_text(root + table).splitlines()[1:]):
            if len(row) > 9 and row[3] == LISTEN:
                yield int(row[1].rpartition(":")[2], 16), row[9]


def _owner(inode: str) -> str:
    """Name of the process that holds a socket; a number where it ended meanwhile."""
    held = (path for path in glob.glob("/proc/[0-9]*/fd/*") if _target(path) == "socket:[%s]" % inode)
    return next((read_text("/proc/%s/comm" % path.split("/")[2]).strip() for path in held), "") or "socket " + inode


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""  # the process ended while we looked
