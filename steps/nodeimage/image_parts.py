"""Parts of a node image's build (lock, layer, assemble, sandbox, boot), one function each; earlier test boots are reused."""

import base64
import binascii
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from steps.contract import run_records
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.runs import evidence
from steps.contract.runs.evidence import Evidence
from steps.errors import BadTask, Unreachable
from steps.nodeimage.contract import boot_tree, build_keys, image_manifest, resolved_recipe
from steps.nodeimage.contract.boot_tests import Firmware
from steps.nodeimage.contract.boot_tree import PublishTarget
from steps.nodeimage.contract.image_tests import ExpectedTest, Where
from steps.nodeimage.files import image_assembly
from steps.nodeimage.layer import layer_cache, package_archive
from steps.nodeimage.netboot import machine_boots
from steps.nodeimage.sandbox import sandbox_tests
from steps.runtime import reuse
from steps.runtime.context import Context
from steps.stages.image_assemble.contract import Assembled
from steps.stages.image_boot.contract import Booted
from steps.stages.image_layers.contract import Built
from steps.stages.image_lock.contract import Archive
from steps.stages.image_sandbox.contract import Sandboxed

IMAGES: Final = "images"
"""Folder of the run's store in which builds keep layers, packages and images."""
SANDBOX, BOOT = "sandbox", "boot"
"""Names of the parts that run the recipe's tests."""


class BuildArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of a task of verb `build`, which makes one `part` of an image.

    `recipe` is the digest of the resolved recipe beside the task. `layer` is for part `layer`; its task names the secret files that
    its commands see, so that the pod gets them. The fields after it are for part `boot`.
    """

    part: str
    recipe: str
    gate: str
    layer: str = ""
    secrets: tuple[str, ...] = ()
    firmware: Firmware = Firmware.BIOS
    machines: int = 1
    memory_mib: int = 3072
    seconds: int = 300


class ImageInput(Struct, frozen=True, kw_only=True):
    """Input of the function of a part: the task's arguments and the recipe."""

    wanted: BuildArguments
    recipe: resolved_recipe.Recipe


def read_recipe(context: Context, arguments: BuildArguments) -> ImageInput:
    """Return the task's arguments with their recipe. Raises BadTask for an unknown part, or if the recipe is not the task's."""
    if arguments.part not in PARTS:
        raise BadTask(f"part {arguments.part!r} of an image is not one of {', '.join(PARTS)}")
    return ImageInput(wanted=arguments, recipe=recipe(context, arguments.recipe))


def recipe(context: Context, digest: str) -> resolved_recipe.Recipe:
    """Return the resolved recipe in the tasks folder. Raises BadTask unless it has this digest."""
    try:
        resolved = resolved_recipe.decode((context.environment.tasks / resolved_recipe.FILE).read_bytes())
    except (OSError, resolved_recipe.RecipeError) as error:
        raise BadTask(str(error), hint=_AGAIN) from error
    if resolved.digest != digest:
        raise BadTask(f"{resolved_recipe.FILE} is recipe {resolved.digest}, the task was made for {digest}", hint=_AGAIN)
    return resolved


def read_target(context: Context, place: PublishTarget, groups: str) -> PublishTarget:
    """Return the publish target with the groups from the file beside the task.

    Raises BadTask unless the file's digest is `groups`.
    """
    try:
        decoded = boot_tree.decode_groups((context.environment.tasks / boot_tree.GROUPS).read_bytes(), groups)
    except (OSError, boot_tree.GroupsError) as error:
        raise BadTask(str(error), hint=_AGAIN) from error
    return msgspec.structs.replace(place, groups=decoded)


_AGAIN = "render again and submit both together"


def packed_folder(context: Context, recipe: resolved_recipe.Recipe) -> Path:
    """Return the folder in the store for a recipe's packed image, which need not exist."""
    return context.environment.store / IMAGES / "assembled" / build_keys.image(recipe)


def packed_root(context: Context, recipe: resolved_recipe.Recipe) -> str:
    """Return the digest of a packed image's squashfs; empty if its manifest cannot be read, which another reader reports."""
    with contextlib.suppress(OSError, image_manifest.ManifestError):
        part = image_manifest.decode((packed_folder(context, recipe) / image_manifest.MANIFEST).read_bytes()).part(
            image_manifest.ROOT
        )
        return part.digest if part else ""
    return ""


