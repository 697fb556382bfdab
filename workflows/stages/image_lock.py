"""Stage image_lock: fetch every package of the recipe's lock into the package archive and verify it, before anything is built."""

from __future__ import annotations

from typing import Any, Final

from steps.stages.image_lock.contract import ID, TASK
from workflows.stages.image_site import ImageSite, image_stage, part_step
from workflows.stages.stage import Change, Stage

GATE: Final = "image_lock/archive"
SECONDS = 1800
"""Time limit in seconds for a thousand packages from a slow mirror; packages already in the archive take milliseconds each."""


def build(site: ImageSite) -> Stage:
    """Return stage image_lock: one task that fills the package archive."""
    count = sum(len(layer.packages) for layer in site.recipe.layers)
    expectations: dict[str, Any] = {"recipe": site.recipe.digest, "packages": count}
    expectations |= {"relock": site.relock} if site.relock else {}
    return image_stage(
        ID,
        "Locked packages",
        GATE,
        part_step(site, ID, TASK, GATE, "lock", deadline=SECONDS, expectations=expectations),
        downloads=(TASK,),
        changes=(Change(what=f"keep {count} packages by digest", where="the archive of the store"),),
        rollback="nothing to undo: packages that no image needs go with `bringup image gc RECIPE --packages`",
    )
