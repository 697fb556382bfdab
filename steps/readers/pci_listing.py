"""Parses `lspci` with `-nn`, `-vv` or `-vvv` for GPUs, NVSwitches and adapters, and the PCIe links of all devices (pciutils)."""

import re

from msgspec import Struct

MOST_DEVICES = 20_000
_DEVICE = re.compile(
    r"^(?:Card: )?(?P<slot>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]) "
    r"(?P<kind>[A-Z0-9][^\n:]*?)(?: \[(?P<class>[0-9a-f]{4})\])?:"
    r" (?P<name>[^\n]*?)(?: \[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\])?(?P<revision> \(rev (?P<number>[0-9a-f]{2})\))?"
    r"(?: \(prog-if [^\n]*\))?[ \t]*$",
    re.MULTILINE,
)
_CAPABILITY = re.compile(r"LnkCap:[^\n]*?Speed (?P<speed>[\d.]+GT/s)[^\n]*?Width (?P<width>x\d{1,2})")
_STATUS = re.compile(r"LnkSta:[^\n]*?Speed (?P<speed>[\d.]+GT/s)[^\n]*?Width (?P<width>x\d{1,2})")
_NVSWITCH_IDS = frozenset({"1ac2", "1af1", "22a3"})
"""Device ids of NVIDIA's NVSwitch generations 1 to 3 (https://pci-ids.ucw.cz/read/PC/10de)."""


class PciDevice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A PCI device. Speeds (`32GT/s`) and widths (`x16`) are empty without `-vv`.

    `is_whole`: the line is not cut. `is_silent`: the device answers no more, so that all of its configuration reads as ones.
    """

    slot: str
    kind: str
    name: str
    vendor: str = ""
    device: str = ""
    capable_speed: str = ""
    capable_width: str = ""
    speed: str = ""
    width: str = ""
    is_whole: bool = True
    has_revision: bool = False
    is_silent: bool = False

    @property
    def is_nvidia(self) -> bool:
        """Return True for a device of NVIDIA that is no adapter of Mellanox."""
        return self.vendor == "10de" or (not self.vendor and self.name.startswith("NVIDIA "))

    @property
    def is_gpu(self) -> bool:
        """Return True for a GPU."""
        return self.is_nvidia and self.kind in ("3D controller", "VGA compatible controller", "Display controller")

    @property
    def is_nvswitch(self) -> bool:
        """Return True for an NVSwitch, which is a bridge of NVIDIA."""
        return self.is_nvidia and self.kind == "Bridge" and (not self.device or self.device in _NVSWITCH_IDS)

    @property
    def is_narrow(self) -> bool:
        """Return True if the link runs with fewer lanes than both of its ends have. Speed also drops to save power."""
        return bool(self.width and self.capable_width) and int(self.width[1:]) < int(self.capable_width[1:])


def read(text: str) -> tuple[PciDevice, ...]:
    """Return the devices in their order."""
    lines = list(_DEVICE.finditer(text))[:MOST_DEVICES]
    ends = [*(match.start() for match in lines), len(text)][1:]
    return tuple(_device(match, text[match.end() : end]) for match, end in zip(lines, ends, strict=True))


def _device(match: re.Match[str], block: str) -> PciDevice:
    capability, status = _CAPABILITY.search(block), _STATUS.search(block)
    return PciDevice(
        slot=match["slot"],
        kind=match["kind"],
        name=match["name"],
        vendor=match["vendor"] or "",
        device=match["device"] or "",
        capable_speed=capability["speed"] if capability else "",
        capable_width=capability["width"] if capability else "",
        speed=status["speed"] if status else "",
        width=status["width"] if status else "",
        # with -nn a line ends in the ids, which the revision may follow; without it most lines end in the revision
        is_whole=bool(match["device"] or match["revision"]),
        has_revision=bool(match["revision"]),
        is_silent=match["number"] == "ff" or "!!! Unknown header type 7f" in block,
    )
