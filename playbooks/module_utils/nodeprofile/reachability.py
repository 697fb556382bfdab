"""Reader of the interfaces by which this machine is reached: those with its default route, its address, or open connections."""

from __future__ import annotations

import glob
import ipaddress
import json
import os
import socket
import struct

from ansible.module_utils.nodeprofile.item import NodeAccess, read_text

CLASS = "/sys/class/net"
"""The sysfs folder with an entry for each network interface."""
ESTABLISHED, LISTENS = "01", "0A"
"""Socket states in /proc/net/tcp, in hexadecimal (proc(5))."""


def access_links(node: NodeAccess, address: str, root: str = "") -> set:
    """Return the interfaces with a default route or `address`, and all below them, such as a bond's ports or a VLAN's base."""
    links = set(default_routes(root))
    links.update(link for link, local in addresses(node) if local == address)
    below = set(links)
    while below:
        lowers = [path for name in below for path in glob.glob("%s/%s/lower_*" % (root + CLASS, name))]
        below = {os.path.basename(path)[len("lower_") :] for path in lowers} - links
        links |= below
    return links - {"lo"}


def addresses(node: NodeAccess) -> list:
    """Return an (interface, address) pair for each address of this machine."""
    every = json.loads(node.run("ip", "-json", "address")[1] or "[]")
    return [(link["ifname"], row.get("local", "")) for link in every for row in link.get("addr_info", [])]


def default_routes(root: str = "") -> list:
    """Return the interfaces of the IPv4 and IPv6 default routes (proc(5)), without the kernel's reject routes."""
    rows = [line.split() for line in read_text(root + "/proc/net/route").splitlines()[1:]]
    links = [row[0] for row in rows if len(row) > 7 and row[1] == row[7] == "00000000" and row[0] != "*"]
    rows = [line.split() for line in read_text(root + "/proc/net/ipv6_route").splitlines()]
    links += [row[9] for row in rows if len(row) > 9 and row[0] == "0" * 32 and row[1] == "00" and row[9] != "lo"]
    return list(dict.fromkeys(links))


def client_addresses(root: str = "") -> set:
    """Return the addresses of machines with an open connection to a service on this machine, SSH included."""
    rows = [row for family in ("tcp", "tcp6") for row in _sockets(root + "/proc/net/" + family)]
    served = {port for state, port, _ in rows if state == LISTENS}
    return {peer for state, port, peer in rows if state == ESTABLISHED and port in served}


def _sockets(path: str) -> list:
    """Return state, own port and peer address of each socket in a table such as /proc/net/tcp; state and port are hexadecimal."""
    rows = [line.split() for line in read_text(path).splitlines()[1:]]
    return [(row[3], row[1].rpartition(":")[2], _address(row[2].rpartition(":")[0])) for row in rows if len(row) > 3]


def _address(hexadecimal: str) -> str:
    """Return an IP address from the kernel's hexadecimal form: words of four bytes in the machine's byte order."""
    words = [int(hexadecimal[start : start + 8], 16) for start in range(0, len(hexadecimal), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    address = ipaddress.ip_address(socket.inet_ntop(family, packed))
    return str(getattr(address, "ipv4_mapped", None) or address)
