"""What verb publish does for a node image: the packed image with the results of its tests becomes a version of a published tree."""

from typing import Final

import msgspec
from msgspec import Struct

from steps.clients.image import entries
from steps.clients.published import locking, publishing
from steps.contract.exit import ExitCode
from steps.contract.image import keys
from steps.contract.image.published import Place
from steps.contract.image.testing import Result
from steps.contract.stages.image_boot import Booted
from steps.contract.stages.image_publish import Published
from steps.contract.stages.image_sandbox import Sandboxed
from steps.contract.verdict import Status
from steps.errors import Refused
from steps.verbs import gating, image_parts, image_trees
from steps.verbs.context import Context

_TESTED: Final[dict[str, type[Sandboxed] | type[Booted]]] = {"image_sandbox": Sandboxed, "image_boot": Booted}
"""Stages whose judges must have let this image through in this very run."""


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`recipe` is the digest of the resolved recipe beside the task, `place` where the image goes, `groups` the digest of the file
    of its groups; `again`: also where a rollback left this image, or the tree was made anew."""

    recipe: str
    gate: str
    place: Place
    groups: str
    again: bool = False


def run(context: Context) -> ExitCode:
    """Publish, read back, judge, store. Raises Refused where this run has not shown that the image works."""
    wanted = context.arguments(Arguments)
    recipe = image_parts.recipe(context, wanted.recipe)
    place = image_parts.placed(context, wanted.place, wanted.groups)
    key = keys.image(recipe)
    assembled = image_parts.packed(context, recipe)
    by, secrets, known = f"run {context.environment.run}", context.environment.secrets, image_trees.known(context, place)
    with entries.held(assembled):
        results = _results(context, key, image_parts.packed_root(context, recipe))

        def publish() -> Published:
            return publishing.publish(
                place, assembled, results, secrets, by, context.say, again=wanted.again, origin=recipe.origin, known=known
            )

        seen = locking.patiently(publish, context.clock, context.task.deadline_seconds, context.say)
    if seen.version:
        image_trees.keep(context, place, recipe.name, seen.version, again=wanted.again)
    gate = gating.find(wanted.gate)
    verdict = gate.decide(seen, gate.expect(context.task.expectations, ()))
    done = () if seen.unchanged else (f"published {recipe.name} {seen.version}",)
    removed = (f"removed version {version}" for version in seen.removed)
    context.record(verdict, observation=msgspec.to_builtins(seen), changes=(*done, *removed))
    context.output("verdict", verdict.status.value)
    return ExitCode.OK


def _results(context: Context, key: str, root: str) -> dict[str, list[Result]]:
    """Results of this run's tests by task (`image_boot.boot_uefi`). Raises Refused where a stage did not pass, or tested another
    image, or booted other bytes than these of `root`: an engine's order alone is no proof, and tools of other versions make other
    bytes of the same key."""
    found: dict[str, list[Result]] = {}
    for stage in _TESTED:
        judged = context.store.records(context.environment.run, stage, "judge")
        if not judged or not all(record.verdict is not None and record.verdict.status is Status.PASS for record in judged):
            raise Refused(f"stage {stage} of this run has not passed", hint="an image is published only by the run that tested it")
        for task in _tasks(context, stage):
            record = context.store.records(context.environment.run, stage, task)[-1]
            if record.verdict is None or not record.verdict.is_pass:
                said = f"{stage}.{task}: {record.verdict.reason if record.verdict else 'no verdict'}"
                raise Refused(said, hint="an image is published only where each of its tests has passed")
            seen: Sandboxed | Booted = msgspec.convert(record.observation, _TESTED[stage])
            if seen.key != key:
                said = f"{stage}.{task} tested image {seen.key[:12]}, this is {key[:12]}"
                raise Refused(said, hint="run the whole pipeline again")
            if isinstance(seen, Booted) and root and seen.root_digest not in ("", root):
                said = f"{stage}.{task} booted a root of {seen.root_digest[:19]}, that of the image is {root[:19]}"
                raise Refused(said, hint="it was packed anew since, by other versions of tools: run the whole pipeline again")
            found[f"{stage}.{task}"] = _of(seen)
    return found


def _of(seen: Sandboxed | Booted) -> list[Result]:
    if isinstance(seen, Sandboxed):
        return list(seen.results)
    return [result for boot in seen.boots if boot.report is not None for result in boot.report.results]


def _tasks(context: Context, stage: str) -> list[str]:
    """Names of the tasks of a stage that left records, its judge left out."""
    prefix = f"runs/{context.environment.run}/evidence/{stage}/"
    names = {key.removeprefix(prefix).partition("/")[0] for key in context.store.keys(prefix.rstrip("/"))}
    return sorted(names - {"judge", "confirm", "announce"})
