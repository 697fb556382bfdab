"""Stores of images with the layers of shipped recipes, built once a test session."""

import dataclasses
import fcntl
import functools
import gzip
import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import Package, Recipe, ResolvedLayer
from steps.nodeimage.layer import layer_cache, package_archive
from workflows.nodeimage import lock_creation, recipe_resolution

ROOT = Path(__file__).parents[3]
NO_SECRETS = Path("/nonexistent")
SHARED = ("layers", "archive")
EXAMPLE = "bringup-example"


def quiet(_: str) -> None:
    """Nobody listens."""


@functools.cache
def resolved(name: str) -> recipe_resolution.Resolved:
    """A shipped recipe."""
    return recipe_resolution.resolve(recipe_resolution.recipe_request(name, ROOT))


@functools.cache
def store(base: Path, name: str) -> tuple[Path, Recipe]:
    """A store below `base` with the built layers of a shipped recipe, and its recipe with the newest packages.

    Sites of other tests lock the newest packages too, so a layer that they have in common is built once in a test run.
    """
    images, shared = base / "images", common(base)
    recipe = relocked(name, shared)
    images.mkdir(exist_ok=True)
    for kept in SHARED:
        if not (images / kept).exists():
            (images / kept).symlink_to(shared / kept)
    assert package_archive.fill(images, recipe, quiet).missing == ()
    build(images, recipe)
    return images, recipe


def common(base: Path) -> Path:
    """The folder with layers and packages that all processes of a test run share; `base` is where this one keeps its files."""
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    for kept in SHARED:
        (folder / kept).mkdir(parents=True, exist_ok=True)
    return folder


def tree(images: Path, recipe: Recipe, layer: str) -> Path:
    """Return the folder with the files that a layer of a recipe adds."""
    return layer_cache.shelf(images) / build_keys.layers(recipe)[layer] / layer_cache.TREE


def relocked(name: str, folder: Path) -> Recipe:
    """The recipe with what its repositories have today; its lock lies in the folder that all processes share, and is made once."""
    asked = dataclasses.replace(recipe_resolution.recipe_request(name, ROOT), lock=str(folder / f"{name}.lock.json"))
    with (folder / f"{name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not Path(asked.lock).exists():
            lock_creation.write(lock_creation.create_lock(asked), Path(asked.lock))
    return recipe_resolution.resolve(asked).recipe


def build(images: Path, recipe: Recipe, more: Mapping[str, bytes] | None = None) -> None:
    """Build what is missing of a recipe's layers; `more`: files that the shipped recipes do not have."""
    files = {**resolved("base").files, **resolved("compute").files, **(more or {})}
    for layer in recipe.names:
        built = layer_cache.build(images, recipe, files, layer, NO_SECRETS, quiet)
        assert not built.failed, f"{layer}: {built.failed}: {built.output}"


def with_example(images: Path, recipe: Recipe) -> Recipe:
    """The recipe with one small package more, as a site would add it; the package is put into the archive."""
    data = _debian_package(recipe.architecture)
    digest = hashlib.sha256(data).hexdigest()
    place = package_archive.path(images, digest)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    one = Package(
        name=EXAMPLE,
        version="1.0",
        architecture=recipe.architecture,
        sha256=digest,
        size=len(data),
        path=f"pool/{EXAMPLE}.deb",
        asked=True,
    )
    return msgspec.structs.replace(recipe, layers=(*recipe.layers, ResolvedLayer(name="site", packages=(one,))))


def beside(images: Path, folder: Path, *kept: str) -> Path:
    """Another store, with some folders of the first one: `layers`, or `archive`."""
    other = folder / "other" / "images"
    other.mkdir(parents=True)
    for name in kept:
        (other / name).symlink_to(images / name)
    return other


def upper(folder: Path) -> Path:
    """An empty folder to lay over a root."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755, parents=True)
    return folder


def _debian_package(architecture: str) -> bytes:
    """A package with one program, written here: equal bytes each time."""
    control = f"Package: {EXAMPLE}\nVersion: 1.0\nArchitecture: {architecture}\nMaintainer: nobody <nobody@example.org>\n"
    control += "Description: one program, for tests of node images\n"
    program = b"#!/bin/sh\necho example\n"
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": _tar({"./control": (control.encode(), 0o644)}),
        "data.tar.gz": _tar({"./usr/bin/bringup-example": (program, 0o755)}),
    }
    whole = b"!<arch>\n"
    for name, data in members.items():
        whole += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return whole


def _tar(files: dict[str, tuple[bytes, int]]) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.GNU_FORMAT) as made:
        folders = sorted({str(parent) for name in files for parent in Path(name).parents if str(parent) != "."})
        for folder in folders:
            one = tarfile.TarInfo(f"./{folder}")
            one.type, one.mode = tarfile.DIRTYPE, 0o755
            made.addfile(one)
        for name, (data, mode) in files.items():
            one = tarfile.TarInfo(name)
            one.size, one.mode = len(data), mode
            made.addfile(one, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)
