"""Stage image_layers: build the image's layers, each on top of the layer below; a layer that exists under its key is reused."""

from __future__ import annotations

from typing import Final

from steps.nodeimage.contract import build_keys
from workflows.stages.image_site import ImageSite, image_stage, part_step
from workflows.stages.stage import Change, Stage, Step

ID: Final = "image_layers"
GATE: Final = "image_layers/layer"
SECONDS = 3600
"""Time limit in seconds of one layer, enough to compile a driver; a base of 140 packages takes half a minute."""


def build(site: ImageSite) -> Stage:
    """Return stage image_layers: one task for each layer, each after the layer below."""
    steps: list[Step] = []
    keys, packages = build_keys.layers(site.recipe), 0
    for layer in site.recipe.layers:
        packages += len(layer.packages)
        secret_names = sorted({name for command in layer.commands for name in command.secrets})
        further = {"layer": layer.name, **({"secrets": secret_names} if secret_names else {})}
        expectations = {"layer": layer.name, "key": keys[layer.name], "packages": packages}
        expectations |= {"budget_mib": layer.budget_mib} if layer.budget_mib else {}
        name, after = f"layer_{layer.name}", (steps[-1].name,) if steps else ()
        steps.append(part_step(site, ID, name, GATE, "layer", deadline=SECONDS, expectations=expectations, after=after, **further))
    return image_stage(
        ID,
        "Layers",
        GATE,
        *steps,
        changes=(Change(what=f"layers {', '.join(site.recipe.names)}", where="the layer cache of the store"),),
        rollback="nothing to undo: layers that no image needs go with `bringup image gc`",
    )
