"""Assembly of an image: squashfs of the root, kernel, initrd, OCI archive and manifest, made once for each image key."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from steps import timeouts
from steps.contract import oci
from steps.errors import BadTask
from steps.nodeimage.containment import namespace
from steps.nodeimage.contract import build_keys, debian, image_manifest
from steps.nodeimage.contract.image_manifest import MANIFEST, OCI, PARTS, LayerOf, Manifest, ManifestError, PackageOf
from steps.nodeimage.contract.resolved_recipe import Package, Recipe
from steps.nodeimage.files import oci_layers, readback, root_packing
from steps.nodeimage.layer import layer_cache, layer_integrity
from steps.nodeimage.store import programs, store_entries
from steps.stages.image_assemble.contract import Assembled

FOLDER, INITRDS, BLOBS = "assembled", "initrds", "oci"
"""Folders of the image store that this module fills."""
Say = Callable[[str], None]
Versions = dict[str, str]
"""Name → version of each packing tool; asked once for an image."""


def assemble(images: Path, recipe: Recipe, say: Say) -> Assembled:
    """Pack the image of a recipe whose layers are built, and return what a reader finds in it.

    An image that the same tool versions have packed before is reused. The key does not contain these versions, because it is known
    before anything is built. Raises BadTask, StoreBusy, Temporary.
    """
    begun, key, have = time.monotonic(), build_keys.image(recipe), _tools()
    place = images / FOLDER / key
    cached = place.is_dir() and _is_ours(place, have)
    if cached:
        store_entries.note_use(place / MANIFEST)
    else:
        new = store_entries.make_entry(images / FOLDER, key, good=lambda place: _is_ours(place, have))
        with store_entries.guard_writes(), new as work:
            cached = work is None  # another build has made it meanwhile
            if work is not None:
                _fill(images, recipe, work, have, say)
    assembled = readback.read(place, key)
    return msgspec.structs.replace(assembled, cached=cached, seconds=round(time.monotonic() - begun, 3))


def _tools() -> Versions | None:
    """Return name → version of the packing tools on this machine; None if one is not installed."""
    with contextlib.suppress(BadTask):
        return programs.tool_versions()
    return None


def _is_ours(place: Path, have: Versions | None) -> bool:
    """Return True if this machine's tool versions packed the image, or if that cannot be told (`readback` reports why)."""
    with contextlib.suppress(ManifestError, OSError):
        return have is None or image_manifest.decode((place / MANIFEST).read_bytes()).tools == have
    return True


def _fill(images: Path, recipe: Recipe, work: Path, have: Versions | None, say: Say) -> None:
    if recipe.epoch > time.time():
        until = datetime.fromtimestamp(recipe.epoch, UTC).isoformat()
        raise BadTask(
            f"recipe {recipe.name} dates its files {until}, which is to come", hint="set this machine's clock, or the epoch"
        )
    stack = layer_cache.stack(images, recipe)
    versions = programs.tool_versions() if have is None else have  # without a tool it is said which
    if twin := _twin(images, recipe, work, versions):
        say(f"{recipe.name}: root, kernel and initrd are those of image {twin.key[:12]}")
        (work / MANIFEST).write_bytes(image_manifest.encode(_manifest(images, recipe, twin.kernel, work, versions)))
        return
    order = root_packing.Pack(out=str(work), epoch=recipe.epoch, initrds=str(images / INITRDS))
    with ThreadPoolExecutor(max_workers=2) as beside:
        archiving = beside.submit(_archive, images, recipe, stack, work, versions)
        pack = "steps.nodeimage.files.root_packing:pack"
        packing = beside.submit(namespace.call, stack, pack, order, root_packing.Packed, seconds=timeouts.IMAGE_SQUASH, say=say)
        archiving.result()  # first: a layer that has changed is why anything else fails
        packed = packing.result()
    parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in sorted(packed.seconds.items()))
    say(f"packed {recipe.name}: {parts}{', initrd as before' if packed.initrd_kept else ''}")
    shutil.rmtree(work / ".initrd", ignore_errors=True)
    _require_installed(recipe, packed.installed)
    (work / MANIFEST).write_bytes(image_manifest.encode(_manifest(images, recipe, packed.kernel, work, versions)))


