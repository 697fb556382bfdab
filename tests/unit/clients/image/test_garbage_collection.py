"""Garbage is what nothing reaches, nobody used lately and nobody uses; the rest stays."""

import fcntl
import hashlib
import os
import time
from pathlib import Path

import msgspec
import pytest

from steps.nodeimage import garbage_collection
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import LayerCommand, Package, PackageRepository, Recipe, ResolvedLayer
from steps.nodeimage.garbage_collection import Roots
from steps.nodeimage.layer import package_archive
from steps.nodeimage.store import store_entries
from tests.unit.clients.image import trees

OLD = time.time() - 100_000
DAY = 86_400.0
DEB = "d" * 64


def recipe(*runs: str) -> Recipe:
    package = Package(name="a", version="1", architecture="all", sha256=DEB, size=1, path="a.deb", asked=True)
    layers = [ResolvedLayer(name="base", packages=(package,))]
    layers += [ResolvedLayer(name=f"layer{number}", commands=(LayerCommand(run=run),)) for number, run in enumerate(runs)]
    source = PackageRepository(url="http://deb.debian.org/debian", suite="bookworm")
    return Recipe(
        name="x",
        distribution="debian",
        release="bookworm",
        architecture="amd64",
        epoch=1,
        sources=(source,),
        layers=tuple(layers),
        kernel="k",
    )


def store(images: Path, *recipes: Recipe, used: float = OLD) -> Path:
    """A store with everything of some recipes, last used at a time."""
    for one in recipes:
        for key in build_keys.layers(one).values():
            trees.write(images / "layers" / key / "tree/etc/motd", "x" * 5000)
            trees.write(images / "layers" / key / "entry.json", "{}")
            trees.write(images / "oci" / f"{key}-zstd" / "layer.tar.zst", "x")
            trees.write(images / "layers" / f".{key}.lock")
        trees.write(images / "assembled" / build_keys.image(one) / "manifest.json", "{}")
    trees.write(images / "archive/dd" / f"{DEB}.deb", "x")
    trees.write(images / "archive/ee" / f"{'e' * 64}.deb", "x")
    trees.write(images / "initrds/group/abc/initrd.img", "x")
    for path in images.rglob("*"):
        os.utime(path, (used, used), follow_symlinks=False)
    return images


def names(found: garbage_collection.Collected) -> set[tuple[str, str]]:
    return {(one.kind, one.name) for one in found.removed}


def everything(images: Path) -> list[Path]:
    return sorted(path for path in images.rglob("*") if not path.name.endswith(".lock"))


def test_what_no_recipe_reaches_goes(tmp_path: Path) -> None:
    kept, gone = recipe("one"), recipe("other")
    images = store(tmp_path, kept, gone)
    found = garbage_collection.collect(images, garbage_collection.of_recipe(kept), recent=DAY, dry_run=False, packages=True)
    key = build_keys.layers(gone)["layer0"]
    assert names(found) == {
        ("layers", key),
        ("oci", f"{key}-zstd"),
        ("assembled", build_keys.image(gone)),
        ("archive", "e" * 64),
        ("initrds", "abc"),
    }
    assert sorted(path.name for path in (images / "layers").iterdir() if path.is_dir()) == sorted(build_keys.layers(kept).values())
    assert (images / "archive/dd" / f"{DEB}.deb").exists()
    assert next(one for one in found.removed if one.kind == "layers").size >= 5000
    assert found.kept == 6


def test_packages_go_only_where_asked(tmp_path: Path) -> None:
    images = store(tmp_path, recipe("one"))
    found = garbage_collection.collect(images, Roots(), recent=DAY, dry_run=False)
    assert "archive" not in {one.kind for one in found.removed}
    assert len(list((images / "archive").glob("*/*.deb"))) == found.kept == 2


def test_a_dry_run_tells_the_same_and_changes_nothing(tmp_path: Path) -> None:
    images = store(tmp_path, recipe("one"), recipe("other"))
    roots = garbage_collection.of_recipe(recipe("one"))
    before = sorted(images.rglob("*"))
    told = garbage_collection.collect(images, roots, recent=DAY, dry_run=True)
    assert sorted(images.rglob("*")) == before
    assert names(told) == names(garbage_collection.collect(images, roots, recent=DAY, dry_run=False))
    assert garbage_collection.collect(images, roots, recent=DAY, dry_run=False).removed == ()


def test_what_was_used_lately_stays(tmp_path: Path) -> None:
    images = store(tmp_path, recipe("one"), used=time.time())
    before = everything(images)
    assert garbage_collection.collect(images, Roots(), recent=DAY, dry_run=False).removed == ()
    assert everything(images) == before