def _files(context: Context) -> dict[str, bytes]:
    """Return digest → bytes of the recipe's own files, which only layers need. Raises BadTask."""
    path = context.environment.tasks / resolved_recipe.FILES
    try:
        packed = msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}
        return {digest: base64.b64decode(text, validate=True) for digest, text in packed.items()}
    except (OSError, binascii.Error, *UNREADABLE_JSON) as error:
        raise BadTask(f"{resolved_recipe.FILES}: {error}", hint=_AGAIN) from error


def _lock(context: Context, image: ImageInput) -> Archive:
    """Fill the package archive and return its state; the gate judges packages that mirrors no longer have.

    Raises Unreachable if packages are missing only because mirrors do not answer.
    """
    archive = package_archive.fill(context.environment.store / IMAGES, image.recipe, context.say)
    if archive.is_only_away:
        lacking = f"{len(archive.missing)} of {archive.packages} locked packages are not in the archive"
        hint = "run again when the mirror answers"
        raise Unreachable(f"{lacking}, and their mirror does not answer ({archive.problems[0]})", hint=hint)
    return archive


def _layer(context: Context, image: ImageInput) -> Built:
    at, secrets = context.environment.store / IMAGES, context.environment.secrets
    return layer_cache.build(at, image.recipe, _files(context), image.wanted.layer, secrets, context.say)


def _assemble(context: Context, image: ImageInput) -> Assembled:
    assembled = image_assembly.assemble(context.environment.store / IMAGES, image.recipe, context.say)
    return msgspec.structs.replace(assembled, origin=image.recipe.origin)


def _sandbox(context: Context, image: ImageInput) -> Sandboxed:
    return sandbox_tests.run(context.environment.store / IMAGES, image.recipe, context.say)


def _boot(context: Context, image: ImageInput) -> Booted:
    build, at = image.wanted, context.environment.store / IMAGES
    return machine_boots.boot(at, image.recipe, build.firmware, build.machines, build.memory_mib, build.seconds, context.say)


Seen = Archive | Built | Assembled | Sandboxed | Booted
PARTS: Final[dict[str, Callable[[Context, ImageInput], Seen]]] = {
    "lock": _lock,
    "layer": _layer,
    "assemble": _assemble,
    SANDBOX: _sandbox,
    BOOT: _boot,
}
"""Name of each part → its function, in running order."""

_TESTED: Final = {SANDBOX: (Where.SANDBOX, Where.BOTH), BOOT: (Where.BOOT, Where.BOTH)}


def gate_expectation(context: Context, image: ImageInput) -> dict[str, Any]:
    """Return the task's expectation for the gate, with the recipe's tests added if this part runs them."""
    expectation = dict(context.task.expectations)
    if places := _TESTED.get(image.wanted.part):
        tests = (test for test in image.recipe.tests if test.where in places)
        cases = (ExpectedTest(name=test.name, incident=test.incident, next_step=test.next_step) for test in tests)
        expectation["tests"] = [msgspec.to_builtins(case) for case in cases]
    return expectation


def changes(observation: Seen) -> Iterator[str]:
    """Yield a sentence for the record about each thing that was written to the store; nothing for parts that were found there."""
    if isinstance(observation, Archive) and observation.fetched:
        yield f"fetched {observation.fetched} packages into the archive"
    elif isinstance(observation, Built) and not observation.cached and not observation.failed:
        yield f"built layer {observation.key[:12]}"
    elif isinstance(observation, Assembled) and not observation.cached and not observation.problem:
        yield f"packed image {observation.key[:12]}"


def earlier_boot(context: Context, root: str) -> Evidence | None:
    """Return the passed evidence record of this task from the run that the workflow names for reuse; None if there is none.

    The task names the image by its key, and a boot leaves nothing behind that could have changed, so its observation holds as long
    as the image is the same. If the image was packed anew since, other tool versions may have made other bytes: a boot of another
    root than `root` proves nothing (empty: unknown). The gate judges the observation again.
    """
    run = context.environment.reuse
    if run in ("", reuse.NONE) or run == context.environment.run:
        return None
    header, mine = (context.store.read(run_records.header_key(name)) for name in (run, context.environment.run))
    if header is None or mine is None or run_records.decode_header(header).cluster != run_records.decode_header(mine).cluster:
        return None
    records = context.store.records(run, context.task.stage, context.task.name)
    same = (record for record in records if record.input_digest == context.task.input_digest and _booted(record, root))
    return next((record for record in same if record.verdict is not None and record.verdict.is_pass), None)


def _booted(record: Evidence, root: str) -> bool:
    known = boot_of(record)
    return known is not None and (not root or known.root_digest in ("", root))


def boot_of(record: Evidence) -> Booted | None:
    """Return the observation in a boot's evidence record; None if another version wrote it in another form."""
    return evidence.read_observation(record.observation, Booted)
