"""Interfaces that pods have: a device that the platform gives to a pod as a whole takes its interface along.

The CNI plugin host-device moves the interface into the pod's network, and back when the pod ends. Meanwhile this machine has no
interface of the device, which is on the bus with its driver all the same. Where no RKE2 runs, no pod has any.
"""

from __future__ import annotations

import glob
import os
import re

from ansible.module_utils.nodeprofile import pci, set_up
from ansible.module_utils.nodeprofile.item import OK, CannotChange, Item, Node, item, read_text
from ansible.module_utils.nodeprofile.reach import CLASS

IN_A_POD = "in a pod's network"
ITEM = "interfaces of pods"


class Given:
    """What pods have of `devices` (vendor:device), which the platform gives them; none: nothing. `names` are interfaces of the
    profile, `places` the PCI addresses of some."""

    def __init__(self, node: Node, devices: list, names: list, places: dict, root: str = "") -> None:
        self._node, self._devices, self._names, self._places, self._root = node, devices, names, places, root
        self._slots: "list | None" = None
        self._left: list = []

    def slots(self) -> list:
        """PCI addresses of devices that pods have."""
        if self._slots is None:
            self._slots = [slot for slot in self._on_bus() if not at(slot, self._root + CLASS)] if self._may_be() else []
        return self._slots

    def has(self, name: str) -> bool:
        """Whether a pod has this interface. Where nothing says its place, all that are absent must have one among the devices."""
        if self._shows(name):
            return False
        if name in self._places:
            return self._places[name] in self.slots()
        if self._names and name not in self._names:
            return False  # a bond, or another network's
        absent = {one for one in (name, *self._names) if one not in self._places and not self._shows(one)}
        return len(absent) <= len(set(self.slots()) - set(self._places.values()))

    def left(self, name: str, want: str) -> Item:
        """An item that is left as it is, because a pod has its interface."""
        self._left.append(name)
        return item(name, OK, want=want, after=IN_A_POD)

    def told(self) -> list:
        """An item that names those which were left."""
        return [item(ITEM, OK, why="left as they are: " + ", ".join(self._left))] if self._left else []

    def _may_be(self) -> bool:
        try:
            return bool(self._devices) and set_up.runs(self._node, self._root)
        except CannotChange:
            return False  # an item of services says that systemd does not answer

    def _on_bus(self) -> list:
        """Those of our devices that have a driver: one whose driver gave up has no interface to give."""
        found = sorted(glob.glob(self._root + pci.DEVICES + "/*"))
        return [os.path.basename(path) for path in found if pair(path) in self._devices and os.path.exists(path + "/driver")]

    def _shows(self, name: str) -> bool:
        return os.path.exists("%s/%s" % (self._root + CLASS, name))


def pair(device: str) -> str:
    """vendor:device of a device in sysfs, in hex as lspci -n has them."""
    return ":".join(read_text(device + "/" + part).strip()[2:] for part in ("vendor", "device"))


def at(slot: str, shown: str) -> list:
    """Interfaces at a PCI address, by the names that they have; `shown` is the folder of all interfaces."""
    return sorted(path.split("/")[-2] for path in glob.glob(shown + "/*/device") if _is_at(path, slot))


def _is_at(path: str, slot: str) -> bool:
    """Whether an interface's device is that of an address, or is on one: a virtio interface is below its PCI device. Children of an
    IPoIB interface, and those that stand for virtual functions, are none of their own."""
    real, folder = os.path.realpath(path), os.path.dirname(path)
    if os.path.exists(folder + "/parent") or re.match(r"pf\d+vf\d+", _port(folder)):
        return False
    return slot in (os.path.basename(real), os.path.basename(os.path.dirname(real)))


def _port(folder: str) -> str:
    try:
        return read_text(folder + "/phys_port_name").strip()
    except OSError:  # the driver has no names of ports
        return ""
