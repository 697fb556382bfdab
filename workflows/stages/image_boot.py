"""Stage image_boot: test machines boot the image by PXE, with each firmware, and report what they are."""

from __future__ import annotations

from typing import Final

from steps.contract.image.booting import Firmware
from steps.contract.task import Verb
from workflows.stages.image_site import ImageSite, arguments, judge
from workflows.stages.stage import Stage, Step, task

ID: Final = "image_boot"
GATE: Final = "image_boot/boots"
MARGIN_SECONDS = 300
"""Beside the boot's own limit: machines of the other firmware use the same cores."""


def build(site: ImageSite) -> Stage:
    """One task a firmware, side by side."""
    steps = tuple(_boot(site, firmware) for firmware in site.firmware)
    return Stage(
        id=ID,
        title="PXE boots",
        steps=(*steps, judge(ID, {step.name: GATE for step in steps})),
        gates=(GATE,),
        changes=(),
        rollback="nothing is changed",
    )


def _boot(site: ImageSite, firmware: Firmware) -> Step:
    more = {"firmware": firmware.value, "machines": site.machines, "memory_mib": site.memory_mib, "seconds": site.boot_seconds}
    wanted = {"key": site.key, "firmware": firmware.value, "machines": site.machines, "seconds": float(site.boot_seconds)}
    told = arguments(site, GATE, part="boot", **more)
    deadline = site.boot_seconds + MARGIN_SECONDS
    return Step(task=task(ID, f"boot_{firmware.value}", Verb.BUILD, deadline=deadline, arguments=told, expectations=wanted))
