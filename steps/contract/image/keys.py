"""Keys of what a build makes: pure functions of the recipe, so that the plan knows them before anything is built."""

from typing import Final

from steps.contract.canonical import digest
from steps.contract.image.recipe import Recipe

BUILDER: Final = 2
"""Raised whenever the builder would give other bytes for the same recipe: all layers are built anew then."""
PACKER: Final = 4
"""The same for squashfs, initrd, manifest and OCI archive."""


def layers(recipe: Recipe) -> dict[str, str]:
    """Key of each layer, lowest first, over all that its root is made of: the parent, its packages, files, commands, users and
    services, the time of its files and the builder's version. 64 hex digits."""
    found: dict[str, str] = {}
    parent = ""
    for layer in recipe.layers:
        where = {"distribution": recipe.distribution, "release": recipe.release, "architecture": recipe.architecture}
        content = {
            "packages": [[one.name, one.version, one.architecture, one.sha256, one.asked, one.essential] for one in layer.packages],
            "users": layer.users,
            "files": layer.files,
            "commands": layer.commands,
            "services": layer.services,
        }
        parent = _hex({"builder": BUILDER, "parent": parent, "epoch": recipe.epoch, **where, **content})
        found[layer.name] = parent
    return found


def top(recipe: Recipe) -> str:
    """Key of the whole root: that of the uppermost layer."""
    return list(layers(recipe).values())[-1]


def image(recipe: Recipe) -> str:
    """Key of the packed image: all of the recipe (tests too: an image is published with those that it passed) and both versions of
    ours. 64 hex digits."""
    return _hex({"packer": PACKER, "builder": BUILDER, "recipe": recipe.digest})


def _hex(value: object) -> str:
    return digest(value).removeprefix("sha256:")
