"""Integrity of layers: while an image is packed, layers that nobody has read for a day are compared byte by byte with their digest.

The cache checks names, modes and sizes, in a tenth of a second. Bytes that changed in place (a failing disk, a program that writes
there) are found only here, before an image is made of them whose manifest would be wrong.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps import timeouts
from steps.errors import BadTask
from steps.nodeimage.containment import namespace
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.layer import layer_cache, layer_content
from steps.nodeimage.layer.layer_build import LIST, TREE

READ: Final = "read"
"""File in a layer's folder whose time says when its bytes were last verified.

Reading a root of hundreds of MB for each small change would take as long as the change.
"""
_DAY: Final = 86_400.0
_NAMED: Final = 3
"""Number of changed paths that an error names."""


class CachedLayer(Struct, frozen=True, kw_only=True):
    """Layer of the cache: its folder, and the digest of its content as built."""

    name: str
    key: str
    folder: str
    digest: str


class IntegrityRequest(Struct, frozen=True):
    """Layers to read."""

    layers: tuple[CachedLayer, ...]


class ChangedPaths(Struct, frozen=True):
    """Changed paths of each layer that has changed, by its key, as far as its list tells them."""

    changed: dict[str, list[str]]


def require(images: Path, recipe: Recipe) -> None:
    """Verify the layers of a recipe that nobody has read for a day.

    Raises BadTask if a layer has changed; it is removed from the cache then.
    """
    asked = [one for one in (_kept(images, key) for key in build_keys.layers(recipe).values()) if _is_due(Path(one.folder))]
    found = _read(asked) if asked else ChangedPaths({})
    for one in asked:
        if one.key not in found.changed:
            with suppress(OSError):  # a cache that others keep, which this user may only read
                Path(one.folder, READ).touch()
    if not found.changed:
        return
    wrong = [one for one in asked if one.key in found.changed]
    for one in wrong:
        (Path(one.folder) / layer_cache.ENTRY).unlink(
            missing_ok=True
        )  # a layer without one is built anew; others may be reading this
    raise BadTask(
        "; ".join(_sentence(one, found.changed[one.key]) for one in wrong),
        hint=f"build again: {wrong[0].folder} is removed and built anew; see what has written there, or whether the disk fails",
    )


def verify(images: Path, key: str) -> str:
    """Verify a layer: return an empty text if its content is unchanged, else the difference in one sentence."""
    if layer_cache.entry(images, key) is None:
        return f"layer {key[:12]} is not in {layer_cache.shelf(images)}"
    one = _kept(images, key)
    found = _read([one])
    return _sentence(one, found.changed[key]) if found.changed else ""


def read(_: Path, asked: IntegrityRequest) -> ChangedPaths:
    """Read layers; called in a namespace, where owners are those of the image."""
    told = {
        one.key: layer_content.changed_paths(Path(one.folder, TREE), one.digest, Path(one.folder, LIST)) for one in asked.layers
    }
    return ChangedPaths({key: paths for key, paths in told.items() if paths is not None})


def _read(asked: Sequence[CachedLayer]) -> ChangedPaths:
    return namespace.call((), f"{__name__}:read", IntegrityRequest(tuple(asked)), ChangedPaths, seconds=timeouts.IMAGE_READ)


def _is_due(folder: Path) -> bool:
    """Return True if the layer was made or read more than a day ago, or has no list yet (older releases wrote none)."""
    times = [path.stat().st_mtime for path in (folder / LIST, folder / READ) if path.exists()]
    return not times or max(times) < time.time() - _DAY


def _kept(images: Path, key: str) -> CachedLayer:
    folder, found = layer_cache.shelf(images) / key, layer_cache.entry(images, key)
    if found is None:
        raise BadTask(f"layer {key[:12]} is not in {layer_cache.shelf(images)}", hint="build the image's layers first")
    return CachedLayer(name=found.name, key=key, folder=str(folder.absolute()), digest=found.content.digest)


def _sentence(one: CachedLayer, paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    what = f"{', '.join(f'/{path}' for path in paths[:_NAMED])}{more} changed in the cache" if paths else "its bytes have changed"
    return f"layer {one.name} ({one.key[:12]}) is no longer what was built: {what}"
