"""Types of stage image_boot: boots of the image's test machines, and the expectation of its gate."""

from typing import Final

from msgspec import Struct

from steps.nodeimage.contract.boot_tests import Firmware, MachineBoot
from steps.nodeimage.contract.image_tests import ExpectedTest

PRODUCT: Final = "nodeimage"
"""Folder of `steps` with the tasks and the report of this stage."""


class Booted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate image_boot/boots: the test machines that were started with one firmware.

    `root_digest` and `root_size` (bytes) are those of the served squashfs by its manifest, `kernel` is its kernel's release.
    `problem` is the reason for which no machine could be started.
    """

    key: str
    root_digest: str = ""
    root_size: int = 0
    kernel: str = ""
    boots: tuple[MachineBoot, ...] = ()
    problem: str = ""


class BootsExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expectation of the gate image_boot/boots for each of `machines` test machines.

    Each must boot this image and its kernel release, with an overlay as root, a clock within `clock_seconds`, `free_mib` of room in
    its root, no failed unit, and all tests passed.
    """

    key: str
    firmware: Firmware
    machines: int
    tests: tuple[ExpectedTest, ...] = ()
    seconds: float = 300.0
    clock_seconds: float = 60.0
    free_mib: int = 64
