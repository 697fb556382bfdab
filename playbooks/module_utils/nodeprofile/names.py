"""DNS: the servers and search domains of the machine, where what writes its resolv.conf reads them."""

from __future__ import annotations

import os

from ansible.module_utils.nodeprofile.item import Node, read_text, settle

RESOLV = "/etc/resolv.conf"
RESOLVE = "/run/systemd/resolve"
RESOLVED = "/etc/systemd/resolved.conf.d/90-bringup.conf"
MANAGER = "/etc/NetworkManager/conf.d/90-bringup-dns.conf"


def dns(node: Node, servers: list, search: list, root: str = "") -> list:
    """The servers that the machine asks, in their order, and its search domains; nothing where none are wanted."""
    if not servers and not search:
        return []
    want = _line(servers or _words("nameserver", root), search or _words("search", root))

    def read() -> str:
        return _line(_words("nameserver", root), _words("search", root))

    return [settle(node, "DNS", want, read, lambda: _change(node, servers, search, root))]


def _line(servers: list, search: list) -> str:
    return "servers %s; search %s" % (" ".join(servers) or "none", " ".join(search) or "none")


def _words(key: str, root: str) -> list:
    """Words after a key in what the machine resolves by; systemd-resolved shows its own servers beside its stub."""
    shown = root + RESOLVE + "/resolv.conf"
    path = shown if _owner(root) == "resolved" and os.path.exists(shown) else root + RESOLV
    rows = [line.split() for line in read_text(path).splitlines()]
    return [word for row in rows if row and row[0] == key for word in row[1:] if word != "."]


def _owner(root: str) -> str:
    """Who writes /etc/resolv.conf: resolved, manager (NetworkManager), or nobody."""
    if os.path.realpath(root + RESOLV).startswith(root + RESOLVE + "/"):
        return "resolved"
    return "manager" if "NetworkManager" in read_text(root + RESOLV)[:200] else "nobody"


def _change(node: Node, servers: list, search: list, root: str) -> None:
    owner = _owner(root)
    if owner == "resolved":
        lines = ["[Resolve]"] + ["DNS=" + " ".join(servers)] * bool(servers) + ["Domains=" + " ".join(search)] * bool(search)
        node.write(root + RESOLVED, _text(lines), 0o644)
        node.must("systemctl", "restart", "systemd-resolved")
    elif owner == "manager":
        lines = ["[global-dns]", *["searches=" + ",".join(search)] * bool(search)]
        lines += ["[global-dns-domain-*]", "servers=" + ",".join(servers)] if servers else []
        node.write(root + MANAGER, _text(lines), 0o644)
        node.must("nmcli", "general", "reload")
    else:
        ours = (*("nameserver",) * bool(servers), *("search",) * bool(search))
        kept = [line for line in read_text(root + RESOLV).splitlines() if line.split()[:1] not in ([key] for key in ours)]
        said = ["search " + " ".join(search)] * bool(search) + ["nameserver " + server for server in servers]
        node.write(root + RESOLV, "\n".join([*kept, *said]) + "\n", 0o644)


def _text(lines: list) -> str:
    return "\n".join(["# Made by bringup.", *lines]) + "\n"
