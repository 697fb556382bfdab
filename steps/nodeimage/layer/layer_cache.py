"""Cache of layers: one folder per key, which appears complete or not at all; a missing layer is built.

layers/KEY/tree/         files of the layer, as overlayfs reads them
layers/KEY/content.list  every path in it with the digest of its bytes
layers/KEY/entry.json    description; names, modes and sizes are checked before use, bytes only by `layer_integrity`

Versions of the package manager and of tar are in the entry and in no key. Another version may configure packages in another
order, which decides the number of a package's user. But keys are known before a build, and builders of several versions that
share a store would otherwise rebuild each other's layers again and again. A build that uses a layer of other versions says so.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.contract.canonical import UNREADABLE_JSON
from steps.errors import BadTask
from steps.nodeimage import kernel_calls
from steps.nodeimage.containment import namespace
from steps.nodeimage.contract import build_keys, debian
from steps.nodeimage.contract.resolved_recipe import Recipe, ResolvedLayer
from steps.nodeimage.layer import layer_build, layer_content
from steps.nodeimage.layer.layer_build import TREE
from steps.nodeimage.store import programs, store_entries
from steps.stages.image_layers.contract import Built

SCHEMA: Final = 1
ENTRY: Final = "entry.json"


class LayerEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of a cached layer's `entry.json`.

    It has the layer's name and content, the seconds of its build, the packages installed in its root, the user whose subordinate
    ids its files have (0: the ids of the machine), and the versions of the programs that installed its packages.
    """

    key: str
    name: str
    content: layer_content.LayerContent
    seconds: float
    installed: tuple[str, ...]
    user: int
    tools: dict[str, str] = {}
    schema: int = SCHEMA


def shelf(images: Path) -> Path:
    """Return the folder of the image store that holds all cached layers."""
    return images / "layers"


def stack(images: Path, recipe: Recipe) -> tuple[Path, ...]:
    """Return the folders with the files of a recipe's layers, uppermost first. Raises BadTask if a layer is not cached."""
    folders: tuple[Path, ...] = ()
    for name, key in build_keys.layers(recipe).items():
        if entry(images, key) is None:
            raise BadTask(f"layer {name} ({key[:12]}) is not in {shelf(images)}", hint="build the image's layers first")
        folders = (shelf(images) / key / TREE, *folders)
    return folders


def entry(images: Path, key: str) -> LayerEntry | None:
    """Return the description of a cached layer; None if it is not cached. Raises BadTask if it is unreadable or another user's."""
    try:
        layer = msgspec.json.decode((shelf(images) / key / ENTRY).read_bytes(), type=LayerEntry)
    except FileNotFoundError:
        return None
    except UNREADABLE_JSON as error:
        raise BadTask(f"{shelf(images) / key / ENTRY}: {error}", hint=f"remove {shelf(images) / key}: it is built anew") from error
    user = 0 if kernel_calls.may_mount() else os.geteuid()
    if layer.user != user:
        raise BadTask(
            f"layer {layer.name} in {shelf(images)} was built by user {layer.user}, this is user {user}: its files have other ids",
            hint="build as that user, or with a store of your own (BRINGUP_HOME)",
        )
    return layer


@store_entries.guard_writes()
def build(images: Path, recipe: Recipe, files: Mapping[str, bytes], layer: str, secrets: Path, say: Callable[[str], None]) -> Built:
    """Return a layer of a recipe from the cache, or build it now, together with missing layers below it.

    `files` are the recipe's own files by digest, `secrets` is the folder with build secrets. Raises BadTask, StoreBusy, Temporary.
    """
    keys = build_keys.layers(recipe)
    if layer not in keys:
        raise BadTask(f"recipe {recipe.name} has no layer {layer!r}", hint=f"it has {', '.join(keys)}")
    stack: tuple[Path, ...] = ()
    for name in recipe.names[: recipe.names.index(layer)]:
        if entry(images, keys[name]) is None:
            below = _build(layer_build.LayerInputs(images, recipe, files, name, secrets, say, stack))
            if below.failed or below.secrets_found:
                return msgspec.structs.replace(below, key=keys[layer], failed=below.failed and f"layer {name}: {below.failed}")
        stack = (shelf(images) / keys[name] / TREE, *stack)
    inputs = layer_build.LayerInputs(images, recipe, files, layer, secrets, say, stack)
    return _cached(inputs) or _build(inputs)