def test_pins_stay(tmp_path: Path) -> None:
    images, one = store(tmp_path, recipe("one")), recipe("one")
    pins = {build_keys.layers(one)["base"], build_keys.image(one), "e" * 64}
    found = garbage_collection.collect(images, garbage_collection.of_pins(pins), recent=DAY, dry_run=False, packages=True)
    assert {name for _, name in names(found)} & pins == set()
    assert found.kept == 4  # the layer, its OCI blob, the image, the package


@pytest.mark.parametrize("lock", ["tree", "building"])
def test_what_a_build_uses_stays(tmp_path: Path, lock: str) -> None:
    images, one = store(tmp_path, recipe("one")), recipe("one")
    key = build_keys.layers(one)["layer0"]
    place = images / "layers" / key / "tree" if lock == "tree" else images / "layers" / f".{key}.lock"
    handle = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if lock == "tree" else fcntl.LOCK_EX)
        found = garbage_collection.collect(images, Roots(), recent=DAY, dry_run=False)
    finally:
        os.close(handle)
    assert [(used.kind, used.name) for used in found.in_use] == [("layers", key)]
    assert (images / "layers" / key / "entry.json").exists()


def test_an_image_that_is_held_stays(tmp_path: Path) -> None:
    images = store(tmp_path, recipe("one"))
    place = images / "assembled" / build_keys.image(recipe("one"))
    with store_entries.hold_entry(place), store_entries.hold_entry(place):
        found = garbage_collection.collect(images, Roots(), recent=DAY, dry_run=False)
    assert [(used.kind, used.name) for used in found.in_use] == [("assembled", place.name)]
    assert place.is_dir()
    assert ("assembled", place.name) in names(garbage_collection.collect(images, Roots(), recent=DAY, dry_run=False))
    assert not place.exists()


def test_packages_stay_while_some_are_installed(tmp_path: Path) -> None:
    images = store(tmp_path, recipe("one"))
    handle = os.open(images / "archive", os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        found = garbage_collection.collect(images, Roots(), recent=DAY, dry_run=False, packages=True)
    finally:
        os.close(handle)
    assert {one.kind for one in found.in_use} == {"archive"}
    assert len(list((images / "archive").glob("*/*.deb"))) == 2


def test_half_made_entries_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    layers = tmp_path / "layers"
    for key in ("a" * 64, "b" * 64):
        trees.write(layers / f".{key}.part12/tree/x", "x")
        trees.write(layers / f".{key}.lock")
    handle = os.open(layers / f".{'b' * 64}.lock", os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        found = garbage_collection.collect(tmp_path, Roots(), recent=DAY, dry_run=False)
    finally:
        os.close(handle)
    assert [one.kind for one in found.removed] == ["half made"]
    assert sorted(path.name for path in layers.iterdir() if path.is_dir()) == [f".{'b' * 64}.part12"]


def test_half_made_initial_ram_disks_go_too(tmp_path: Path) -> None:
    trees.write(tmp_path / "initrds/group/.abc.part12/initrd.img", "x" * 5000)
    trees.write(tmp_path / "initrds/group/.abc.lock")
    found = garbage_collection.collect(tmp_path, Roots(), recent=DAY, dry_run=False)
    assert [(one.kind, one.name) for one in found.removed] == [("half made", ".abc.part12")]
    assert not (tmp_path / "initrds/group/.abc.part12").exists()


def test_packages_that_a_run_has_just_counted_on_stay(tmp_path: Path) -> None:
    """A run marks the kept packages that it needs as used, so a collector that does not know its recipe yet leaves them."""
    data = b"a package"
    digest = hashlib.sha256(data).hexdigest()
    place = package_archive.path(tmp_path, digest)
    place.parent.mkdir(parents=True)
    place.write_bytes(data)
    os.utime(place, (OLD, OLD))
    package = Package(name="a", version="1", architecture="amd64", sha256=digest, size=len(data), path="a.deb")
    wanted = msgspec.structs.replace(recipe("one"), layers=(ResolvedLayer(name="base", packages=(package,)),))
    assert package_archive.fill(tmp_path, wanted, lambda _: None, ()).kept == 1
    garbage_collection.collect(tmp_path, Roots(), recent=DAY, dry_run=False, packages=True)
    assert place.exists()
    noted = place.stat().st_mtime_ns
    package_archive.fill(tmp_path, wanted, lambda _: None, ())
    assert place.stat().st_mtime_ns == noted, "a run that changes nothing writes nothing"


def test_an_empty_store_has_no_garbage(tmp_path: Path) -> None:
    found = garbage_collection.collect(tmp_path, Roots(), recent=0, dry_run=False)
    assert (found.removed, found.in_use, found.kept) == ((), (), 0)
