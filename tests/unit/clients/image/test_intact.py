"""Layers are read again where an image is packed from them: a changed byte is named, and the cache gives the layer up."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from steps.errors import BadTask
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.layer import layer_cache, layer_content, layer_integrity
from steps.nodeimage.layer.layer_build import LIST, TREE
from tests.unit import small_image
from tests.unit.clients.image import trees


@pytest.fixture
def recipe() -> Recipe:
    if os.geteuid() != 0:
        pytest.skip("layers are read in a namespace, as root")
    return small_image.recipe()


def folder(images: Path, recipe: Recipe, name: str) -> Path:
    return layer_cache.shelf(images) / build_keys.layers(recipe)[name]


def age(place: Path) -> None:
    """A layer that was made, and read, days ago."""
    for name in (LIST, layer_integrity.READ):
        if (place / name).exists():
            os.utime(place / name, (1, 1))


def test_a_layer_is_read_where_nobody_has_for_a_day(tmp_path: Path, recipe: Recipe) -> None:
    images = trees.store(tmp_path, recipe)
    place = folder(images, recipe, "hpc")
    layer_integrity.require(images, recipe)
    assert not (place / layer_integrity.READ).exists(), "it was just made"
    age(place)
    layer_integrity.require(images, recipe)
    (place / TREE / "etc/motd").write_text("hullo\n")
    layer_integrity.require(images, recipe)
    age(place)
    with pytest.raises(BadTask, match="no longer what was built"):
        layer_integrity.require(images, recipe)


def test_layers_as_they_were_built_pass(tmp_path: Path, recipe: Recipe) -> None:
    images = trees.store(tmp_path, recipe)
    for name in build_keys.layers(recipe):
        age(folder(images, recipe, name))
    layer_integrity.require(images, recipe)
    assert [layer_integrity.verify(images, key) for key in build_keys.layers(recipe).values()] == ["", ""]


def test_a_byte_that_changed_in_its_place_is_named_by_layer_and_file(tmp_path: Path, recipe: Recipe) -> None:
    images = trees.store(tmp_path, recipe)
    place = folder(images, recipe, "hpc")
    (place / TREE / "etc/motd").write_text("hullo\n")
    age(place)
    assert layer_content.outline(place / TREE) == layer_cache.entry(images, place.name).content.outline, (
        "the quick check sees nothing"
    )
    with pytest.raises(BadTask, match=rf"^layer hpc \({place.name[:12]}\) is no longer what was built: /etc/motd changed") as told:
        layer_integrity.require(images, recipe)
    assert str(place) in told.value.hint
    assert layer_cache.entry(images, place.name) is None, "it is built anew by the next build"
    assert layer_cache.entry(images, folder(images, recipe, "base").name) is not None


def test_of_many_that_changed_some_are_named(tmp_path: Path, recipe: Recipe) -> None:
    images = trees.store(tmp_path, recipe)
    place = folder(images, recipe, "base")
    for name in "abcd":
        trees.write(place / TREE / f"opt/{name}")
    (place / TREE / "etc/motd").chmod(0o600)
    assert "/etc/motd, /opt/a, /opt/b and 2 more changed" in layer_integrity.verify(images, place.name)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"{}\n")])
def test_without_a_whole_list_the_layer_is_named(tmp_path: Path, recipe: Recipe, damage: Callable[[Path], object]) -> None:
    images = trees.store(tmp_path, recipe)
    place = folder(images, recipe, "base")
    damage(place / LIST)
    assert layer_integrity.verify(images, place.name) == "", "a list is no part of a layer"
    (place / TREE / "etc/motd").write_text("hullo\n")
    assert layer_integrity.verify(images, place.name).endswith("is no longer what was built: its bytes have changed")


def test_a_layer_that_is_not_there_is_one_sentence(tmp_path: Path, recipe: Recipe) -> None:
    with pytest.raises(BadTask, match=r"layer [0-9a-f]{12} is not in "):
        layer_integrity.require(tmp_path, recipe)
    assert "is not in" in layer_integrity.verify(tmp_path, "0" * 64)
