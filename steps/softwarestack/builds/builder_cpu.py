"""Facts about the CPU of this machine, as Linux lists them."""

from pathlib import Path
from typing import Final

from steps.softwarestack.contract import cpu_targets
from steps.softwarestack.contract.cpu_targets import CpuFacts

CPUINFO: Final = Path("/proc/cpuinfo")
_MOST: Final = 1 << 16
"""Bytes that are read: the first processor has some 2 kB, and a large machine some hundred of them."""


def read() -> CpuFacts:
    """Return architecture and features of this machine's CPU; none if Linux does not say them."""
    try:
        with CPUINFO.open("rb") as file:
            return cpu_targets.read_cpu(file.read(_MOST).decode(errors="replace"))
    except OSError:
        return CpuFacts()
