"""The address that a host gives its cluster as `node-ip`: the address that SSH dials, if it is the host's own and IPv4.

RKE2 ends with a `node-ip` that is no IP address, and etcd with one that the host does not have, as behind NAT or with a floating
address. Without the setting RKE2 takes the address of the default route (GetHostnameAndIPs of K3s).
"""

from __future__ import annotations

import ipaddress
import json
from typing import Callable

from ansible.module_utils.rke2 import rke2_settings

Run = Callable[[list], tuple]
"""A function that runs a command and returns exit code, standard output and standard error."""


class AddressesUnreadable(Exception):
    """Error: the host's addresses cannot be listed; the text has the command's message."""


def node_ip(address: str, joined: bool, run: Run, config: str = rke2_settings.CONFIG) -> str:
    """Return the value of `node-ip` for config.yaml; empty if `address` is not the host's own IPv4 or a site's drop-in sets one.

    A node that has joined with an address in config.yaml keeps the key, and the drop-in is refused elsewhere. For an IPv6 `address`
    the joined node's present value is kept. Raises AddressesUnreadable.
    """
    kept = rke2_settings.file_value(config, "node-ip") if joined else ""
    if not address or (rke2_settings.is_in_drop_in("node-ip", config + ".d") and not kept):
        return ""
    # beside pods of IPv4 RKE2 ends at a node of IPv6 alone: one that SSH dials so is not told of it, and takes its IPv4 address
    return own_address(kept if ":" in address else address, run)


def own_address(address: str, run: Run) -> str:
    """Return `address` unchanged if it is a non-loopback IP address of this host, else empty. Raises AddressesUnreadable."""
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
        raise AddressesUnreadable("%s ended with %d: %s" % (" ".join(command), code, (error or output).strip()[:200]))
    addresses = {entry.get("local", "") for link in links for entry in link.get("addr_info", [])}
    return {ipaddress.ip_address(address) for address in addresses if address}
