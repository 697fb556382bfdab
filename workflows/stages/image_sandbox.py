"""Stage image_sandbox: run the recipe's tests in the image's root file system, without booting it."""

from __future__ import annotations

from typing import Final

from workflows.stages.image_site import ImageSite, image_stage, part_step
from workflows.stages.stage import Stage

ID: Final = "image_sandbox"
GATE: Final = "image_sandbox/tests"
MARGIN_SECONDS = 300
"""Seconds added to the tests' own time limits, to mount the layers and start the sandboxes."""


def build(site: ImageSite) -> Stage:
    """Return stage image_sandbox: one task that runs all tests of the recipe.

    The task reads the gate's expectation from the recipe file, because many tests would not fit into a task file.
    """
    deadline = MARGIN_SECONDS + int(sum(test.seconds for test in site.recipe.tests))
    step = part_step(site, ID, "tests", GATE, "sandbox", deadline=deadline, expectations={"key": site.key})
    return image_stage(ID, "Tests without booting", GATE, step)
