"""Boots the image and asks the gate."""

from pathlib import Path

import quick_image

from steps.clients.netboot import boots
from steps.contract.image import keys
from steps.contract.image.booting import BootFault, Firmware
from steps.contract.image.testing import Where
from steps.contract.stages.image_boot import Booted, Wanted
from steps.contract.stages.image_sandbox import Case
from steps.contract.verdict import Verdict
from steps.gates import image_boot

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
    """What was seen of a boot from a store, and the gate's verdict."""
    recipe = quick_image.recipe()
    seen = boots.boot(images, recipe, firmware, machines, memory, SECONDS, print, fault)
    tests = tuple(Case(name=one.name) for one in quick_image.TESTS if one.where is not Where.SANDBOX)
    want = Wanted(key=keys.image(recipe), firmware=firmware, machines=machines, tests=tests, seconds=SECONDS)
    return seen, image_boot.boots(seen, want)
