"""Stage image_lock: every package that the recipe locks lies in the archive, byte for byte, before anything is built."""

from __future__ import annotations

from typing import Any, Final

from steps.contract.stages.image_lock import ID, TASK
from steps.contract.task import Verb
from workflows.stages.image_site import ImageSite, arguments, judge
from workflows.stages.stage import Change, Stage, Step, task

GATE: Final = "image_lock/archive"
SECONDS = 1800
"""A thousand packages from a slow mirror; those that are there already cost milliseconds."""


def build(site: ImageSite) -> Stage:
    """One task fills the archive."""
    count = sum(len(layer.packages) for layer in site.recipe.layers)
    told = arguments(site, GATE, part="lock")
    wanted: dict[str, Any] = {"recipe": site.recipe.digest, "packages": count}
    wanted |= {"relock": site.relock} if site.relock else {}
    return Stage(
        id=ID,
        title="Locked packages",
        steps=(
            Step(task=task(ID, TASK, Verb.BUILD, deadline=SECONDS, arguments=told, expectations=wanted)),
            judge(ID, {TASK: GATE}),
        ),
        gates=(GATE,),
        changes=(Change(what=f"keep {count} packages by digest", where="the archive of the store"),),
        rollback="nothing to undo: packages that no image needs go with `bringup image gc RECIPE --packages`",
    )
