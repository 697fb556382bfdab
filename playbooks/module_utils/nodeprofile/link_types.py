"""Link types of the fabric's ports: a port of a VPI adapter is InfiniBand or Ethernet, as its firmware's LINK_TYPE says.

A port of the other type has a good cable and is up, but no subnet manager or switch of the fabric knows it. Nothing is changed:
the setting needs NVIDIA's firmware tools and takes effect with a cold boot.
"""

from __future__ import annotations

import glob
import os

from ansible.module_utils.nodeprofile import pod_interfaces
from ansible.module_utils.nodeprofile.item import FAILED, OK, UNAVAILABLE, Item, item, read_text
from ansible.module_utils.nodeprofile.pcie_acs import DEVICES

NAME = "link type of "
NONE_NAME = "link types"
NETNS = "RDMA namespaces"
NETNS_MODE = "/sys/module/ib_core/parameters/netns_mode"
"""File that says Y if all network namespaces share RDMA devices, the kernel's default, and N if each has its own."""
EXCLUSIVE = (
    "pods see no RDMA device (`No device found`), as nothing moves one into their namespaces: rdma system set netns shared, and "
    "take netns_mode=0 out of /etc/modprobe.d"
)
CODES = {"InfiniBand": 1, "Ethernet": 2}
"""Link layer → value of LINK_TYPE_P1 in an adapter's firmware settings."""


def link_types(wanted: dict, pods: "pod_interfaces.PodInterfaces", root: str = "") -> list:
    """Return one setting result for each RDMA port of the fabric; an empty list if nothing is wanted.

    `wanted` has `layer` (InfiniBand or Ethernet), PCI `devices` (vendor:device), `count`, the number of the fabric's ports, and
    `rails`, the RDMA devices that are ports of the fabric. Without `rails`, NICs of another network may have the same device ids:
    ports of the other type count only if there are fewer than `count` of the right type.
    """
    if not wanted:
        return []
    return [*_ports(wanted, pods, root), *_namespaces(root)]


def _namespaces(root: str) -> list:
    """Return a setting result if RDMA devices are not shared by network namespaces; a site with rdma-cni tolerates it by name."""
    if read_text(root + NETNS_MODE).strip() != "N":
        return []
    return [item(NETNS, UNAVAILABLE, want="shared", before="exclusive", why=EXCLUSIVE)]


def _ports(wanted: dict, pods: "pod_interfaces.PodInterfaces", root: str) -> list:
    layer, rails = wanted["layer"], list(wanted.get("rails") or [])
    folders = [path for path in sorted(glob.glob(root + DEVICES + "/*")) if pod_interfaces.device_ids(path) in wanted["devices"]]
    ports = {_port_of(path): read_text(path + "/link_layer").strip() for path in _port_folders(folders)}
    chosen = {port: seen for port, seen in ports.items() if not rails or port[0] in rails}
    held = len(pods.slots())
    right = {port: seen for port, seen in chosen.items() if seen == layer}
    if not rails and len(right) + held >= int(wanted.get("count") or 0):
        chosen = right
    rows = [_port(device, number, seen, layer) for (device, number), seen in sorted(chosen.items())]
    missing = sorted({*rails} - {device for device, _ in ports})
    if not missing and rows:
        return rows
    want = "RDMA devices of %s" % ", ".join(rails or wanted["devices"])
    if held and held >= (len(missing) or len(folders)):
        return [*rows, pods.leave_alone(NONE_NAME, want)]
    before = ", ".join(sorted(os.path.basename(folder) for folder in folders)) or "no such device"
    why = "no RDMA device %s: is the driver of the NICs loaded?" % (", ".join(missing) if missing else "belongs to them")
    return [*rows, item(NONE_NAME, FAILED, want=want, before=before, after=before, why=why)]


def _port_folders(folders: list) -> list:
    return [port for folder in folders for port in sorted(glob.glob(folder + "/infiniband/*/ports/*"))]


def _port_of(path: str) -> tuple:
    """Return RDMA device and port number of a folder `…/infiniband/DEVICE/ports/NUMBER`."""
    words = path.split("/")
    return words[-3], words[-1]


def _port(device: str, number: str, seen: str, layer: str) -> Item:
    name = NAME + device if number == "1" else "%s%s port %s" % (NAME, device, number)
    if seen == layer:
        return item(name, OK, want=layer, after=seen)
    why = "the firmware's LINK_TYPE_P%s is not %s (%d)" % (number, {"InfiniBand": "IB"}.get(layer, "ETH"), CODES[layer])
    return item(name, FAILED, want=layer, before=seen or "nothing", after=seen or "nothing", why=why)
