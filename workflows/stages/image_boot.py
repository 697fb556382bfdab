"""Stage image_boot: test machines boot the image over the network (PXE) with each firmware, and report their state."""

from __future__ import annotations

from typing import Final

from steps.nodeimage.contract.boot_tests import Firmware
from workflows.stages.image_site import ImageSite, image_stage, part_step
from workflows.stages.stage import Stage, Step

ID: Final = "image_boot"
GATE: Final = "image_boot/boots"
MARGIN_SECONDS = 300
"""Seconds added to the boot's own time limit, because machines with the other firmware use the same cores."""


def build(site: ImageSite) -> Stage:
    """Return stage image_boot: one task for each firmware, all at the same time."""
    return image_stage(ID, "PXE boots", GATE, *(_boot(site, firmware) for firmware in site.firmware))


def _boot(site: ImageSite, firmware: Firmware) -> Step:
    return part_step(
        site,
        ID,
        f"boot_{firmware.value}",
        GATE,
        "boot",
        deadline=site.boot_seconds + MARGIN_SECONDS,
        expectations={"key": site.key, "firmware": firmware.value, "machines": site.machines, "seconds": float(site.boot_seconds)},
        firmware=firmware.value,
        machines=site.machines,
        memory_mib=site.memory_mib,
        seconds=site.boot_seconds,
    )
