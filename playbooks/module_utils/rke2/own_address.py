"""The address that a host tells its cluster: the one it is reached by, where it is one of its own, and of IPv4 as clusters are.

RKE2 ends at a `node-ip` that is no IP address, and etcd at one that the host does not have: behind NAT, by a floating address or by
a name SSH dials something else. Without one RKE2 takes the address of the default route (GetHostnameAndIPs of K3s).
"""

from __future__ import annotations

import ipaddress
import json
from typing import Callable

from ansible.module_utils.rke2 import settings

Run = Callable[[list], tuple]
"""Runs a command: exit code, standard output, standard error."""


class Unreadable(Exception):
    """The host does not tell its addresses; the text says what it says instead."""


def of_node(address: str, joined: bool, run: Run, config: str = settings.CONFIG) -> str:
    """What config.yaml is to say: the address where it is the host's own, and empty where a drop-in of the site's names another.
    A node that has joined by an address of config.yaml keeps it, and the drop-in is refused. Raises Unreadable."""
    kept = settings.said(config, "node-ip") if joined else ""
    if not address or (settings.is_dropped_in("node-ip", config + ".d") and not kept):
        return ""
    # beside pods of IPv4 RKE2 ends at a node of IPv6 alone: one that SSH dials so is not told of it, and takes its IPv4 address
    return own(kept if ":" in address else address, run)


def own(address: str, run: Run) -> str:
    """The address as it is written, where it is an IP address that this host has on a network; else empty. Raises Unreadable."""
    try:
        wanted = ipaddress.ip_address(address)
    except ValueError:
        return ""  # a name, and what it means here may be 127.0.1.1
    if wanted.is_loopback:
        return ""
    return address if wanted in _addresses(run) else ""


def _addresses(run: Run) -> set:
    command = ["ip", "-json", "address", "show"]
    code, output, error = run(command)
    try:
        links = json.loads(output or "[]") if code == 0 else None
    except ValueError:
        links = None
    if links is None:
        raise Unreadable("%s ended with %d: %s" % (" ".join(command), code, (error or output).strip()[:200]))
    found = {entry.get("local", "") for link in links for entry in link.get("addr_info", [])}
    return {ipaddress.ip_address(one) for one in found if one}