def _twin(images: Path, recipe: Recipe, work: Path, versions: Versions) -> Manifest | None:
    """Return the manifest of another whole image with the same layers and tools, after linking its files into `work`; else None.

    Other tests, budgets or kernel arguments change none of these files.
    """
    alike = (recipe.name, recipe.epoch, tuple(build_keys.layers(recipe).values()), versions)
    for path in sorted((images / FOLDER).glob(f"*/{MANIFEST}")):
        with contextlib.suppress(ManifestError, OSError):
            other = image_manifest.decode(path.read_bytes())
            same = alike == (other.name, other.epoch, tuple(layer.key for layer in other.layers), other.tools)
            if same and _link_parts(path.parent, other, work):
                return other
    return None


def _link_parts(lender: Path, manifest: Manifest, work: Path) -> bool:
    """Link the files of another image into folder `work`; return False if they are not whole, or cannot be linked."""
    if readback.parts_of(lender) != manifest.parts:
        return False
    try:
        for part in manifest.parts:
            os.link(lender / part.name, work / part.name)
    except OSError:  # a file system without hard links, or files of another user: nothing may be written through half of them
        for name in PARTS:
            (work / name).unlink(missing_ok=True)
        return False
    return True


def _archive(images: Path, recipe: Recipe, stack: tuple[Path, ...], work: Path, versions: Versions) -> None:
    """Write the OCI archive of the root, with one blob for each layer; blobs are packed once and kept.

    Layers are verified first, so that no blob is kept of a layer that has changed since it was built.
    """
    layer_integrity.require(images, recipe)
    blobs = []
    named = {name: programs.mark(key, versions) for name, key in build_keys.layers(recipe).items()}
    for (name, key), tree in zip(named.items(), reversed(stack), strict=True):
        made_by = f"bringup image layer {name}"
        layer = oci_layers.OciLayer(tree=str(tree), key=key, kept=str(images / BLOBS), epoch=recipe.epoch, made_by=made_by)
        blobs.append(
            oci_layers.find(images / BLOBS, key)
            or namespace.call((), "steps.nodeimage.files.oci_layers:pack", layer, oci.Blob, seconds=timeouts.IMAGE_SQUASH)
        )
    places = {blob.digest: images / BLOBS / key / oci_layers.FILE for blob, key in zip(blobs, named.values(), strict=True)}
    created = datetime.fromtimestamp(recipe.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    settings = {
        "Cmd": ["/bin/bash"],
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "WorkingDir": "/",
    }
    config = oci.config(settings, blobs, recipe.architecture, created)
    with (work / OCI).open("wb") as file:
        name = f"bringup.local/node/{recipe.name}:{build_keys.top(recipe)[:12]}"
        oci.write(file, config, blobs, lambda blob: places[blob.digest].open("rb"), name=name, epoch=recipe.epoch)


def _manifest(images: Path, recipe: Recipe, kernel: str, work: Path, versions: Versions) -> Manifest:
    return Manifest(
        name=recipe.name,
        key=build_keys.image(recipe),
        recipe=recipe.digest,
        distribution=recipe.distribution,
        release=recipe.release,
        architecture=recipe.architecture,
        epoch=recipe.epoch,
        kernel=kernel,
        kernel_arguments=recipe.kernel_arguments,
        parts=readback.parts_of(work),
        layers=tuple(_layer(images, name, key) for name, key in build_keys.layers(recipe).items()),
        packages=tuple(
            PackageOf(name=each.name, version=each.version, architecture=each.architecture, sha256=each.sha256, layer=layer)
            for _, (each, layer) in sorted(_latest(recipe).items())
        ),
        tools=versions,
        tests=tuple(test.name for test in recipe.tests),
    )


def _layer(images: Path, name: str, key: str) -> LayerOf:
    built = layer_cache.entry(images, key)
    if built is None:
        raise BadTask(f"layer {name} ({key[:12]}) went away while it was packed", hint="build again")
    return LayerOf(name=name, key=key, digest=built.content.digest, size=built.content.size, files=built.content.files)


def _latest(recipe: Recipe) -> dict[tuple[str, str], tuple[Package, str]]:
    """Return (name, architecture) → package and the layer that brought it; of several versions the uppermost layer's counts."""
    return {(package.name, package.architecture): (package, layer.name) for layer in recipe.layers for package in layer.packages}


def _require_installed(recipe: Recipe, installed: Mapping[str, str]) -> None:
    locked = {name for name, _ in _latest(recipe)}
    there = {name for name, state in installed.items() if debian.is_whole(state)}
    if locked != there:
        odd = [f"{name} is locked and not installed" for name in sorted(locked - there)]
        odd += [f"{name} is installed and not locked" for name in sorted(there - locked)]
        raise BadTask(
            f"root of {recipe.name} and its lock differ: {'; '.join(odd[:4])} ({len(odd)} in all)", hint="lock the recipe anew"
        )
