"""Network interfaces that pods have taken from the machine.

The CNI plugin host-device moves a device's interface into the pod's network and back when the pod ends. Meanwhile the machine has
no interface for a device that is still on its bus with its driver. Where RKE2 does not run, no pod has an interface.
"""

from __future__ import annotations

import glob
import os
import re

from ansible.module_utils.nodeprofile import pcie_acs, rke2_presence
from ansible.module_utils.nodeprofile.item import OK, CannotChange, Item, NodeAccess, item, read_text
from ansible.module_utils.nodeprofile.reachability import CLASS

IN_A_POD = "in a pod's network"
ITEM = "interfaces of pods"


class PodInterfaces:
    """Interfaces that pods hold. Pods may have `devices` (vendor:device); `places` are PCI addresses of the profile's `names`."""

    def __init__(self, node: NodeAccess, devices: list, names: list, places: dict, root: str = "") -> None:
        self._node, self._devices, self._names, self._places, self._root = node, devices, names, places, root
        self._slots: "list | None" = None
        self._left: list = []

    def slots(self) -> list:
        """Return the PCI addresses of devices that pods hold."""
        if self._slots is None:
            self._slots = [slot for slot in self._on_bus() if not interfaces_at(slot, self._root + CLASS)] if self._may_be() else []
        return self._slots

    def has(self, name: str) -> bool:
        """Return True if a pod holds this interface. Without a known PCI address, all absent ones must fit into pods' devices."""
        if self._shows(name):
            return False
        if name in self._places:
            return self._places[name] in self.slots()
        if self._names and name not in self._names:
            return False  # a bond, or another network's
        absent = {each for each in (name, *self._names) if each not in self._places and not self._shows(each)}
        return len(absent) <= len(set(self.slots()) - set(self._places.values()))

    def leave_alone(self, name: str, want: str) -> Item:
        """Record a name as left alone because a pod holds its interface, and return its item."""
        self._left.append(name)
        return item(name, OK, want=want, after=IN_A_POD)

    def summary(self) -> list:
        """Return an item that lists everything left alone."""
        return [item(ITEM, OK, why="left as they are: " + ", ".join(self._left))] if self._left else []

    def _may_be(self) -> bool:
        try:
            return bool(self._devices) and rke2_presence.is_running(self._node, self._root)
        except CannotChange:
            return False  # an item of services says that systemd does not answer

    def _on_bus(self) -> list:
        """Return our devices that have a driver; without a driver a device has no interface to give."""
        drivers = sorted(glob.glob(self._root + pcie_acs.DEVICES + "/*/driver"))
        folders = map(os.path.dirname, drivers)
        return [os.path.basename(folder) for folder in folders if device_ids(folder) in self._devices]

    def _shows(self, name: str) -> bool:
        return os.path.exists("%s/%s" % (self._root + CLASS, name))


def device_ids(device: str) -> str:
    """Return vendor:device of a device in sysfs, in hex as `lspci -n` prints them."""
    return ":".join(read_text(device + "/" + part).strip()[2:] for part in ("vendor", "device"))


def interfaces_at(slot: str, shown: str) -> list:
    """Return the names of the interfaces at a PCI address. `shown` is the folder of all interfaces."""
    return sorted(path.split("/")[-2] for path in glob.glob(shown + "/*/device") if _is_at(path, slot))


def _is_at(path: str, slot: str) -> bool:
    """Return True if an interface is of the device at a PCI address or its child (virtio), not for IPoIB children, representors."""
    real, folder = os.path.realpath(path), os.path.dirname(path)
    if os.path.exists(folder + "/parent") or re.match(r"pf\d+vf\d+", _port_name(folder)):
        return False
    return slot in (os.path.basename(real), os.path.basename(os.path.dirname(real)))


def _port_name(folder: str) -> str:
    try:
        return read_text(folder + "/phys_port_name").strip()
    except OSError:  # the driver has no names of ports
        return ""
