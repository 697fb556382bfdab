"""What a store says that has no room, or is away, as an error that may pass."""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Final

from steps.errors import StoreBusy

_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE)
_SAID: Final = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT))
HINT: Final = (
    "make room (`bringup image gc`), or use another disk (BRINGUP_HOME); in a home cluster the pod of "
    "workflows/examples/images/collect.yaml makes room, and a larger claim has more"
)


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Around whatever writes to the store of images. Raises StoreBusy where the disk is full, read-only or away."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StoreBusy(f"the store of images cannot be written: {error.strerror}", hint=HINT) from error


def heard(said: str, what: str) -> None:
    """After a program that failed. Raises StoreBusy where it said that the disk is full; `what` it could not do is told."""
    if any(words in said for words in _SAID):
        raise StoreBusy(f"the store of images is full: {what}", hint=HINT)
