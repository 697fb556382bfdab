"""Limits of kernel, processor and firmware that no setting of the profile lifts.

They are read and never changed, and only those that a machine has are reported.
"""

from __future__ import annotations

import glob
import os
import re

from ansible.module_utils.nodeprofile.item import UNAVAILABLE, Item, item, measured, read_text
from ansible.module_utils.nodeprofile.kernel_settings import is_loaded

CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
"""Controllers of control groups without which a kubelet does not start."""
NO_CONTROLLER = "a kubelet does not start without it: take cgroup_disable= off the kernel's command line, and reboot"
MODULES_LOCKED = (
    "the kernel takes no module until the next boot, so no driver of GPUs or NICs can be loaded: take kernel.modules_disabled "
    "out of /etc/sysctl.d, and reboot"
)
LEVEL = ("cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3")
"""Flags of x86-64-v2 beyond the first level (https://gitlab.com/x86-psABIs/x86-64-ABI), which images of UBI 9 are built for."""
OLD_LEVEL = (
    "programs of images that are built for x86-64-v2 (UBI 9, as the operators') end with `CPU does not support x86-64-v2`: give "
    "the virtual machine the processor type `host`"
)
NVIDIA = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")
HOLDERS = ("vfio-pci", "pci-stub", "xen-pciback")
"""Kernel drivers that keep a device for a virtual machine."""
HELD = "no driver of NVIDIA gets it there: take its id out of vfio-pci.ids= and /etc/modprobe.d, renew the initramfs, and reboot"
UNSET, MEMORY = 0x20000000, 0x200
"""Flags of the kernel's IORESOURCE_UNSET and IORESOURCE_MEM."""
BARS = 6
NO_ADDRESS = (
    "the firmware gave its memory no address, so the driver finds no GPU: switch on Above 4G Decoding (and Resizable BAR) in the "
    "firmware's setup, or boot with pci=realloc"
)


def limits(gpu_machine: bool, root: str = "") -> list:
    """Return one failed setting result for each limit that this machine has; those of GPUs only on a machine with GPUs."""
    rows = [*_modules(root), *_controllers(root), *_processor(root)]
    return rows + (_gpus(root) if gpu_machine else [])


def _modules(root: str) -> list:
    # a hardened machine may lock its kernel once all drivers are loaded; one without NVIDIA's can tolerate it by name
    if read_text(root + "/proc/sys/kernel/modules_disabled").strip() != "1" or is_loaded("nvidia", root):
        return []
    return [item("module loading", UNAVAILABLE, want="allowed", before="locked", why=MODULES_LOCKED)]


def _controllers(root: str) -> list:
    # a row that is missing says nothing: newer kernels list only controllers of version 1
    rows = [line.split() for line in read_text(root + "/proc/cgroups").splitlines()]
    off = sorted(row[0] for row in rows if len(row) == 4 and row[0] in CONTROLLERS and row[3] == "0")
    return [measured("cgroup controller %s" % name, False, "enabled", "disabled", NO_CONTROLLER) for name in off]


def _processor(root: str) -> list:
    flags = re.search(r"^flags\s*:\s*(.*)$", read_text(root + "/proc/cpuinfo"), re.MULTILINE)
    missing = [] if flags is None else [flag for flag in LEVEL if flag not in flags.group(1).split()]
    seen = "without %s" % ", ".join(missing)
    return [measured("processor", False, "x86-64-v2", seen, OLD_LEVEL)] if missing else []


def _gpus(root: str) -> list:
    rows: list = []
    for folder in sorted(glob.glob(root + "/sys/bus/pci/devices/*")):
        vendor, kind = (read_text("%s/%s" % (folder, name)).strip() for name in ("vendor", "class"))
        if vendor == NVIDIA and kind[:6] in GPU_CLASSES and not os.path.exists(folder + "/physfn"):
            rows += _gpu(folder)
    return rows


def _gpu(folder: str) -> list[Item]:
    name, driver = "gpu " + os.path.basename(folder), os.path.basename(os.path.realpath(folder + "/driver"))
    rows: list[Item] = []
    if driver in HOLDERS:
        # a site that gives GPUs to virtual machines can tolerate it by name
        rows.append(
            item(
                name,
                UNAVAILABLE,
                want="free for NVIDIA's driver",
                before="held by " + driver,
                why="%s holds it: %s" % (driver, HELD),
            )
        )
    bars = [line.split() for line in read_text(folder + "/resource").splitlines()[:BARS]]
    without = [number for number, bar in enumerate(bars) if len(bar) == 3 and _is_unset(*(int(word, 16) for word in bar))]
    if without:
        seen = "BAR %s without one" % ", ".join(map(str, without))
        rows.append(measured(name, False, "an address for each BAR", seen, NO_ADDRESS))
    return rows


def _is_unset(start: int, end: int, flags: int) -> bool:
    return bool(flags & MEMORY) and (bool(flags & UNSET) or (start == 0 and end > 0))
