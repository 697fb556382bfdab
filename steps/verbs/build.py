"""Verb build: makes one part of a node image, judges what came of it, and stores the record; the judge decides the stage.

What is built lies in the store by keys of the recipe: a part that is there already is found, proven and not built again.
"""

import msgspec

from steps.contract.exit import ExitCode
from steps.verbs import gating, image_boots, image_parts
from steps.verbs.context import Context


def run(context: Context) -> ExitCode:
    """Build, judge, store. Ends with 0 once the record is written, whatever the verdict: the judge decides."""
    wanted = context.arguments(image_parts.Arguments)
    image = image_parts.opened(context, wanted)
    gate = gating.find(wanted.gate)
    expected = gate.expect(image_parts.expected(context, image), ())
    is_boot = wanted.part == image_parts.BOOT
    earlier = image_boots.earlier(context, image_parts.packed_root(context, image.recipe)) if is_boot else None
    known = image_boots.seen(earlier) if earlier is not None else None
    reused = earlier.run if earlier is not None and known is not None and gate.decide(known, expected).is_pass else ""
    seen = known if known is not None and reused else image_parts.PARTS[wanted.part](context, image)
    verdict = gate.decide(seen, expected)
    context.record(verdict, observation=msgspec.to_builtins(seen), changes=image_parts.changes(seen), reused=reused)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK
