"""Check that no other program listens on the ports that RKE2 needs, on a machine where RKE2 is not set up yet."""

from __future__ import annotations

import glob
import os
from typing import Iterator

from ansible.module_utils.nodeprofile import rke2_presence
from ansible.module_utils.nodeprofile.item import NodeAccess, measured, read_text

LISTEN = "0A"
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def ports_of_role(want: dict) -> list:
    """Return the ports that RKE2 needs on this machine: those of every machine and those of its role, server or agent.

    An agent may have an etcd of the site's, so etcd's ports are not among its own.
    """
    return want["ports"] + want["server_ports" if want["server"] else "agent_ports"]


def ports(node: NodeAccess, wanted: list, root: str = "") -> list:
    """Return one setting result for all ports, with the programs that listen on them, in a list.

    The list is empty if RKE2 is set up here, because then the listener is RKE2, which must not be stopped.
    """
    numbers = {int(port) for port in wanted}
    taken = sorted({(port, inode) for port, inode in _listeners(root) if port in numbers})
    if not wanted or (taken and rke2_presence.is_set_up(node, root)):
        return []
    listeners = ", ".join("%d by %s" % (port, _owner(inode)) for port, inode in taken)
    want = "nobody listens on %s" % ", ".join(map(str, sorted(numbers)))
    why = "RKE2 needs these ports here: stop what holds them, or give it others"
    return [measured("ports", not taken, want, listeners or "free", why)]


def _listeners(root: str) -> Iterator[tuple]:
    """Yield (port, socket inode) of each TCP listener (proc(5): the local address is HEX:PORT, field 10 the inode)."""
    for table in TABLES:
        for row in (line.split() for line in read_text(root + table).splitlines()[1:]):
            if len(row) > 9 and row[3] == LISTEN:
                yield int(row[1].rpartition(":")[2], 16), row[9]


def _owner(inode: str) -> str:
    """Return the name of the process that holds a socket; `socket NUMBER` if the process has ended."""
    paths = (path for path in glob.glob("/proc/[0-9]*/fd/*") if _target(path) == "socket:[%s]" % inode)
    return next((read_text("/proc/%s/comm" % path.split("/")[2]).strip() for path in paths), "") or "socket " + inode


def _target(link: str) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""  # the process ended while we looked
