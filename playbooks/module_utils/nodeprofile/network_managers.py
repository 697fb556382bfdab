"""Adapters for systemd-networkd and NetworkManager, which configure interfaces at boot: each keeps MTU and routes in its files."""

from __future__ import annotations

import os
import re

from ansible.module_utils.nodeprofile import folder_modes
from ansible.module_utils.nodeprofile.item import CannotChange, NodeAccess, read_text
from ansible.module_utils.nodeprofile.reachability import CLASS

NM_CONFIG = "/etc/NetworkManager/conf.d/90-bringup-fabric.conf"
NETWORKD = "/etc/systemd/network/%s.d/90-bringup.conf"
NETWORKD_ROUTES = "/etc/systemd/network/%s.d/90-bringup-routes.conf"
ROUTE = re.compile(r"^\[Route\]\nDestination=(\S+)\n(?:Gateway=(\S+)\n)?", re.MULTILINE)
OURS = "# Made by bringup.\n"


class Networkd:
    """Adapter for an interface of systemd-networkd: writes drop-ins beside its .network file, which take effect at the next boot.

    Callers set the present MTU and routes separately.
    """

    def __init__(self, node: NodeAccess, network: str) -> None:
        self._node, self._network = node, network
        self._path = NETWORKD % os.path.basename(network)
        self._routes = NETWORKD_ROUTES % os.path.basename(network)

    def has(self, mtu: int) -> bool:
        """Return True if our drop-in has this MTU and systemd-networkd may read it."""
        return read_text(self._path) == self._text(mtu) and not folder_modes.closed_folders(self._path)

    def keep(self, mtu: int) -> None:
        """Write the drop-in that gives the interface this MTU at boot."""
        self._node.write(self._path, self._text(mtu), 0o644)

    def has_route(self, to: str, via: str) -> bool:
        """Return True if our drop-in has the route to network `to` by gateway `via` and systemd-networkd may read it."""
        return (to, via) in ROUTE.findall(read_text(self._routes)) and not folder_modes.closed_folders(self._routes)

    def kept_via(self, to: str) -> "str | None":
        """Return the gateway of our drop-in's route to a network (empty: no gateway), or None if it has no such route."""
        return dict(ROUTE.findall(read_text(self._routes))).get(to)

    def keep_route(self, to: str, via: str) -> None:
        """Write the drop-in with this route, in place of an older one to the same network."""
        others = [pair for pair in ROUTE.findall(read_text(self._routes)) if pair[0] != to]
        pairs = [*others, (to, via)]
        sections = ["[Route]\nDestination=%s\n%s" % (target, "Gateway=%s\n" % way if way else "") for target, way in pairs]
        self._node.write(self._routes, OURS + "".join(sections), 0o644)

    def require_for_none_but(self, ours: list) -> None:
        """Raise CannotChange if the .network file configures interfaces other than `ours` too, which would get our settings."""
        for name in sorted(set(os.listdir(CLASS)) - {"lo", *ours}):
            if _network_of(self._node, name) == self._network:
                raise CannotChange("%s configures %s too: give %s a file of its own" % (self._network, name, ", ".join(ours)))

    @staticmethod
    def _text(mtu: int) -> str:
        return "%s[Link]\nMTUBytes=%d\n" % (OURS, mtu)


class NetworkManager:
    """Adapter for an interface of NetworkManager: an MTU is kept as a default in our configuration file, routes in connections."""

    def __init__(self, node: NodeAccess, name: str, connection: str = "", settings: str = "") -> None:
        own = re.search(r"^((?:802-3-ethernet|infiniband)\.mtu):(\d+)$", settings, re.MULTILINE)
        self._node, self._name, self._connection = node, name, connection
        self._setting, self._own = own.groups() if own else ("", "")
        self._routes = " ".join(re.findall(r"^ipv[46]\.routes:(.*)$", settings, re.MULTILINE)).replace("\\:", ":")

    def has(self, mtu: int) -> bool:
        """Return True if the connection itself has this MTU, or has none and our section of the configuration has it."""
        return self._own == str(mtu) if self._own else self._section(mtu) in read_text(NM_CONFIG)

    def keep(self, mtu: int) -> None:
        """Write our section with this interface's MTU. Raises CannotChange if the connection has an MTU of its own."""
        if self._own:
            step = "nmcli connection modify %s %s %d" % (self._connection, self._setting, mtu)
            raise CannotChange("its connection in NetworkManager has an MTU of its own, %s: `%s`" % (self._own, step))
        old = re.sub(r"\[connection-bringup-%s\]\n(?:[^\[].*\n)*" % re.escape(self._name), "", read_text(NM_CONFIG))
        self._node.reload("networkmanager")
        self._node.write(NM_CONFIG, (old or OURS) + self._section(mtu), 0o644)

    def has_route(self, to: str, via: str) -> bool:
        """Return True if the connection has the route to `to` by `via`; nmcli prints `{ ip = TO, nh = VIA }` or `TO VIA`."""
        entries = [re.findall(r"[0-9a-fA-F.:/]+", entry) for entry in re.split(r"[;},]\s*(?=$|\{|[0-9a-f.:]+/)", self._routes)]
        return any(to in words and (not via or via in words) for words in entries)

    def keep_route(self, to: str, via: str) -> None:
        """Add the route to the connection, which uses it from its next start on. Raises CannotChange if there is no connection."""
        if not self._connection:
            raise CannotChange("NetworkManager has no connection for %s: make one, with this route" % self._name)
        setting = "+ipv%s.routes" % ("6" if ":" in to else "4")
        self._node.must("nmcli", "connection", "modify", self._connection, setting, ("%s %s" % (to, via)).strip())

    def require_for_none_but(self, ours: list) -> None:
        """Do nothing, because NetworkManager's settings never cover other interfaces."""

    def _section(self, mtu: int) -> str:
        lines = (self._name, self._name, mtu, mtu)
        return "[connection-bringup-%s]\nmatch-device=interface-name:%s\nethernet.mtu=%d\ninfiniband.mtu=%d\n" % lines


def manager_of(node: NodeAccess, name: str) -> "Networkd | NetworkManager | None":
    """Return the adapter of the manager that configures an interface at boot; None if it is neither of the two."""
    network = _network_of(node, name)
    if network:
        return Networkd(node, network)
    _, output, _ = node.run("nmcli", "--terse", "--fields=GENERAL.STATE,GENERAL.CON-UUID", "device", "show", name)
    if not re.search(r"GENERAL.STATE:(?!10\b)\d+", output):  # 10: unmanaged (NMDeviceState)
        return None
    connection = "".join(re.findall(r"^GENERAL.CON-UUID:([0-9a-f-]+)$", output, re.MULTILINE))
    settings = node.run("nmcli", "--terse", "connection", "show", connection)[1] if connection else ""
    return NetworkManager(node, name, connection, settings)


def _network_of(node: NodeAccess, name: str) -> str:
    """Return the path of the .network file by which systemd-networkd configures an interface; empty if it does not."""
    _, output, _ = node.run("networkctl", "--no-pager", "--no-legend", "status", name)
    match = re.search(r"Network File: (/\S+\.network)", output)
    return match.group(1) if match else ""
