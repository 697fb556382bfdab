"""Finds the recipes that bringup ships, and the files that let a booted node run its tests."""

from pathlib import Path

IMAGES = Path(__file__).parents[3] / "images"
"""`images` of the checkout, or beside `workflows` where a wheel is installed."""
RECIPES = IMAGES / "recipes"
BOOT = IMAGES / "boot"
BOOT_FILES = BOOT / "files.yaml"


def names() -> tuple[str, ...]:
    """Names of the shipped recipes, in order."""
    return tuple(sorted(path.stem for path in RECIPES.glob("*.yaml")))


def path(name: str) -> Path | None:
    """The file of a shipped recipe, if there is one of this name."""
    return RECIPES / f"{name}.yaml" if name in names() else None
