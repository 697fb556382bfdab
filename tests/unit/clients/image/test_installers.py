"""A layer records the versions of the tools that installed its packages; a cached layer made with other versions is reported."""

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.layer import layer_cache
from tests.unit import small_image
from tests.unit.clients.image import trees


@pytest.fixture
def recipe() -> Recipe:
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        pytest.skip("layers are installed by apt, and taken by the user who built them")
    return small_image.recipe()


def taken(images: Path, recipe: Recipe) -> list[str]:
    """Return the messages printed when the lowest layer is taken from the cache."""
    said: list[str] = []
    built = layer_cache.build(images, recipe, {}, "base", Path("/nonexistent"), said.append)
    assert built.cached
    return said


def test_each_version_is_a_number(recipe: Recipe) -> None:
    found = layer_cache.installers_of(recipe.layers[0])
    assert sorted(found) == ["apt", "dpkg-deb", "tar"]
    assert all(version[0].isdigit() and "." in version for version in found.values()), found
    assert layer_cache.installers_of(replace(recipe.layers[0], packages=())) == {}


def test_a_layer_that_others_made_is_taken_and_told(tmp_path: Path, recipe: Recipe) -> None:
    here = layer_cache.installers_of(recipe.layers[0])
    images = trees.store(tmp_path, recipe, {**here, "apt": "0.9"})
    assert taken(images, recipe) == [
        f"layer base was made by apt 0.9, here {here['apt']}: this machine may make other bytes of it",
    ]


@pytest.mark.parametrize("known", [True, False])
def test_nothing_is_told_of_the_same_versions_nor_of_unknown_ones(tmp_path: Path, recipe: Recipe, known: bool) -> None:
    images = trees.store(tmp_path, recipe, layer_cache.installers_of(recipe.layers[0]) if known else {})
    assert taken(images, recipe) == []
