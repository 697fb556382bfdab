"""Reads a recipe's own files: from its folder alone, whatever links say, and none that could not travel with it."""

import os
from pathlib import Path
from typing import Final

from steps.contract.image.recipe import MAX_BYTES
from workflows.spec.errors import SpecError

MOST: Final = MAX_BYTES * 3 // 4
"""Bytes of all of them together: they travel as base64."""
FIX: Final = "put large ones into a package"
_LFS: Final = b"version https://git-lfs.github.com/spec/"


class CannotTake(Exception):
    """The file is not taken; the message says why, `fix` what to do."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


def read(folder: Path, source: str) -> bytes:
    """The bytes of a regular file below the folder. Raises CannotTake."""
    path = folder / source
    try:
        place = path.resolve(strict=True)
        if not place.is_relative_to(folder.resolve()):
            raise CannotTake("a link leads out of the recipe's folder", f"put the file itself at {path}")
        if not place.is_file():
            raise CannotTake("it is no regular file", f"put a file at {path}")
        return _read(place)
    except (OSError, RuntimeError) as error:  # RuntimeError: links in a circle
        raise CannotTake(getattr(error, "strerror", None) or "its links are a circle", f"put it at {path}") from error


def as_error(why: CannotTake, place: str, source: str) -> SpecError:
    """The same as an error of a recipe."""
    return SpecError(place, f"the file cannot be read: {why}", why.fix, source)


def _read(place: Path) -> bytes:
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        data = file.read(MOST + 1)
    if data.startswith(_LFS):
        raise CannotTake("it is a pointer of Git LFS and not the file", f"run git lfs pull, or keep it in Git itself; {FIX}")
    if len(data) > MOST:
        raise CannotTake(f"it has more than {MOST} bytes", FIX)
    return data
