"""Stage image_lock: every package that the recipe locks is fetched into the archive and verified, before anything is built."""

from __future__ import annotations

from typing import Any, Final

from steps.contract.task import Verb
from steps.stages.image_lock.contract import ID, TASK
from workflows.stages.image_site import ImageSite, arguments, judge
from workflows.stages.stage import Change, Stage, Step, task

GATE: Final = "image_lock/archive"
SECONDS = 1800
"""Time for a thousand packages from a slow mirror; packages in the archive already cost milliseconds each."""


def build(site: ImageSite) -> Stage:
    """Return the stage: one task that fills the archive."""
    count = sum(len(layer.packages) for layer in site.recipe.layers)
    task_arguments = arguments(site, GATE, part="lock")
    expectations: dict[str, Any] = {"recipe": site.recipe.digest, "packages": count}
    expectations |= {"relock": site.relock} if site.relock else {}
    return Stage(
        id=ID,
        title="Locked packages",
        steps=(
            Step(task=task(ID, TASK, Verb.BUILD, deadline=SECONDS, arguments=task_arguments, expectations=expectations)),
            judge(ID, {TASK: GATE}),
        ),
        gates=(GATE,),
        downloads=(TASK,),
        changes=(Change(what=f"keep {count} packages by digest", where="the archive of the store"),),
        rollback="nothing to undo: packages that no image needs go with `bringup image gc RECIPE --packages`",
    )
