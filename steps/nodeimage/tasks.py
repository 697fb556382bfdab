"""Entry points of a node image's tasks: verbs `build` and `publish`, called through `steps.runtime.product_tasks`."""

import msgspec

from steps.contract.exit import ExitCode
from steps.nodeimage import image_parts, publication_tasks
from steps.runtime import gating
from steps.runtime.context import Context
from steps.stages.image_status.contract import ID as STATUS_STAGE


def build(context: Context) -> ExitCode:
    """Make one part of a node image, judge it, store the record, and return OK, whatever the verdict: the stage's judge decides.

    Parts lie in the store by keys of the recipe, so a part that is there already is checked and not built again.
    """
    arguments = context.arguments(image_parts.BuildArguments)
    image = image_parts.read_recipe(context, arguments)
    gate = gating.find(arguments.gate)
    expected = gate.expect(image_parts.gate_expectation(context, image), ())
    is_boot = arguments.part == image_parts.BOOT
    earlier = image_parts.earlier_boot(context, image_parts.packed_root(context, image.recipe)) if is_boot else None
    known = image_parts.boot_of(earlier) if earlier is not None else None
    reused = earlier.run if earlier is not None and known is not None and gate.decide(known, expected).is_pass else ""
    observation = known if known is not None and reused else image_parts.PARTS[arguments.part](context, image)
    verdict = gate.decide(observation, expected)
    changes = image_parts.changes(observation)
    context.record(verdict, observation=msgspec.to_builtins(observation), changes=changes, reused=reused)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK


def publish(context: Context) -> ExitCode:
    """Run a publication task: in the first stage find out whether the image is published already, in the last one publish it."""
    if context.task.stage == STATUS_STAGE:
        return publication_tasks.find_status(context)
    return publication_tasks.publish_image(context)
