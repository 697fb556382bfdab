"""What verb publish does before anything is built: it asks the tree whether this very image is published already.

With the connection, the account and the image of the task that publishes, and without its key that signs.
"""

import msgspec
from msgspec import Struct

from steps.clients.published import standing
from steps.contract.exit import ExitCode
from steps.contract.image.published import Place
from steps.contract.stages.image_standing import CHANGED, CURRENT, OUTPUT
from steps.verbs import gating, image_parts, image_trees
from steps.verbs.context import Context

_SIGNED = "signed"
"""Stands for the name of the key, which only the task that publishes gets."""


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`recipe` is the digest of the resolved recipe, `image` its name, `key` that of the packed image, `place` where it goes,
    `groups` the digest of the file of its groups, `firmware` what must have booted it; `signed`: the published one must be."""

    recipe: str
    gate: str
    image: str
    key: str
    place: Place
    groups: str
    firmware: tuple[str, ...]
    signed: bool = False


def run(context: Context) -> ExitCode:
    """Ask, judge, store; the output says whether anything is left to do. Raises a StepError where the tree cannot be asked: it
    could not be published to either."""
    wanted = context.arguments(Arguments)
    place = image_parts.placed(context, wanted.place, wanted.groups)
    place = msgspec.structs.replace(place, key=_SIGNED) if wanted.signed else place
    recipe = image_parts.recipe(context, wanted.recipe)
    packages = {one.name: one.version for layer in recipe.layers for one in layer.packages}
    known = image_trees.known(context, place)
    seen = standing.asked(place, context.environment.secrets, wanted.image, wanted.key, wanted.firmware, packages, known)
    if seen.version:
        image_trees.keep(context, place, wanted.image, seen.version)
    gate = gating.find(wanted.gate)
    verdict = gate.decide(seen, gate.expect(context.task.expectations, ()))
    context.say(verdict.reason)
    context.record(verdict, observation=msgspec.to_builtins(seen))
    context.output(OUTPUT, CURRENT if verdict.is_pass and seen.is_current else CHANGED)
    return ExitCode.OK
