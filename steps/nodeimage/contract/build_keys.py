"""Keys of layers and packed images: hashes of all that determines their bytes, known from the recipe before anything is built."""

from typing import Final

from steps.contract.canonical import digest
from steps.nodeimage.contract.resolved_recipe import Recipe

BUILDER: Final = 2
"""Version of the layer builder: raised whenever it would write other bytes for the same recipe, so that all layers are built anew.
"""
PACKER: Final = 4
"""Version of the code that packs squashfs, initrd, manifest and OCI archive: raised whenever it would write other bytes."""


def layers(recipe: Recipe) -> dict[str, str]:
    """Return layer name → key (64 hex digits), lowest layer first.

    A key covers all that the root of the layer is made of: the key of the layer below, its packages, files, commands, users and
    services, the time of its files and the version of the builder.
    """
    keys: dict[str, str] = {}
    parent = ""
    for layer in recipe.layers:
        where = {"distribution": recipe.distribution, "release": recipe.release, "architecture": recipe.architecture}
        content = {
            "packages": [
                [package.name, package.version, package.architecture, package.sha256, package.asked, package.essential]
                for package in layer.packages
            ],
            "users": layer.users,
            "files": layer.files,
            "commands": layer.commands,
            "services": layer.services,
        }
        parent = _hex({"builder": BUILDER, "parent": parent, "epoch": recipe.epoch, **where, **content})
        keys[layer.name] = parent
    return keys


def top(recipe: Recipe) -> str:
    """Return the key of the uppermost layer, which stands for the whole root file system."""
    return list(layers(recipe).values())[-1]


def image(recipe: Recipe) -> str:
    """Return the key of the packed image, as 64 hex digits.

    It covers the whole recipe, its tests too (an image is published with the tests that it passed), and the versions BUILDER and
    PACKER.
    """
    return _hex({"packer": PACKER, "builder": BUILDER, "recipe": recipe.digest})


def _hex(value: object) -> str:
    return digest(value).removeprefix("sha256:")
