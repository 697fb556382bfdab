"""Services of a recipe in a real root: enabled, disabled and masked by the links that systemd goes by."""

import os
from pathlib import Path

import msgspec
import pytest

from steps.nodeimage.containment import namespace
from steps.nodeimage.contract.resolved_recipe import LayerService, Recipe, ResolvedLayer
from steps.nodeimage.layer import layer_cache
from tests.boot.builder import shipped

CLOCK, NETWORK = "systemd-timesyncd.service", "systemd-networkd.service"
"""Base enables both."""


class Look(msgspec.Struct):
    """Argument of `links`: a folder below the root."""

    folder: str = "etc/systemd/system"


def links(root: Path, look: Look) -> dict[str, str]:
    """Called in a namespace: where each link leads."""
    folder = root / look.folder
    return {str(path.relative_to(folder)): os.readlink(path) for path in folder.rglob("*") if path.is_symlink()}


def units(images: Path, recipe: Recipe) -> dict[str, str]:
    return namespace.call(layer_cache.stack(images, recipe), f"{__name__}:links", Look(), dict[str, str], seconds=60)


def masked(found: dict[str, str]) -> set[str]:
    return {unit for unit, target in found.items() if target == "/dev/null"}


def wanted(found: dict[str, str], unit: str) -> list[str]:
    return [name for name in found if name.endswith(f".wants/{unit}")]


def test_services_are_in_the_state_that_the_recipe_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Base masks what changes an image; a layer above switches one service off, and masks another."""
    images, recipe = shipped.store(tmp_path_factory.getbasetemp(), "base")
    timers = {service.unit for service in recipe.layers[0].services if service.state == "masked"}
    below = units(images, recipe)
    assert timers
    assert masked(below) == timers
    assert wanted(below, CLOCK) == [f"sysinit.target.wants/{CLOCK}"]
    assert wanted(below, NETWORK) == [f"multi-user.target.wants/{NETWORK}"]
    states = (LayerService(unit=CLOCK, state="disabled"), LayerService(unit=NETWORK, state="masked"))
    above = msgspec.structs.replace(recipe, layers=(*recipe.layers, ResolvedLayer(name="states", services=states)))
    shipped.build(images, above)
    now = units(images, above)
    assert masked(now) == {*timers, NETWORK}
    assert wanted(now, CLOCK) == []
    assert {name for name in below if name not in now} == {
        f"sysinit.target.wants/{CLOCK}",
        "dbus-org.freedesktop.timesync1.service",
    }
