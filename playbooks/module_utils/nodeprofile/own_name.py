"""The machine's name, and the address by which it finds itself: its own, and not one that no other machine can reach.

Installers of Debian and Ubuntu write `127.0.1.1 NAME`, and the first line of a name counts: slurmd, MPI and NCCL's bootstrap would
tell their peers to come to 127.0.1.1.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket

from ansible.module_utils.nodeprofile.item import FAILED, OK, Node, item, read_text, settle

HOSTS = "/etc/hosts"
BEGIN = "# begin of bringup's lines\n"
END = "# end of bringup's lines\n"
PUT_ASIDE = "# bringup: "
LOOPBACKS = ("localhost", "loopback", "ip6-", "ipv6-", "broadcasthost")
"""How names of the loopback itself begin, as distributions write them."""
CLOUD_CONFIGS = ("cloud-config.txt", "vendor2-cloud-config.txt", "vendor-cloud-config.txt")
"""What a machine's user-data and vendor-data say to cloud-init, below /var/lib/cloud/instance: the first that says something wins,
and each wins over /etc/cloud/cloud.cfg.d (ConfigMerger of cloud-init 22.4), where the profile's zz-bringup.cfg is the last."""
CLOUD_INIT_OFF = "/etc/cloud/cloud-init.disabled"
WRITTEN_ANEW = (
    "this machine's user-data has cloud-init write /etc/hosts anew at each boot: take manage_etc_hosts out there, "
    "or `touch %s`" % CLOUD_INIT_OFF
)
_MANAGED = re.compile(r"^manage_etc_hosts\s*:\s*[\"']?(\w+)", re.MULTILINE)
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
    call the machine stands in ours. A machine that is reached by a name has DNS, and needs none; nor does one that is reached by a
    port of the loopback."""
    if not name or not _is_of_a_network(address):
        return []
    path = root + HOSTS
    try:
        line = " ".join([address, *_names(read_text(path), name)])
    except OSError as reason:
        return [item("hosts", FAILED, want="%s %s" % (address, name), why=str(reason))]

    def read() -> str:
        text = read_text(path)
        found = _OURS.search(text)
        return ", and ".join([found.group(1).strip() if found else "absent", *_looped(text, name)])

    def change() -> None:
        text = read_text(path)
        looped, others = set(_looped(text, name)), _others(text)
        kept = [one for row in others for one in (_put_aside(row, others) if row in looped else [row])]
        node.write(path, "".join(row + "\n" for row in kept) + BEGIN + line + "\n" + END, 0o644)

    return [settle(node, "hosts", line, read, change)]


def over_boots(address: str, name: str, root: str = "") -> list:
    """A word where cloud-init undoes our line with each boot: the user-data of the machine wins over the file of the profile, and
    is not ours to change; what it did at the last boot the item of the line shows."""
    if not name or not _is_of_a_network(address) or os.path.exists(root + CLOUD_INIT_OFF):
        return []
    try:
        said = [found.group(1) for text in _cloud_configs(root) if (found := _MANAGED.search(text))]
    except OSError:
        return []  # root alone may read them, and that we are not is an item of its own
    if not said or said[0].lower() not in ("true", "yes", "on", "1", "template", "localhost"):
        return []
    return [item("hosts over a boot", OK, want="kept", why=WRITTEN_ANEW)]


def _cloud_configs(root: str) -> list:
    return [read_text("%s/var/lib/cloud/instance/%s" % (root, one)) for one in CLOUD_CONFIGS]


def _is_of_a_network(address: str) -> bool:
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _others(text: str) -> list:
    return _OURS.sub("", text).splitlines()


def _looped(text: str, name: str) -> list:
    """Lines of others that give a name, or another of that host, an address of the loopback."""
    return [line for line in _others(text) if any(_host(one) == _host(name) for one in _split(line)[1])]


def _host(name: str) -> str:
    """A name without its domain; letter case is none of a host name."""
    return name.partition(".")[0].lower()


def _names(text: str, name: str) -> list:
    """What such lines call the machine, also those that were put aside, with the name as it is written; those with a domain first,
    as the first one is canonical."""
    lines = [line[len(PUT_ASIDE) :] if line.startswith(PUT_ASIDE) else line for line in _others(text)]
    found = [one for line in _looped("\n".join(lines), name) for one in _split(line)[1]]
    every = [name if one.lower() == name.lower() else one for one in [*found, name]]
    return sorted(dict.fromkeys(every), key=lambda one: "." not in one)


def _put_aside(line: str, others: list) -> list:
    """The line as a comment, if it is not there from before, and what is left of it for the loopback's own name."""
    address, _, own = _split(line)
    aside = PUT_ASIDE + line
    return [*([] if aside in others else [aside]), *([" ".join([address, *own])] if own else [])]


def _split(line: str) -> tuple:
    """Of a line whose address is one of the loopback: the address, the names of the machine, and those of the loopback."""
    address, *names = line.partition("#")[0].split() or [""]
    try:
        if not ipaddress.ip_address(address).is_loopback:
            return address, [], []
    except ValueError:
        return address, [], []
    own = [name for name in names if name.startswith(LOOPBACKS)]
    return address, [name for name in names if name not in own], own
