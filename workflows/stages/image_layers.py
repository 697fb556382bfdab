"""Stage image_layers: one task a layer, each on the layer below; a layer that exists already is found by its key."""

from __future__ import annotations

from typing import Final

from steps.contract.task import Verb
from steps.nodeimage.contract import build_keys
from workflows.stages.image_site import ImageSite, arguments, judge
from workflows.stages.stage import Change, Stage, Step, task

ID: Final = "image_layers"
GATE: Final = "image_layers/layer"
SECONDS = 3600
"""Time for a layer that compiles a driver; a base of 140 packages takes half a minute."""


def build(site: ImageSite) -> Stage:
    """Return the stage: the layers in order, each built on those below it."""
    steps: list[Step] = []
    keys, packages = build_keys.layers(site.recipe), 0
    for layer in site.recipe.layers:
        packages += len(layer.packages)
        secret_names = sorted({name for command in layer.commands for name in command.secrets})
        task_arguments = arguments(site, GATE, part="layer", layer=layer.name) | ({"secrets": secret_names} if secret_names else {})
        expectations = {"layer": layer.name, "key": keys[layer.name], "packages": packages}
        expectations |= {"budget_mib": layer.budget_mib} if layer.budget_mib else {}
        layer_task = task(
            ID, f"layer_{layer.name}", Verb.BUILD, deadline=SECONDS, arguments=task_arguments, expectations=expectations
        )
        steps.append(Step(task=layer_task, after=(steps[-1].name,) if steps else ()))
    gates = {step.name: GATE for step in steps}
    return Stage(
        id=ID,
        title="Layers",
        steps=(*steps, judge(ID, gates)),
        gates=(GATE,),
        changes=(Change(what=f"layers {', '.join(site.recipe.names)}", where="the layer cache of the store"),),
        rollback="nothing to undo: layers that no image needs go with `bringup image gc`",
    )
