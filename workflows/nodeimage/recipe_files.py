"""Read files that a recipe places, from its own folder only, and find the recipes that bringup ships."""

import os
from pathlib import Path
from typing import Final

from steps.nodeimage.contract.resolved_recipe import MAX_BYTES
from workflows.spec.errors import SpecError

MOST: Final = MAX_BYTES * 3 // 4
"""Limit in bytes of all own files of a recipe together; they travel as base64."""
FIX: Final = "put large ones into a package"
_LFS: Final = b"version https://git-lfs.github.com/spec/"


class CannotTake(Exception):
    """Exception for a recipe's file that cannot be used; the message says why, `fix` what to do."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


def read(folder: Path, source: str) -> bytes:
    """Return the bytes of a regular file below the folder. Raises CannotTake, also for a link that leads out of the folder."""
    path = folder / source
    try:
        target = path.resolve(strict=True)
        if not target.is_relative_to(folder.resolve()):
            raise CannotTake("a link leads out of the recipe's folder", f"put the file itself at {path}")
        if not target.is_file():
            raise CannotTake("it is no regular file", f"put a file at {path}")
        with os.fdopen(os.open(target, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            data = file.read(MOST + 1)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise CannotTake(getattr(error, "strerror", None) or "its links are a circle", f"put it at {path}") from error
    if data.startswith(_LFS):
        raise CannotTake("it is a pointer of Git LFS and not the file", f"run git lfs pull, or keep it in Git itself; {FIX}")
    if len(data) > MOST:
        raise CannotTake(f"it has more than {MOST} bytes", FIX)
    return data


def as_error(error: CannotTake, path: str, source: str) -> SpecError:
    """Return CannotTake as a spec error at `path`, the path of the key that names the file `source`."""
    return SpecError(path, f"the file cannot be read: {error}", error.fix, source)


IMAGES = Path(__file__).parents[2] / "images"
"""Folder `images` of the checkout, or beside `workflows` in an installed wheel."""
RECIPES = IMAGES / "recipes"
BOOT = IMAGES / "boot"
BOOT_FILES = BOOT / "files.yaml"


def shipped_names() -> tuple[str, ...]:
    """Return the names of the shipped recipes, sorted."""
    return tuple(sorted(path.stem for path in RECIPES.glob("*.yaml")))


def shipped_path(name: str) -> Path | None:
    """Return the file of a shipped recipe; None if there is none of this name."""
    return RECIPES / f"{name}.yaml" if name in shipped_names() else None
