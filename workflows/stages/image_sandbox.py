"""Stage image_sandbox: the recipe's tests on the root, without booting it."""

from __future__ import annotations

from typing import Final

from steps.contract.task import Verb
from workflows.stages.image_site import ImageSite, arguments, judge
from workflows.stages.stage import Stage, Step, task

ID: Final = "image_sandbox"
GATE: Final = "image_sandbox/tests"
MARGIN_SECONDS = 300
"""Beside the tests' own time, which they spend side by side: mounting the layers, starting the sandboxes."""


def build(site: ImageSite) -> Stage:
    """One task runs them all. The gate's expectation is filled from the recipe where it runs: a site may have many tests."""
    deadline = MARGIN_SECONDS + int(sum(one.seconds for one in site.recipe.tests))
    told = arguments(site, GATE, part="sandbox")
    return Stage(
        id=ID,
        title="Tests without booting",
        steps=(
            Step(task=task(ID, "tests", Verb.BUILD, deadline=deadline, arguments=told, expectations={"key": site.key})),
            judge(ID, {"tests": GATE}),
        ),
        gates=(GATE,),
        changes=(),
        rollback="nothing is changed",
    )
