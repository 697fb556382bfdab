"""Stage image_assemble: the layers as squashfs, kernel, initrd, manifest and OCI archive, read back after they were written."""

from __future__ import annotations

from typing import Any, Final

from steps.contract.task import Verb
from workflows.stages.image_site import ImageSite, arguments, judge
from workflows.stages.stage import Change, Stage, Step, task

ID: Final = "image_assemble"
GATE: Final = "image_assemble/outputs"
SECONDS = 1200
"""Packing 10 GB takes a minute or two a core."""


def build(site: ImageSite) -> Stage:
    """One task packs the image."""
    wanted: dict[str, Any] = {"key": site.key}
    wanted |= {"budget_mib": site.recipe.budget_mib} if site.recipe.budget_mib else {}
    told = arguments(site, GATE, part="assemble")
    return Stage(
        id=ID,
        title="Image files",
        steps=(
            Step(task=task(ID, "outputs", Verb.BUILD, deadline=SECONDS, arguments=told, expectations=wanted)),
            judge(ID, {"outputs": GATE}),
        ),
        gates=(GATE,),
        changes=(Change(what=f"pack {site.recipe.name}", where="the store"),),
        rollback="nothing to undo: images that nothing refers to go with `bringup image gc`",
    )