def outline(root: Path, layer: namespace.FolderArgument) -> str:
    """Return the digest of names, modes and sizes in a layer's folder; called in a namespace."""
    return layer_content.outline(root / layer.folder)


def _cached(layer: layer_build.LayerInputs) -> Built | None:
    """Return the cached layer if its names, modes and sizes are unchanged; else remove it and return None."""
    key, say = layer.key, layer.say
    cached, folder = entry(layer.images, key), shelf(layer.images) / key
    if cached is None:
        if folder.exists():
            _discard(folder, say, f"layer {key[:12]} has no {ENTRY}")
        return None
    tree = folder / TREE
    try:
        if kernel_calls.may_mount():
            current = layer_content.outline(tree)
        else:
            argument = namespace.FolderArgument(str(tree.absolute()))
            current = namespace.call((), f"{__name__}:outline", argument, str, seconds=timeouts.IMAGE_READ)
    except FileNotFoundError:
        current = "nothing"
    if current != cached.content.outline:
        _discard(folder, say, f"layer {cached.name} ({key[:12]}) is no longer what was built")
        return None
    store_entries.note_use(folder / ENTRY)
    with contextlib.suppress(BadTask):  # a machine that cannot build layers takes what is there
        if others := other_installers(cached.tools, installers_of(layer.layer)):
            say(f"layer {cached.name} was made by {others}: this machine may make other bytes of it")
    return _built(cached, cached=True)


def _discard(folder: Path, say: Callable[[str], None], why: str) -> None:
    say(f"{why}: it is removed and built anew")
    with contextlib.suppress(FileNotFoundError):  # another build has done so just now
        store_entries.remove_entry(folder, namespace.remove_folder)


def _built(layer: LayerEntry, *, cached: bool) -> Built:
    return Built(
        key=layer.key,
        digest=layer.content.digest,
        size=layer.content.size,
        files=layer.content.files,
        cached=cached,
        seconds=layer.seconds,
        installed=layer.installed,
    )


def _build(layer: layer_build.LayerInputs) -> Built:
    """Build a layer and return it; if another process has built it meanwhile, return that one."""
    work = layer_build.gather(layer)
    try:
        with store_entries.make_entry(shelf(layer.images), layer.key, remove=namespace.remove_folder) as folder:
            if folder is not None:
                return _built(_write_entry(layer, layer_build.make(layer, work, folder), folder), cached=False)
    except layer_build.LayerFailed as error:
        return error.built
    return _cached(layer) or _build(layer)


def _write_entry(layer: layer_build.LayerInputs, built: layer_build.BuiltLayer, folder: Path) -> LayerEntry:
    new = LayerEntry(
        key=layer.key,
        name=layer.name,
        content=built.content,
        seconds=built.seconds,
        installed=built.installed,
        user=0 if kernel_calls.may_mount() else os.geteuid(),
        tools=installers_of(layer.layer),
    )
    (folder / ENTRY).write_bytes(msgspec.json.encode(new, order="sorted"))
    return new


def installers_of(layer: ResolvedLayer) -> dict[str, str]:
    """Return name → version of this machine's programs that install packages; empty for a layer without packages.

    Raises BadTask if a program is not installed.
    """
    return {name: programs.version(words) for name, words in debian.INSTALLERS.items()} if layer.packages else {}


def other_installers(made_by: Mapping[str, str], have: Mapping[str, str]) -> str:
    """Return which installing programs had another version when a layer was made, in words; empty if all are equal or unknown."""
    return ", ".join(f"{name} {made_by[name]}, here {have[name]}" for name in have if made_by.get(name, have[name]) != have[name])
