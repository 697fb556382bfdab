"""The parts of a node image that verb `build` makes: what each is told, and which client makes it."""

import base64
import binascii
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from steps.clients.image.files import assemble
from steps.clients.image.layer import archive, layers
from steps.clients.image.sandbox import testing as sandbox
from steps.clients.netboot import boots
from steps.contract.image import keys, published
from steps.contract.image import manifest as manifests
from steps.contract.image import recipe as contract
from steps.contract.image.booting import Firmware
from steps.contract.image.published import Place
from steps.contract.image.testing import ImageTest, Where
from steps.contract.stages.image_assemble import Assembled
from steps.contract.stages.image_boot import Booted
from steps.contract.stages.image_layers import Built
from steps.contract.stages.image_lock import Archive
from steps.contract.stages.image_sandbox import Case, Sandboxed
from steps.errors import BadTask, Unreachable
from steps.verbs.context import Context

IMAGES: Final = "images"
"""Folder of the store with everything that builds make and find again."""
SANDBOX, BOOT = "sandbox", "boot"
"""The parts that run the recipe's tests."""


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`recipe` is the digest of the resolved recipe beside the task; `layer` is for part `layer`, which names the secret files
    that its commands see, so that its pod gets them; what follows is for `boot`."""

    part: str
    recipe: str
    gate: str
    layer: str = ""
    secrets: tuple[str, ...] = ()
    firmware: Firmware = Firmware.BIOS
    machines: int = 1
    memory_mib: int = 3072
    seconds: int = 300


class Image(Struct, frozen=True, kw_only=True):
    """What a part works on: its arguments and the recipe."""

    wanted: Arguments
    recipe: contract.Recipe


def opened(context: Context, wanted: Arguments) -> Image:
    """The recipe beside the task. Raises BadTask where it is not the one that the task was made for."""
    if wanted.part not in PARTS:
        raise BadTask(f"part {wanted.part!r} of an image is not one of {', '.join(PARTS)}")
    return Image(wanted=wanted, recipe=recipe(context, wanted.recipe))


def recipe(context: Context, digest: str) -> contract.Recipe:
    """The resolved recipe of the tasks folder. Raises BadTask for another one than `digest` names."""
    try:
        found = contract.decode((context.environment.tasks / contract.FILE).read_bytes())
    except (OSError, contract.RecipeError) as error:
        raise BadTask(str(error), hint=_AGAIN) from error
    if found.digest != digest:
        raise BadTask(f"{contract.FILE} is recipe {found.digest}, the task was made for {digest}", hint=_AGAIN)
    return found


def placed(context: Context, place: Place, groups: str) -> Place:
    """The place with its groups, from the file beside the task. Raises BadTask for another one than `groups` names."""
    try:
        found = published.decode_groups((context.environment.tasks / published.GROUPS).read_bytes(), groups)
    except (OSError, published.GroupsError) as error:
        raise BadTask(str(error), hint=_AGAIN) from error
    return msgspec.structs.replace(place, groups=found)


_AGAIN = "render again and submit both together"


def packed(context: Context, wanted: contract.Recipe) -> Path:
    """The folder of the packed image of a recipe, whether it is there or not."""
    return context.environment.store / IMAGES / "assembled" / keys.image(wanted)


def packed_root(context: Context, wanted: contract.Recipe) -> str:
    """Digest of its root; empty where there is none that could be read, which its reader will say."""
    with contextlib.suppress(OSError, manifests.ManifestError):
        part = manifests.decode((packed(context, wanted) / manifests.MANIFEST).read_bytes()).part(manifests.ROOT)
        return part.digest if part else ""
    return ""


def _files(context: Context) -> dict[str, bytes]:
    """The recipe's own files by digest, which layers alone are made of. Raises BadTask."""
    path = context.environment.tasks / contract.FILES
    try:
        packed = msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}
        return {digest: base64.b64decode(text, validate=True) for digest, text in packed.items()}
    except (OSError, msgspec.MsgspecError, binascii.Error) as error:
        raise BadTask(f"{contract.FILES}: {error}", hint=_AGAIN) from error


def _lock(context: Context, image: Image) -> Archive:
    """Raises Unreachable where nothing but a mirror's silence hinders; what a mirror no longer has is for the gate to say."""
    seen = archive.fill(context.environment.store / IMAGES, image.recipe, context.say)
    if seen.is_only_away:
        lacking, said = f"{len(seen.missing)} of {seen.packages} locked packages are not in the archive", seen.problems[0]
        raise Unreachable(f"{lacking}, and their mirror is away ({said})", hint="run again when the mirror answers")
    return seen


def _layer(context: Context, image: Image) -> Built:
    at, secrets = context.environment.store / IMAGES, context.environment.secrets
    return layers.build(at, image.recipe, _files(context), image.wanted.layer, secrets, context.say)


def _assemble(context: Context, image: Image) -> Assembled:
    found = assemble.assemble(context.environment.store / IMAGES, image.recipe, context.say)
    return msgspec.structs.replace(found, origin=image.recipe.origin)


def _sandbox(context: Context, image: Image) -> Sandboxed:
    return sandbox.run(context.environment.store / IMAGES, image.recipe, context.say)


def _boot(context: Context, image: Image) -> Booted:
    wanted, at = image.wanted, context.environment.store / IMAGES
    return boots.boot(at, image.recipe, wanted.firmware, wanted.machines, wanted.memory_mib, wanted.seconds, context.say)


Seen = Archive | Built | Assembled | Sandboxed | Booted
PARTS: Final[dict[str, Callable[[Context, Image], Seen]]] = {
    "lock": _lock,
    "layer": _layer,
    "assemble": _assemble,
    SANDBOX: _sandbox,
    BOOT: _boot,
}
"""By name, in running order."""

_TESTED: Final = {SANDBOX: (Where.SANDBOX, Where.BOTH), BOOT: (Where.BOOT, Where.BOTH)}


def expected(context: Context, image: Image) -> dict[str, Any]:
    """The gate's expectation: what the task says, and the recipe's tests where this part runs them."""
    told = dict(context.task.expectations)
    if image.wanted.part in _TESTED:
        places = _TESTED[image.wanted.part]
        told["tests"] = [msgspec.to_builtins(_case(one)) for one in image.recipe.tests if one.where in places]
    return told


def _case(one: ImageTest) -> Case:
    return Case(name=one.name, incident=one.incident, next_step=one.next_step)


def changes(seen: Seen) -> Iterator[str]:
    """What was written to the store, for the record; nothing for what was found there."""
    if isinstance(seen, Archive) and seen.fetched:
        yield f"fetched {seen.fetched} packages into the archive"
    elif isinstance(seen, Built) and not seen.cached and not seen.failed:
        yield f"built layer {seen.key[:12]}"
    elif isinstance(seen, Assembled) and not seen.cached and not seen.problem:
        yield f"packed image {seen.key[:12]}"
