"""Assembles an image: its root packed, its kernel and initrd, the root as an OCI archive, the manifest of all; made once a key."""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from steps import timeouts
from steps.clients.image import entries, room
from steps.clients.image.contained import namespace
from steps.clients.image.files import oci_layers, packing, readback, tools
from steps.clients.image.layer import intact, layers
from steps.contract import oci
from steps.contract.image import debian, keys, manifest
from steps.contract.image.manifest import MANIFEST, OCI, PARTS, LayerOf, Manifest, ManifestError, PackageOf, Part
from steps.contract.image.recipe import Package, Recipe
from steps.contract.stages.image_assemble import Assembled
from steps.errors import BadTask

FOLDER, INITRDS, BLOBS = "assembled", "initrds", "oci"
"""Folders of the images' store that this module fills."""
_ARCHITECTURES: Final = {"amd64": "amd64", "arm64": "arm64"}
Say = Callable[[str], None]
Versions = dict[str, str]
"""What the tools that pack say of themselves, by name; they are asked once for an image."""


def assemble(images: Path, recipe: Recipe, say: Say) -> Assembled:
    """The image of a recipe whose layers are built, read back; packed now unless it was before, by the same versions of tools: the
    key, which is known before anything is built, has them not. Raises BadTask, StoreBusy, Temporary."""
    begun, key, have = time.monotonic(), keys.image(recipe), _tools()
    place = images / FOLDER / key
    cached = place.is_dir() and _is_ours(place, have)
    if not cached:
        with room.needed():
            cached = not _made(images, recipe, have, say)
    else:
        entries.note_use(place / MANIFEST)
    found = readback.read(place, key)
    return msgspec.structs.replace(found, cached=cached, seconds=round(time.monotonic() - begun, 3))


def _tools() -> Versions | None:
    """The versions of tools that this machine has; None without one of them."""
    with contextlib.suppress(BadTask):
        return tools.versions()
    return None


def _made(images: Path, recipe: Recipe, have: Versions | None, say: Say) -> bool:
    """Make the entry; False where another build had made it meanwhile."""
    with entries.making(images / FOLDER, keys.image(recipe), good=lambda place: _is_ours(place, have)) as work:
        if work is not None:
            _fill(images, recipe, work, have, say)
        return work is not None


def _is_ours(place: Path, have: Versions | None) -> bool:
    """Whether an image was packed by the versions of tools that this machine has. One that cannot be read is told by `readback`; a
    machine without the tools takes what is there."""
    with contextlib.suppress(ManifestError, OSError):
        return have is None or manifest.decode((place / MANIFEST).read_bytes()).tools == have
    return True


def _fill(images: Path, recipe: Recipe, work: Path, have: Versions | None, say: Say) -> None:
    if recipe.epoch > time.time():
        until = datetime.fromtimestamp(recipe.epoch, UTC).isoformat()
        raise BadTask(
            f"recipe {recipe.name} dates its files {until}, which is to come", hint="set this machine's clock, or the epoch"
        )
    stack = layers.stack(images, recipe)
    versions = tools.versions() if have is None else have  # without a tool it is said which
    if twin := _twin(images, recipe, work, versions):
        say(f"{recipe.name}: root, kernel and initrd are those of image {twin.key[:12]}")
        (work / MANIFEST).write_bytes(manifest.encode(_manifest(images, recipe, twin.kernel, work, versions)))
        return
    told = packing.Pack(out=str(work), epoch=recipe.epoch, initrds=str(images / INITRDS))
    with ThreadPoolExecutor(max_workers=2) as beside:
        archived = beside.submit(_archive, images, recipe, stack, work, versions)
        pack = "steps.clients.image.files.packing:pack"
        packing_it = beside.submit(namespace.call, stack, pack, told, packing.Packed, seconds=timeouts.IMAGE_SQUASH, say=say)
        archived.result()  # first: a layer that has changed is why anything else fails
        packed = packing_it.result()
    parts = ", ".join(f"{part} {seconds:.1f} s" for part, seconds in sorted(packed.seconds.items()))
    say(f"packed {recipe.name}: {parts}{', initrd as before' if packed.initrd_kept else ''}")
    shutil.rmtree(work / ".initrd", ignore_errors=True)
    _require_installed(recipe, packed.installed)
    (work / MANIFEST).write_bytes(manifest.encode(_manifest(images, recipe, packed.kernel, work, versions)))


