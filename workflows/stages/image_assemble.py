"""Stage image_assemble: pack the image's layers into squashfs, kernel, initrd, manifest and OCI archive, and read these back."""

from __future__ import annotations

from typing import Any, Final

from workflows.stages.image_site import ImageSite, image_stage, part_step
from workflows.stages.stage import Change, Stage

ID: Final = "image_assemble"
GATE: Final = "image_assemble/outputs"
SECONDS = 1200
"""Time limit in seconds to pack the image: 10 GB take a minute or two of one core."""


def build(site: ImageSite) -> Stage:
    """Return stage image_assemble: one task that packs the image."""
    expectations: dict[str, Any] = {"key": site.key}
    expectations |= {"budget_mib": site.recipe.budget_mib} if site.recipe.budget_mib else {}
    return image_stage(
        ID,
        "Image files",
        GATE,
        part_step(site, ID, "outputs", GATE, "assemble", deadline=SECONDS, expectations=expectations),
        changes=(Change(what=f"pack {site.recipe.name}", where="the store"),),
        rollback="nothing to undo: images that nothing refers to go with `bringup image gc`",
    )
