"""Stage image_sandbox: the recipe's tests run on the image's root file system, without booting it."""

from __future__ import annotations

from typing import Final

from steps.contract.task import Verb
from workflows.stages.image_site import ImageSite, arguments, judge
from workflows.stages.stage import Stage, Step, task

ID: Final = "image_sandbox"
GATE: Final = "image_sandbox/tests"
MARGIN_SECONDS = 300
"""Seconds beside the tests' own time, to mount the layers and start the sandboxes."""


def build(site: ImageSite) -> Stage:
    """Return the stage: one task that runs all tests.

    The task reads the gate's expectation from the recipe where it runs: many tests would not fit into a task file.
    """
    deadline = MARGIN_SECONDS + int(sum(test.seconds for test in site.recipe.tests))
    task_arguments = arguments(site, GATE, part="sandbox")
    return Stage(
        id=ID,
        title="Tests without booting",
        steps=(
            Step(task=task(ID, "tests", Verb.BUILD, deadline=deadline, arguments=task_arguments, expectations={"key": site.key})),
            judge(ID, {"tests": GATE}),
        ),
        gates=(GATE,),
        changes=(),
        rollback="nothing is changed",
    )
