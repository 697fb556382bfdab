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
    """Network interfaces that pods hold and the profile therefore leaves alone; made once per reading of the profile.

    `devices` (vendor:device) are those that pods may have, `names` the fabric's interfaces, `places` maps names to PCI addresses.
    """

    def __init__(self, node: NodeAccess, devices: list, names: list, places: dict, root: str = "") -> None:
        self._node, self._devices, self._names, self._places, self._root = node, devices, names, places, root
        self._slots: "list | None" = None
        self._left: list = []

    def slots(self) -> list:
        """Return the PCI addresses of devices whose interface a pod holds."""
        if self._slots is None:
            self._slots = [slot for slot in self._on_bus() if not interfaces_at(slot, self._root + CLASS)] if self._may_be() else []
        return self._slots

    def has(self, name: str) -> bool:
        """Return True if a pod holds the named interface.

        If its PCI address is unknown, it counts as held only if pods hold enough devices for all absent interfaces of that kind.
        """
        if self._shows(name):
            return False
        if name in self._places:
            return self._places[name] in self.slots()
        if self._names and name not in self._names:
            return False  # a bond, or another network's
        absent = {each for each in (name, *self._names) if each not in self._places and not self._shows(each)}
        return len(absent) <= len(set(self.slots()) - set(self._places.values()))

    def leave_alone(self, name: str, want: str) -> Item:
        """Record a setting as left alone because a pod holds its interface, and return its result (`ok`)."""
        self._left.append(name)
        return item(name, OK, want=want, after=IN_A_POD)

    def summary(self) -> list:
        """Return one setting result that lists all settings left alone, in a list; an empty list if there are none."""
        return [item(ITEM, OK, why="left as they are: " + ", ".join(self._left))] if self._left else []

    def _may_be(self) -> bool:
        try:
            return bool(self._devices) and rke2_presence.is_running(self._node, self._root)
        except CannotChange:
            return False  # an item of services says that systemd does not answer

    def _on_bus(self) -> list:
        """Return the PCI addresses of the devices that pods may have and that have a driver; without one there is no interface."""
        drivers = sorted(glob.glob(self._root + pcie_acs.DEVICES + "/*/driver"))
        folders = map(os.path.dirname, drivers)
        return [os.path.basename(folder) for folder in folders if device_ids(folder) in self._devices]

    def _shows(self, name: str) -> bool:
        return os.path.exists("%s/%s" % (self._root + CLASS, name))


def device_ids(device: str) -> str:
    """Return `vendor:device` of a device's folder in sysfs, in hex as `lspci -n` prints it."""
    return ":".join(read_text(device + "/" + part).strip()[2:] for part in ("vendor", "device"))


def interfaces_at(slot: str, shown: str) -> list:
    """Return the names of the interfaces at a PCI address; `shown` is the folder with all interfaces, /sys/class/net."""
    return sorted(path.split("/")[-2] for path in glob.glob(shown + "/*/device") if _is_at(path, slot))


def _is_at(path: str, slot: str) -> bool:
    """Return True if an interface belongs to the device at a PCI address or to its child (virtio).

    IPoIB children and representors of virtual functions do not count.
    """
    real, folder = os.path.realpath(path), os.path.dirname(path)
    if os.path.exists(folder + "/parent") or re.match(r"pf\d+vf\d+", _port_name(folder)):
        return False
    return slot in (os.path.basename(real), os.path.basename(os.path.dirname(real)))


def _port_name(folder: str) -> str:
    try:
        return read_text(folder + "/phys_port_name").strip()
    except OSError:  # the driver has no names of ports
        return ""
