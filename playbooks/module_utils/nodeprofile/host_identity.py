"""The machine's host name and its line in /etc/hosts, which must give the name an address that other machines can reach.

Installers of Debian and Ubuntu write `127.0.1.1 NAME`, and the first line with a name wins. slurmd, MPI and NCCL's bootstrap would
then announce 127.0.1.1 to their peers.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket

from ansible.module_utils.nodeprofile.item import FAILED, OK, NodeAccess, item, read_text, settle

HOSTS = "/etc/hosts"
BEGIN = "# begin of bringup's lines\n"
END = "# end of bringup's lines\n"
PUT_ASIDE = "# bringup: "
LOOPBACKS = ("localhost", "loopback", "ip6-", "ipv6-", "broadcasthost")
"""Prefixes of the loopback address's own names, as distributions write them."""
CLOUD_CONFIGS = ("cloud-config.txt", "vendor2-cloud-config.txt", "vendor-cloud-config.txt")
"""Files with a machine's user-data and vendor-data below /var/lib/cloud/instance, strongest first. All of them override
/etc/cloud/cloud.cfg.d (ConfigMerger of cloud-init 22.4), where the profile's zz-bringup.cfg comes last.
"""
CLOUD_INIT_OFF = "/etc/cloud/cloud-init.disabled"
WRITTEN_ANEW = (
    "this machine's user-data has cloud-init write /etc/hosts anew at each boot: take manage_etc_hosts out there, "
    "or `touch %s`" % CLOUD_INIT_OFF
)
_MANAGE_ETC_HOSTS = re.compile(r"^manage_etc_hosts\s*:\s*[\"']?(\w+)", re.MULTILINE)
_OURS = re.compile(re.escape(BEGIN) + "(.*?)" + re.escape(END), re.DOTALL)


def hostname(node: NodeAccess, want: str) -> list:
    """Set the host name, now and for later boots, and return its setting result in a list; an empty list without a wanted name."""
    if not want:
        return []

    def read() -> str:
        current, kept = socket.gethostname(), read_text("/etc/hostname").strip()
        return current if current == kept else "%s, %s in /etc/hostname" % (current, kept)

    def change() -> None:
        node.write("/etc/hostname", want + "\n", 0o644)
        socket.sethostname(want)

    return [settle(node, "hostname", want, read, change)]


def hosts(node: NodeAccess, address: str, name: str, root: str = "") -> list:
    """Write our line in /etc/hosts and return its setting result in a list; empty if `address` is no IP address or a loopback.

    Lines that give the name a loopback address are commented out, and their other names move into our line. All other lines stay.
    """
    if not name or not _is_of_a_network(address):
        return []
    path = root + HOSTS
    try:
        line = " ".join([address, *_names(read_text(path), name)])
    except OSError as reason:
        return [item("hosts", FAILED, want="%s %s" % (address, name), why=str(reason))]

    def read() -> str:
        text = read_text(path)
        match = _OURS.search(text)
        return ", and ".join([match.group(1).strip() if match else "absent", *_loopback_lines(text, name)])

    def change() -> None:
        text = read_text(path)
        looped, others = set(_loopback_lines(text, name)), _foreign_lines(text)
        kept = [entry for row in others for entry in (_commented_out(row, others) if row in looped else [row])]
        node.write(path, "".join(row + "\n" for row in kept) + BEGIN + line + "\n" + END, 0o644)

    return [settle(node, "hosts", line, read, change)]


def cloud_init_hosts(address: str, name: str, root: str = "") -> list:
    """Return a setting result, in a list, if user-data makes cloud-init overwrite /etc/hosts at each boot; else an empty list.

    That user-data is the site's and overrides the cloud-init file of the profile.
    """
    if not name or not _is_of_a_network(address) or os.path.exists(root + CLOUD_INIT_OFF):
        return []
    try:
        texts = [read_text("%s/var/lib/cloud/instance/%s" % (root, name)) for name in CLOUD_CONFIGS]
        values = [match.group(1) for text in texts if (match := _MANAGE_ETC_HOSTS.search(text))]
    except OSError:
        return []  # root alone may read them, and that we are not is an item of its own
    if not values or values[0].lower() not in ("true", "yes", "on", "1", "template", "localhost"):
        return []
    return [item("hosts over a boot", OK, want="kept", why=WRITTEN_ANEW)]


def _is_of_a_network(address: str) -> bool:
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _foreign_lines(text: str) -> list:
    return _OURS.sub("", text).splitlines()


def _loopback_lines(text: str, name: str) -> list:
    """Return the lines of /etc/hosts, except ours, that give this host's name a loopback address."""
    return [line for line in _foreign_lines(text) if any(_host(alias) == _host(name) for alias in _split(line)[1])]


def _host(name: str) -> str:
    """Return a host name in lower case without its domain, for comparison: host names ignore case."""
    return name.partition(".")[0].lower()


def _names(text: str, name: str) -> list:
    """Return all names of this host in loopback lines, also in those that we commented out, and `name` itself.

    Names with a domain come first, because the first name of a line is the canonical one.
    """
    lines = [line[len(PUT_ASIDE) :] if line.startswith(PUT_ASIDE) else line for line in _foreign_lines(text)]
    names = [alias for line in _loopback_lines("\n".join(lines), name) for alias in _split(line)[1]]
    every = [name if alias.lower() == name.lower() else alias for alias in [*names, name]]
    return sorted(dict.fromkeys(every), key=lambda alias: "." not in alias)


def _commented_out(line: str, others: list) -> list:
    """Return the lines that replace a loopback line: a comment with it, unless `others` has that, and the loopback's own names."""
    address, _, own = _split(line)
    aside = PUT_ASIDE + line
    return [*([] if aside in others else [aside]), *([" ".join([address, *own])] if own else [])]


def _split(line: str) -> tuple:
    """Return the address of a line of /etc/hosts, the names of the machine, and the loopback's own names such as localhost.

    Both lists are empty if the address is no loopback address.
    """
    address, *names = line.partition("#")[0].split() or [""]
    try:
        if not ipaddress.ip_address(address).is_loopback:
            return address, [], []
    except ValueError:
        return address, [], []
    own = [name for name in names if name.startswith(LOOPBACKS)]
    return address, [name for name in names if name not in own], own
