"""Parses kernel logs (dmesg, journal, /dev/kmsg) for faults of GPUs and NVSwitches, lost GPUs, and crashes of programs.

Xid numbers: https://docs.nvidia.com/deploy/xid-errors/. NVIDIA's driver prints `NVRM: Xid (PCI:0000:3b:00): 79, …`, and for an
NVSwitch `nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, …` (Fabric Manager user guide, NVSwitch SXid errors).
"""

import re

from msgspec import Struct

MOST_EVENTS = 100_000
PROGRAM_XIDS = frozenset({13, 31, 43, 45, 66, 68, 69, 137})
"""Xid numbers that NVIDIA lists as faults of the program first."""
FOLLOWING_XIDS = frozenset({45, 154})
"""Xid numbers that only tell what was done about an earlier one."""
_XID = re.compile(r"(?<!S)Xid \(PCI:(?P<pci>[0-9A-Fa-f:.]{5,16})\): (?P<number>\d{1,4}),? ?(?P<text>[^\n]{0,400})")
_FATAL_SXID = re.compile(r"SXid \(PCI:(?P<pci>[0-9A-Fa-f:.]{5,16})\): (?P<number>\d{1,5}), Fatal,? ?(?P<text>[^\n]{0,400})")
_JOURNAL = re.compile(r"(?P<host>\b[\w.-]{1,253}) kernel: ")
MOST_PREFIX = 400
"""Most characters before an event that are looked at for the name of its machine."""
_OFF_BUS = re.compile(
    r"NVRM:[^\n]*?GPU (?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9])?)[^\n]*(?:\n[^\n]*NVRM:[^\n]*){0,3}?"
    r"fallen off the bus"
)
_SEGFAULT = re.compile(r"(?P<program>[\w.:/-]{1,64})\[\d+\]: segfault at [^\n]*? in (?P<library>[\w.+-]{1,128})\[")


class XidEvent(Struct, frozen=True, kw_only=True):
    """An Xid event of one GPU. `host` is the machine that a journal names; empty in a log that names none."""

    pci: str
    number: int
    text: str
    host: str = ""

    @property
    def is_hardware(self) -> bool:
        """Return True unless NVIDIA lists the number as a fault of the program, or it only follows another one."""
        return self.number not in PROGRAM_XIDS | FOLLOWING_XIDS


class SwitchEvent(Struct, frozen=True, kw_only=True):
    """A fatal event (SXid) of one NVSwitch. The others, which the switch recovers from, are not kept."""

    pci: str
    number: int
    text: str


class Segfault(Struct, frozen=True, kw_only=True):
    """A crash of a program in a library."""

    program: str
    library: str


class KernelLog(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Faults of GPUs that a kernel log shows: its Xid events in order, GPUs that fell off the bus without one, and crashes.

    `switches` are the fatal events of NVSwitches in order.
    """

    xids: tuple[XidEvent, ...] = ()
    switches: tuple[SwitchEvent, ...] = ()
    off_bus: tuple[str, ...] = ()
    segfaults: tuple[Segfault, ...] = ()


def _host(text: str, at: int) -> str:
    """Return the machine that a journal names before an event at this place; empty if the line names none."""
    start = max(text.rfind("\n", 0, at) + 1, at - MOST_PREFIX)
    match = _JOURNAL.search(text, start, at)
    return match["host"] if match else ""


def read(text: str) -> KernelLog:
    """Return the events in a kernel log."""
    xids = [
        XidEvent(pci=match["pci"], number=int(match["number"]), text=match["text"].strip(), host=_host(text, match.start()))
        for match in list(_XID.finditer(text))[:MOST_EVENTS]
    ]
    crashes = [
        Segfault(program=match["program"], library=match["library"]) for match in list(_SEGFAULT.finditer(text))[:MOST_EVENTS]
    ]
    return KernelLog(
        xids=tuple(xids),
        switches=tuple(
            SwitchEvent(pci=match["pci"], number=int(match["number"]), text=match["text"].strip())
            for match in list(_FATAL_SXID.finditer(text))[:MOST_EVENTS]
        ),
        off_bus=tuple(dict.fromkeys(match["pci"] for match in _OFF_BUS.finditer(text))),
        segfaults=tuple(crashes),
    )
