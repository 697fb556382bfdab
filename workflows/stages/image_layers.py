"""Stage image_layers: one task a layer, each on the one below; what is built already is found by its key."""

from __future__ import annotations

from typing import Final

from steps.contract.image import keys
from steps.contract.task import Verb
from workflows.stages.image_site import ImageSite, arguments, judge
from workflows.stages.stage import Change, Stage, Step, task

ID: Final = "image_layers"
GATE: Final = "image_layers/layer"
SECONDS = 3600
"""A layer with a driver that is compiled in it; a base of 140 packages takes half a minute."""


def build(site: ImageSite) -> Stage:
    """The layers in order: a layer is built on what is below it."""
    steps: list[Step] = []
    found, packages = keys.layers(site.recipe), 0
    for layer in site.recipe.layers:
        packages += len(layer.packages)
        named = sorted({name for command in layer.commands for name in command.secrets})
        told = arguments(site, GATE, part="layer", layer=layer.name) | ({"secrets": named} if named else {})
        wanted = {"layer": layer.name, "key": found[layer.name], "packages": packages}
        wanted |= {"budget_mib": layer.budget_mib} if layer.budget_mib else {}
        one = task(ID, f"layer_{layer.name}", Verb.BUILD, deadline=SECONDS, arguments=told, expectations=wanted)
        steps.append(Step(task=one, after=(steps[-1].name,) if steps else ()))
    gates = {step.name: GATE for step in steps}
    return Stage(
        id=ID,
        title="Layers",
        steps=(*steps, judge(ID, gates)),
        gates=(GATE,),
        changes=(Change(what=f"layers {', '.join(site.recipe.names)}", where="the layer cache of the store"),),
        rollback="nothing to undo: layers that no image needs go with `bringup image gc`",
    )
