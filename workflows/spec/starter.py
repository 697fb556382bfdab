"""The commented files that `bringup init` writes: valid as they stand, so the first edit starts from something that works."""

from __future__ import annotations

from pathlib import Path

_IMAGE = "compute"
"""The recipe of the example of an image spec."""


def starter() -> str:
    """Return the starter `cluster.yaml` with its comments."""
    return (Path(__file__).parent / "starter.yaml").read_text(encoding="utf-8")


def image(recipe: str, *, own_lock: bool = True) -> str:
    """Return an `image.yaml` for a shipped recipe with its comments; without `own_lock` it takes the lock that the recipe has."""
    from workflows import examples

    text = (Path(examples.__file__).parent / "images/image.yaml").read_text(encoding="utf-8")
    for key in ("name: ", "recipe: ", "lock: "):
        text = text.replace(f"\n{key}{_IMAGE}", f"\n{key if own_lock or key != 'lock: ' else '# lock: '}{recipe}", 1)
    return text
