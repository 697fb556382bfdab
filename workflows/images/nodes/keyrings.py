"""Keys that sign repositories, by paths that apt can be told of."""

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from workflows.images.errors import BuildError

_PLAIN: Final = re.compile(r"/[\w/.+~@:=-]*")
"""A path that means itself in a line of sources.list: a blank or a comma ends it there, and apt knows no way to quote them."""
_ARMOURED: Final = ".asc"
"""apt tells an armoured key by its name alone."""


def named(keyrings: Iterable[str], folder: Path) -> Mapping[str, str]:
    """What a line of sources.list calls each key, by its absolute path: that path, or a copy in `folder`, which is made, where it
    cannot stand there. Raises BuildError for a key that cannot be read."""
    folder.mkdir(exist_ok=True)
    return {one: one if _PLAIN.fullmatch(one) else _copied(one, folder) for one in dict.fromkeys(keyrings)}


def _copied(keyring: str, folder: Path) -> str:
    copy = folder / f"{len(list(folder.iterdir()))}{_ARMOURED if keyring.endswith(_ARMOURED) else '.gpg'}"
    try:
        shutil.copyfile(keyring, copy)
    except OSError as error:
        raise BuildError(f"{keyring}, the key of a repository, cannot be read: {error.strerror}") from error
    return str(copy)
