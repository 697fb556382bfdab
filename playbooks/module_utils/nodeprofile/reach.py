"""By which interfaces this machine is reached: what carries its default route, its address, and connections that are open now."""

from __future__ import annotations

import glob
import ipaddress
import json
import os
import socket
import struct

from ansible.module_utils.nodeprofile.item import Node, read_text

CLASS = "/sys/class/net"
"""The folder of all interfaces."""
ESTABLISHED, LISTENS = "01", "0A"
"""States in /proc/net/tcp (proc(5))."""


def carriers(node: Node, address: str, root: str = "") -> set:
    """Interfaces with the default route or this address, and those below them: ports of a bond, what a VLAN is on."""
    found = set(default_routes(root))
    found.update(link for link, local in addresses(node) if local == address)
    below = set(found)
    while below:
        below = {_lower(path) for name in below for path in glob.glob("%s/%s/lower_*" % (root + CLASS, name))} - found
        found |= below
    return found - {"lo"}


def addresses(node: Node) -> list:
    """Interface and address, of all that this machine has."""
    every = json.loads(node.run("ip", "-json", "address")[1] or "[]")
    return [(one["ifname"], row.get("local", "")) for one in every for row in one.get("addr_info", [])]


def default_routes(root: str = "") -> list:
    """Interfaces that a default route leads to, by IPv4 or IPv6 (proc(5)); the kernel's own refusals have none, or lo."""
    rows = [line.split() for line in read_text(root + "/proc/net/route").splitlines()[1:]]
    found = [row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000" and row[0] != "*"]
    rows = [line.split() for line in read_text(root + "/proc/net/ipv6_route").splitlines()]
    found += [row[9] for row in rows if len(row) > 9 and row[0] == "0" * 32 and row[1] == "00" and row[9] != "lo"]
    return list(dict.fromkeys(found))


def _lower(path: str) -> str:
    return os.path.basename(path)[len("lower_") :]


def callers(root: str = "") -> set:
    """Addresses of machines that have a connection open to a service of this one, SSH among them."""
    rows = [row for family in ("tcp", "tcp6") for row in _sockets(root + "/proc/net/" + family)]
    served = {port for state, port, _ in rows if state == LISTENS}
    return {peer for state, port, peer in rows if state == ESTABLISHED and port in served}


def _sockets(path: str) -> list:
    """State, own port and the other side's address of each."""
    rows = [line.split() for line in read_text(path).splitlines()[1:]]
    return [(row[3], row[1].rpartition(":")[2], _address(row[2].rpartition(":")[0])) for row in rows if len(row) > 3]


def _address(hexadecimal: str) -> str:
    """An address as the kernel prints it: words of four bytes in the machine's own order."""
    words = [int(hexadecimal[start : start + 8], 16) for start in range(0, len(hexadecimal), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    found = ipaddress.ip_address(socket.inet_ntop(family, packed))
    return str(getattr(found, "ipv4_mapped", None) or found)
