"""Stage image_boot: test machines boot the image by PXE with each firmware, and report their state."""

from __future__ import annotations

from typing import Final

from steps.contract.task import Verb
from steps.nodeimage.contract.boot_tests import Firmware
from workflows.stages.image_site import ImageSite, arguments, judge
from workflows.stages.stage import Stage, Step, task

ID: Final = "image_boot"
GATE: Final = "image_boot/boots"
MARGIN_SECONDS = 300
"""Seconds beside the boot's own limit, because machines of the other firmware use the same cores."""


def build(site: ImageSite) -> Stage:
    """Return the stage: one task a firmware, side by side."""
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
    boot_arguments = {
        "firmware": firmware.value,
        "machines": site.machines,
        "memory_mib": site.memory_mib,
        "seconds": site.boot_seconds,
    }
    expectations = {"key": site.key, "firmware": firmware.value, "machines": site.machines, "seconds": float(site.boot_seconds)}
    task_arguments = arguments(site, GATE, part="boot", **boot_arguments)
    deadline = site.boot_seconds + MARGIN_SECONDS
    return Step(
        task=task(ID, f"boot_{firmware.value}", Verb.BUILD, deadline=deadline, arguments=task_arguments, expectations=expectations)
    )
