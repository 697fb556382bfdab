"""The machine's name, and the address by which it finds itself: its own, and not one that no other machine can reach.

Installers of Debian and Ubuntu write `127.0.1.1 NAME`, and the first line of a name counts: slurmd, MPI and NCCL's bootstrap would
tell their peers to come to 127.0.1.1.
"""

from __future__ import annotations

import ipaddress
import re
import socket

from ansible.module_utils.nodeprofile.item import Node, read_text, settle

HOSTS = "/etc/hosts"
BEGIN = "# begin of bringup's lines\n"
END = "# end of bringup's lines\n"
PUT_ASIDE = "# bringup: "
_OURS = re.compile(re.escape(BEGIN) + "(.*?)" + re.escape(END), re.DOTALL)


def hostname(node: Node, want: str) -> list:
    """The name of the machine, now and after a reboot."""
    if not want:
        return []

    def read() -> str:
        now, kept = socket.gethostname(), read_text("/etc/hostname").strip()
        return now if now == kept else "%s, %s in /etc/hostname" % (now, kept)

    def change() -> None:
        node.write("/etc/hostname", want + "\n", 0o644)
        socket.sethostname(want)

    return [settle(node, "hostname", want, read, change)]


def hosts(node: Node, address: str, name: str, root: str = "") -> list:
    """Our line in /etc/hosts. Of the others only those are put aside that give the name an address of the loopback; what else they
    call the machine stands in ours. A machine that is reached by a name has DNS, and needs none."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return []
    path = root + HOSTS

    def read() -> str:
        text = read_text(path)
        found = _OURS.search(text)
        return ", and ".join([found.group(1).strip() if found else "absent", *_looped(text, name)])

    def change() -> None:
        text = read_text(path)
        kept = [one for line in _others(text) for one in (_put_aside(line) if line in _looped(text, name) else [line])]
        node.write(path, "".join(row + "\n" for row in kept) + BEGIN + line + "\n" + END, 0o644)

    line = " ".join([address, *_names(read_text(path), name)])
    return [settle(node, "hosts", line, read, change)]


def _others(text: str) -> list:
    return _OURS.sub("", text).splitlines()


def _looped(text: str, name: str) -> list:
    """Lines of others that give a name an address of the loopback."""
    return [line for line in _others(text) if name in _split(line)[1]]


def _names(text: str, name: str) -> list:
    """What such lines call the machine, also those that were put aside; without any, its name."""
    lines = [line[len(PUT_ASIDE) :] if line.startswith(PUT_ASIDE) else line for line in _others(text)]
    called = [_split(line)[1] for line in lines]
    return list(dict.fromkeys([*(one for names in called if name in names for one in names), name]))


def _put_aside(line: str) -> list:
    """The line as a comment, and what is left of it for the loopback's own name."""
    address, _, own = _split(line)
    return [PUT_ASIDE + line, *([" ".join([address, *own])] if own else [])]


def _split(line: str) -> tuple:
    """Of a line whose address is one of the loopback: the address, the names of the machine, and those of the loopback."""
    address, *names = line.partition("#")[0].split() or [""]
    try:
        if not ipaddress.ip_address(address).is_loopback:
            return address, [], []
    except ValueError:
        return address, [], []
    own = [name for name in names if name.startswith(("localhost", "ip6-"))]
    return address, [name for name in names if name not in own], own
