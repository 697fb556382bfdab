"""Whether layers still are what was built, to the last byte: those that nobody has read for a day are, while an image is packed.

A layer is found in the cache by names, rights and sizes, which takes a tenth of a second; bytes that changed in their place (a disk
that fails, a program that writes there) are seen here alone, before an image is made of them whose manifest says otherwise.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps import timeouts
from steps.clients.image.contained import namespace
from steps.clients.image.layer import content, layers
from steps.clients.image.layer.making import LIST, TREE
from steps.contract.image import keys
from steps.contract.image.recipe import Recipe
from steps.errors import BadTask

READ: Final = "read"
"""In a layer's folder: its time says when its bytes were last seen to be right. Reading a root of hundreds of MB for each small
change would take as long as the change."""
_DAY: Final = 86_400.0
_NAMED: Final = 3
"""Paths of a layer that are named, of all that changed."""


class Kept(Struct, frozen=True, kw_only=True):
    """A layer as the cache has it: its folder, and the digest of what was built."""

    name: str
    key: str
    folder: str
    digest: str


class Asked(Struct, frozen=True):
    """Layers to read."""

    layers: tuple[Kept, ...]


class Found(Struct, frozen=True):
    """For each that has changed, by its key, the paths that did, where its list tells them."""

    changed: dict[str, list[str]]


def require(images: Path, recipe: Recipe) -> None:
    """Read the layers of a recipe that nobody has read for a day. Raises BadTask where one is not what was built, which the cache
    has no more then."""
    asked = [one for one in (_kept(images, key) for key in keys.layers(recipe).values()) if _is_due(Path(one.folder))]
    found = _read(asked) if asked else Found({})
    for one in asked:
        if one.key not in found.changed:
            with suppress(OSError):  # a cache that others keep, which this user may only read
                Path(one.folder, READ).touch()
    if not found.changed:
        return
    wrong = [one for one in asked if one.key in found.changed]
    for one in wrong:
        (Path(one.folder) / layers.ENTRY).unlink(missing_ok=True)  # a layer without one is built anew; others may be reading this
    raise BadTask(
        "; ".join(_sentence(one, found.changed[one.key]) for one in wrong),
        hint=f"build again: {wrong[0].folder} is removed and built anew; see what has written there, or whether the disk fails",
    )


def verify(images: Path, key: str) -> str:
    """Read a layer: empty when its content is what its entry says, else what differs in one sentence."""
    if layers.entry(images, key) is None:
        return f"layer {key[:12]} is not in {layers.shelf(images)}"
    one = _kept(images, key)
    found = _read([one])
    return _sentence(one, found.changed[key]) if found.changed else ""


def read(_: Path, asked: Asked) -> Found:
    """Read them; called in a namespace, where owners are those of the image."""
    told = {one.key: content.changed(Path(one.folder, TREE), one.digest, Path(one.folder, LIST)) for one in asked.layers}
    return Found({key: paths for key, paths in told.items() if paths is not None})


def _read(asked: Sequence[Kept]) -> Found:
    return namespace.call((), f"{__name__}:read", Asked(tuple(asked)), Found, seconds=timeouts.IMAGE_READ)


def _is_due(folder: Path) -> bool:
    """Whether it is a day since this layer was made or read; one without a list of an older release always is, until it is read."""
    times = [path.stat().st_mtime for path in (folder / LIST, folder / READ) if path.exists()]
    return not times or max(times) < time.time() - _DAY


def _kept(images: Path, key: str) -> Kept:
    folder, found = layers.shelf(images) / key, layers.entry(images, key)
    if found is None:
        raise BadTask(f"layer {key[:12]} is not in {layers.shelf(images)}", hint="build the image's layers first")
    return Kept(name=found.name, key=key, folder=str(folder.absolute()), digest=found.content.digest)


def _sentence(one: Kept, paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    what = f"{', '.join(f'/{path}' for path in paths[:_NAMED])}{more} changed in the cache" if paths else "its bytes have changed"
    return f"layer {one.name} ({one.key[:12]}) is no longer what was built: {what}"
