"""The cache of layers: one folder per key, which appears whole or not at all; what is not there is built.

layers/KEY/tree/         what the layer adds, as overlayfs reads it
layers/KEY/content.list  every path in it with the digest of its bytes
layers/KEY/entry.json    what it is; checked against the tree before it is used: names, rights and sizes here, the bytes where an
                         image is packed (`intact`)
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.image import entries, removing, room
from steps.clients.image.contained import kernel, namespace
from steps.clients.image.layer import content, installers, making
from steps.clients.image.layer.making import TREE
from steps.contract.image import keys
from steps.contract.image.recipe import Recipe
from steps.contract.stages.image_layers import Built
from steps.errors import BadTask

SCHEMA: Final = 1
ENTRY: Final = "entry.json"


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`entry.json`: the layer's name and content, how long it took to build, what its root has installed, the user whose ids its
    files have (0: the machine's own), and the versions of the programs that installed its packages."""

    key: str
    name: str
    content: content.Content
    seconds: float
    installed: tuple[str, ...]
    user: int
    tools: dict[str, str] = {}
    schema: int = SCHEMA


def shelf(images: Path) -> Path:
    """The folder with all layers."""
    return images / "layers"


def stack(images: Path, recipe: Recipe) -> tuple[Path, ...]:
    """The folders of a recipe's layers, uppermost first. Raises BadTask where one is missing."""
    return _stack(images, keys.layers(recipe))


def entry(images: Path, key: str) -> Entry | None:
    """What the cache says of a layer; None where it has none. Raises BadTask when it was built by another user."""
    try:
        found = msgspec.json.decode((shelf(images) / key / ENTRY).read_bytes(), type=Entry)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise BadTask(f"{shelf(images) / key / ENTRY}: {error}", hint=f"remove {shelf(images) / key}: it is built anew") from error
    user = 0 if kernel.may_mount() else os.geteuid()
    if found.user != user:
        raise BadTask(
            f"layer {found.name} in {shelf(images)} was built by user {found.user}, this is user {user}: its files have other ids",
            hint="build as that user, or with a store of your own (BRINGUP_HOME)",
        )
    return found


@room.needed()
def build(images: Path, recipe: Recipe, files: Mapping[str, bytes], layer: str, secrets: Path, say: Callable[[str], None]) -> Built:
    """A layer of a recipe, from the cache or built now, with those below that are missing. `files` are the recipe's own by digest,
    `secrets` the folder with build secrets. Raises BadTask, StoreBusy, Temporary."""
    found = keys.layers(recipe)
    if layer not in found:
        raise BadTask(f"recipe {recipe.name} has no layer {layer!r}", hint=f"it has {', '.join(found)}")
    stack: tuple[Path, ...] = ()
    for name in recipe.names[: recipe.names.index(layer)]:
        if entry(images, found[name]) is None:
            below = _build(making.Making(images, recipe, files, name, secrets, say, stack))
            if below.failed or below.secrets_found:
                return msgspec.structs.replace(below, key=found[layer], failed=below.failed and f"layer {name}: {below.failed}")
        stack = (shelf(images) / found[name] / TREE, *stack)
    wanted = making.Making(images, recipe, files, layer, secrets, say, stack)
    return _cached(wanted) or _build(wanted)


class Asked(Struct, frozen=True, kw_only=True):
    """A layer's folder to read."""

    tree: str


def outline(root: Path, asked: Asked) -> str:
    """Read names, rights and sizes of a layer; called in a namespace."""
    return content.outline(root / asked.tree)


def _cached(layer: making.Making) -> Built | None:
    """The layer as the cache has it, when it still is what it was; else it is removed."""
    key, say = layer.key, layer.say
    found, folder = entry(layer.images, key), shelf(layer.images) / key
    if found is None:
        if folder.exists():
            _discard(folder, say, f"layer {key[:12]} has no {ENTRY}")
        return None
    asked = Asked(tree=str((folder / TREE).absolute()))
    try:
        if kernel.may_mount():
            now = content.outline(folder / TREE)
        else:
            now = namespace.call((), f"{__name__}:outline", asked, str, seconds=timeouts.IMAGE_READ)
    except FileNotFoundError:
        now = "nothing"
    if now != found.content.outline:
        _discard(folder, say, f"layer {found.name} ({key[:12]}) is no longer what was built")
        return None
    entries.note_use(folder / ENTRY)
    if odd := _made_by_others(layer, found):
        say(f"layer {found.name} was made by {odd}: this machine may make other bytes of it")
    return _told(found, cached=True)


def _made_by_others(layer: making.Making, found: Entry) -> str:
    with contextlib.suppress(BadTask):  # a machine that cannot build layers takes what is there
        return installers.others(found.tools, installers.versions(layer.layer))
    return ""


def _discard(folder: Path, say: Callable[[str], None], why: str) -> None:
    say(f"{why}: it is removed and built anew")
    with contextlib.suppress(FileNotFoundError):  # another build has done so just now
        entries.take_away(folder, removing.remove)


def _told(found: Entry, *, cached: bool) -> Built:
    known = found.content
    return Built(
        key=found.key,
        digest=known.digest,
        size=known.size,
        files=known.files,
        cached=cached,
        seconds=found.seconds,
        installed=found.installed,
    )


def _build(layer: making.Making) -> Built:
    """Build a layer, unless another build has made it meanwhile."""
    work = making.gather(layer)
    try:
        with entries.making(shelf(layer.images), layer.key, remove=removing.remove) as folder:
            if folder is not None:
                return _told(_written(layer, making.make(layer, work, folder), folder), cached=False)
    except making.Failed as error:
        return error.built
    return _cached(layer) or _build(layer)


def _written(layer: making.Making, made: making.Made, folder: Path) -> Entry:
    user = 0 if kernel.may_mount() else os.geteuid()
    found = Entry(
        key=layer.key,
        name=layer.name,
        content=made.content,
        seconds=made.seconds,
        installed=made.installed,
        user=user,
        tools=installers.versions(layer.layer),
    )
    (folder / ENTRY).write_bytes(msgspec.json.encode(found, order="sorted"))
    return found


def _stack(images: Path, wanted: Mapping[str, str]) -> tuple[Path, ...]:
    found = []
    for name, key in wanted.items():
        if entry(images, key) is None:
            raise BadTask(f"layer {name} ({key[:12]}) is not in {shelf(images)}", hint="build the image's layers first")
        found.append(shelf(images) / key / TREE)
    return tuple(reversed(found))