def _twin(images: Path, recipe: Recipe, work: Path, versions: Versions) -> Manifest | None:
    """Another image of the same layers, packed alike, whose files are whole: they become this one's too (other tests, another
    budget, other kernel arguments change no byte of them)."""
    alike = (recipe.name, recipe.epoch, tuple(keys.layers(recipe).values()), versions)
    for path in sorted((images / FOLDER).glob(f"*/{MANIFEST}")):
        with contextlib.suppress(ManifestError, OSError):
            found = manifest.decode(path.read_bytes())
            if alike == (found.name, found.epoch, tuple(layer.key for layer in found.layers), found.tools) and _lent(
                path.parent, found, work
            ):
                return found
    return None


def _lent(lender: Path, found: Manifest, work: Path) -> bool:
    if tuple(_parts(lender)) != found.parts:
        return False
    try:
        for part in found.parts:
            os.link(lender / part.name, work / part.name)
    except OSError:  # a file system without hard links, or files of another user: nothing may be written through half of them
        for name in PARTS:
            (work / name).unlink(missing_ok=True)
        return False
    return True


def _parts(folder: Path) -> list[Part]:
    with ThreadPoolExecutor(max_workers=len(PARTS)) as beside:
        return [part for part in beside.map(lambda name: readback.part_of(folder, name), PARTS) if part]


def _archive(images: Path, recipe: Recipe, stack: tuple[Path, ...], work: Path, versions: Versions) -> None:
    """The OCI archive: a blob of each layer, each packed once. Layers are read again before, so that no blob is kept of one
    that has changed since it was built."""
    intact.require(images, recipe)
    blobs = []
    named = {name: tools.mark(key, versions) for name, key in keys.layers(recipe).items()}
    for (name, key), tree in zip(named.items(), reversed(stack), strict=True):
        made_by = f"bringup image layer {name}"
        told = oci_layers.Layer(tree=str(tree), key=key, kept=str(images / BLOBS), epoch=recipe.epoch, made_by=made_by)
        blobs.append(
            oci_layers.find(images / BLOBS, key)
            or namespace.call((), "steps.clients.image.files.oci_layers:pack", told, oci.Blob, seconds=timeouts.IMAGE_SQUASH)
        )
    places = {blob.digest: images / BLOBS / key / oci_layers.FILE for blob, key in zip(blobs, named.values(), strict=True)}
    created = datetime.fromtimestamp(recipe.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    settings = {
        "Cmd": ["/bin/bash"],
        "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
        "WorkingDir": "/",
    }
    config = oci.config(settings, blobs, _ARCHITECTURES.get(recipe.architecture, recipe.architecture), created)
    with (work / OCI).open("wb") as file:
        name = f"bringup.local/node/{recipe.name}:{keys.top(recipe)[:12]}"
        oci.write(file, config, blobs, lambda blob: places[blob.digest].open("rb"), name=name, epoch=recipe.epoch)


def _manifest(images: Path, recipe: Recipe, kernel: str, work: Path, versions: Versions) -> Manifest:
    return Manifest(
        name=recipe.name,
        key=keys.image(recipe),
        recipe=recipe.digest,
        distribution=recipe.distribution,
        release=recipe.release,
        architecture=recipe.architecture,
        epoch=recipe.epoch,
        kernel=kernel,
        kernel_arguments=recipe.kernel_arguments,
        parts=tuple(_parts(work)),
        layers=tuple(_layer(images, name, key) for name, key in keys.layers(recipe).items()),
        packages=_packages(recipe),
        tools=versions,
        tests=tuple(test.name for test in recipe.tests),
    )


def _layer(images: Path, name: str, key: str) -> LayerOf:
    built = layers.entry(images, key)
    if built is None:
        raise BadTask(f"layer {name} ({key[:12]}) went away while it was packed", hint="build again")
    return LayerOf(name=name, key=key, digest=built.content.digest, size=built.content.size, files=built.content.files)


def _latest(recipe: Recipe) -> dict[tuple[str, str], tuple[Package, str]]:
    """Packages of the root by name and architecture, with the layer that brought this version."""
    return {(one.name, one.architecture): (one, layer.name) for layer in recipe.layers for one in layer.packages}


def _packages(recipe: Recipe) -> tuple[PackageOf, ...]:
    return tuple(
        PackageOf(name=one.name, version=one.version, architecture=one.architecture, sha256=one.sha256, layer=layer)
        for _, (one, layer) in sorted(_latest(recipe).items())
    )


def _require_installed(recipe: Recipe, installed: Mapping[str, str]) -> None:
    locked = {name for name, _ in _latest(recipe)}
    there = {name for name, state in installed.items() if debian.is_whole(state)}
    if locked != there:
        odd = [f"{name} is locked and not installed" for name in sorted(locked - there)]
        odd += [f"{name} is installed and not locked" for name in sorted(there - locked)]
        raise BadTask(
            f"root of {recipe.name} and its lock differ: {'; '.join(odd[:4])} ({len(odd)} in all)", hint="lock the recipe anew"
        )
