"""Integrity of cached layers: before packing, layers that nobody has read for a day are compared byte by byte with their digest.

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
from steps.contract import plain_text
from steps.errors import BadTask
from steps.nodeimage.containment import namespace
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.layer import layer_cache, layer_content
from steps.nodeimage.layer.layer_build import LIST, TREE

READ: Final = "read"
"""File in a cached layer's folder whose time says when the layer's bytes were last verified.

Reading a root of hundreds of MB for each small change would take as long as the change.
"""
_DAY: Final = 86_400.0
_NAMED: Final = 3
"""Number of changed paths that an error names."""


class CachedLayer(Struct, frozen=True, kw_only=True):
    """Cached layer to verify: its folder, and the digest of its content list as built."""

    name: str
    key: str
    folder: str
    digest: str


class IntegrityRequest(Struct, frozen=True):
    """Cached layers whose bytes are to be verified in a namespace."""

    layers: tuple[CachedLayer, ...]


Changes = dict[str, list[str]]
"""Key of each changed layer → its changed paths, as far as its content list tells them."""


def require(images: Path, recipe: Recipe) -> None:
    """Verify the layers of a recipe that nobody has read for a day.

    Raises BadTask if a layer has changed; it is then removed from the cache.
    """
    cached = [_kept(images, key) for key in build_keys.layers(recipe).values()]
    layers = [layer for layer in cached if _is_due(Path(layer.folder))]
    changes = _read(layers) if layers else {}
    for layer in layers:
        if layer.key not in changes:
            with suppress(OSError):  # a cache that others keep, which this user may only read
                Path(layer.folder, READ).touch()
    if not changes:
        return
    wrong = [layer for layer in layers if layer.key in changes]
    for layer in wrong:
        # a layer without one is built anew; others may be reading this
        (Path(layer.folder) / layer_cache.ENTRY).unlink(missing_ok=True)
    raise BadTask(
        "; ".join(_sentence(layer, changes[layer.key]) for layer in wrong),
        hint=f"build again: {wrong[0].folder} is removed and built anew; see what has written there, or whether the disk fails",
    )


def verify(images: Path, key: str) -> str:
    """Return an empty text if a cached layer's content is unchanged, else the difference in one sentence."""
    if layer_cache.entry(images, key) is None:
        return f"layer {key[:12]} is not in {layer_cache.shelf(images)}"
    layer = _kept(images, key)
    changes = _read([layer])
    return _sentence(layer, changes[key]) if changes else ""


def read(_: Path, request: IntegrityRequest) -> Changes:
    """Return the changed paths of those cached layers that are no longer as built; called in a namespace."""
    changes = {}
    for layer in request.layers:
        folder = Path(layer.folder)
        if (paths := layer_content.changed_paths(folder / TREE, layer.digest, folder / LIST)) is not None:
            changes[layer.key] = paths
    return changes


def _read(layers: Sequence[CachedLayer]) -> Changes:
    return namespace.call((), f"{__name__}:read", IntegrityRequest(tuple(layers)), Changes, seconds=timeouts.IMAGE_READ)


def _is_due(folder: Path) -> bool:
    """Return True if a layer was made or verified more than a day ago, or has no content list (older releases wrote none)."""
    times = [path.stat().st_mtime for path in (folder / LIST, folder / READ) if path.exists()]
    return not times or max(times) < time.time() - _DAY


def _kept(images: Path, key: str) -> CachedLayer:
    folder, entry = layer_cache.shelf(images) / key, layer_cache.entry(images, key)
    if entry is None:
        raise BadTask(f"layer {key[:12]} is not in {layer_cache.shelf(images)}", hint="build the image's layers first")
    return CachedLayer(name=entry.name, key=key, folder=str(folder.absolute()), digest=entry.content.digest)


def _sentence(layer: CachedLayer, paths: Sequence[str]) -> str:
    what = f"{plain_text.some([f'/{path}' for path in paths], _NAMED)} changed in the cache" if paths else "its bytes have changed"
    return f"layer {layer.name} ({layer.key[:12]}) is no longer what was built: {what}"
