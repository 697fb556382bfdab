"""Removes folders of the image store, also those whose files belong to the subordinate ids of a user."""

import shutil
from pathlib import Path

from msgspec import Struct

from steps import timeouts
from steps.clients.image.contained import kernel, namespace


class Doomed(Struct, frozen=True, kw_only=True):
    """A folder to remove."""

    folder: str


def remove(folder: Path) -> None:
    """Remove a folder with all that is in it; nothing happens where there is none."""
    if not folder.exists():
        return
    if kernel.may_mount():
        shutil.rmtree(folder)
    else:
        namespace.call((), f"{__name__}:inside", Doomed(folder=str(folder.absolute())), bool, seconds=timeouts.IMAGE_READ)


def inside(root: Path, doomed: Doomed) -> bool:
    """The same as root of a user namespace."""
    shutil.rmtree(root / doomed.folder)
    return True
