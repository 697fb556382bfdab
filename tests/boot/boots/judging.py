"""Boots the image and asks the gate."""

from pathlib import Path

import quick_image

from steps.contract.verdict import Verdict
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.boot_tests import BootFault, Firmware
from steps.nodeimage.contract.image_tests import ExpectedTest, Where
from steps.nodeimage.netboot import machine_boots
from steps.stages.image_boot import gate as image_boot
from steps.stages.image_boot.contract import Booted, BootsExpectation

SECONDS = 600.0
"""A boot takes one minute on an idle machine; on one that does five other things, five."""
MEMORY_MIB = 512


def judged(
    images: Path,
    firmware: Firmware = Firmware.BIOS,
    machines: int = 1,
    fault: BootFault | None = None,
    memory: int = MEMORY_MIB,
) -> tuple[Booted, Verdict]:
    """Boot an image from a store on test machines; return the observation and the gate's verdict."""
    recipe = quick_image.recipe()
    seen = machine_boots.boot(images, recipe, firmware, machines, memory, SECONDS, print, fault)
    tests = tuple(ExpectedTest(name=one.name) for one in quick_image.TESTS if one.where is not Where.SANDBOX)
    want = BootsExpectation(key=build_keys.image(recipe), firmware=firmware, machines=machines, tests=tests, seconds=SECONDS)
    return seen, image_boot.boots(seen, want)
