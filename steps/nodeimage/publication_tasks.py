"""Tasks of verb `publish` for node images: one finds out whether the image is published already, the other publishes it.

The first task has the connection, account and image of the second, but not its signing key. Both remember in the store which
versions they saw, so that a release folder whose mount is missing is told from the folder of a new site.
"""

from typing import Final

import msgspec
from msgspec import Struct

from steps.clients.releases import known_versions, release_lease
from steps.clients.releases.publication import PublishRequest
from steps.contract.attestation import RunIdentity
from steps.contract.exit import ExitCode
from steps.contract.runs.evidence import Evidence
from steps.errors import Refused
from steps.nodeimage import image_parts
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.boot_tree import PublishTarget
from steps.nodeimage.contract.image_tests import ImageTestResult
from steps.nodeimage.publishing import image_kind, image_publication, publication_status
from steps.nodeimage.store import store_entries
from steps.runtime import gating, stage_results
from steps.runtime.context import Context
from steps.stages.image_boot.contract import Booted
from steps.stages.image_publish.contract import Published
from steps.stages.image_sandbox.contract import Sandboxed
from steps.stages.image_status.contract import CHANGED, CURRENT, OUTPUT

_SIGNED = "signed"
"""Placeholder for the name of the signing key, which only the publishing task gets."""


class StatusArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of the task that reads the release folder before anything is built.

    `recipe` is the digest of the resolved recipe, `image` its name, `key` that of the packed image, `place` the release folder,
    `groups` the digest of the file of its groups, `firmware` those that must have booted it; `signed`: the published version must
    be signed.
    """

    recipe: str
    gate: str
    image: str
    key: str
    place: PublishTarget
    groups: str
    firmware: tuple[str, ...]
    signed: bool = False


def find_status(context: Context) -> ExitCode:
    """Compare the release folder with the wanted image, store verdict and record, and return OK.

    The task's output says whether anything is left to build. Raises a StepError if the folder cannot be read, because the image
    could not be published there either.
    """
    arguments = context.arguments(StatusArguments)
    place = image_parts.read_target(context, arguments.place, arguments.groups)
    place = msgspec.structs.replace(place, key=_SIGNED) if arguments.signed else place
    recipe = image_parts.recipe(context, arguments.recipe)
    packages = {package.name: package.version for layer in recipe.layers for package in layer.packages}
    known = known_versions.known_versions(context.store, place)
    with image_kind.connect(place, context.environment.secrets) as transport:
        status = publication_status.query(transport, place, arguments.image, arguments.key, arguments.firmware, packages, known)
    if status.version:
        known_versions.remember_version(context.store, place, arguments.image, status.version)
    gate = gating.find(arguments.gate)
    verdict = gate.decide(status, gate.expect(context.task.expectations, ()))
    context.say(verdict.reason)
    context.record(verdict, observation=msgspec.to_builtins(status))
    context.output(OUTPUT, CURRENT if verdict.is_pass and status.is_current else CHANGED)
    return ExitCode.OK


_TESTED: Final[dict[str, type[Sandboxed] | type[Booted]]] = {"image_sandbox": Sandboxed, "image_boot": Booted}
"""Stage → type of its observations, for the stages that must have passed this image in this very run."""


class PublicationArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of the task that publishes an image.

    `recipe` is the digest of the resolved recipe beside the task, `place` the release folder, `groups` the digest of the file of
    its groups. `again`: publish also an image that a rollback left, or into a folder that was emptied.
    """

    recipe: str
    gate: str
    place: PublishTarget
    groups: str
    again: bool = False


def publish_image(context: Context) -> ExitCode:
    """Publish the image, read it back, store verdict and record, and return OK.

    Raises Refused unless this run's tests have passed.
    """
    arguments = context.arguments(PublicationArguments)
    recipe = image_parts.recipe(context, arguments.recipe)
    place = image_parts.read_target(context, arguments.place, arguments.groups)
    key = build_keys.image(recipe)
    assembled = image_parts.packed_folder(context, recipe)
    run, secrets = f"run {context.environment.run}", context.environment.secrets
    known = known_versions.known_versions(context.store, place)
    with store_entries.hold_entry(assembled):
        results, run_identity = _results(context, key, image_parts.packed_root(context, recipe))

        def publish() -> Published:
            release = image_publication.stage(assembled, place, results, run_identity, origin=recipe.origin, secrets=secrets)
            request = PublishRequest(
                release=release, target=place, secrets=secrets, by=run, again=arguments.again, known=dict(known)
            )
            return image_publication.publish(request, context.say)

        published = release_lease.retry_while_locked(publish, context.clock, context.task.deadline_seconds, context.say)
    if published.version:
        known_versions.remember_version(context.store, place, recipe.name, published.version, again=arguments.again)
    gate = gating.find(arguments.gate)
    verdict = gate.decide(published, gate.expect(context.task.expectations, ()))
    done = () if published.unchanged else (f"published {recipe.name} {published.version}",)
    removed = (f"removed version {version}" for version in published.removed)
    context.record(verdict, observation=msgspec.to_builtins(published), changes=(*done, *removed))
    context.output("verdict", verdict.status.value)
    return ExitCode.OK


def _results(context: Context, key: str, root: str) -> tuple[dict[str, list[ImageTestResult]], RunIdentity]:
    """Return task (such as `image_boot.boot_uefi`) → test results of this run, and the run's identity for statements.

    Raises Refused if a stage did not pass, tested another image, or booted another root: the order of an engine alone is no proof,
    and other tool versions make other bytes of the same key.
    """
    results: dict[str, list[ImageTestResult]] = {}
    records = list[Evidence]()
    for stage in _TESTED:
        stage_results.require_pass(context, stage, "an image is published only by the run that tested it")
        for task in _tasks(context, stage):
            hint = "an image is published only where each of its tests has passed"
            record = stage_results.passed_record(context, stage, task, hint)
            tested: Sandboxed | Booted = msgspec.convert(record.observation, _TESTED[stage])
            if tested.key != key:
                message = f"{stage}.{task} tested image {tested.key[:12]}, this is {key[:12]}"
                raise Refused(message, hint="run the whole pipeline again")
            if isinstance(tested, Booted) and root and tested.root_digest not in ("", root):
                message = f"{stage}.{task} booted a root of {tested.root_digest[:19]}, that of the image is {root[:19]}"
                raise Refused(message, hint="it was packed anew since, by other versions of tools: run the whole pipeline again")
            results[f"{stage}.{task}"] = _of(tested)
            records.append(record)
    return results, stage_results.run_identity(context, records)


def _of(tested: Sandboxed | Booted) -> list[ImageTestResult]:
    if isinstance(tested, Sandboxed):
        return list(tested.results)
    return [result for boot in tested.boots if boot.report is not None for result in boot.report.results]


def _tasks(context: Context, stage: str) -> list[str]:
    """Return the sorted names of a stage's tasks that left records in this run, without judge, approval and announcement."""
    prefix = f"runs/{context.environment.run}/evidence/{stage}/"
    names = {key.removeprefix(prefix).partition("/")[0] for key in context.store.keys(prefix.rstrip("/"))}
    return sorted(names - {"judge", "confirm", "announce"})
