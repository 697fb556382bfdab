"""Types of stage image_lock: the locked packages in the archive, and the expectation of its gate."""

from typing import Final

from msgspec import Struct

PRODUCT: Final = "nodeimage"
"""Folder of `steps` with the tasks and the report of this stage."""

ID: Final = "image_lock"
TASK: Final = "archive"
"""Name of the task that fetches the locked packages into the archive."""


class Archive(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate image_lock/archive: the locked packages in the store's package archive.

    `missing` and `wrong` (with other bytes than the locked ones) are `name=version`. `fetched` packages were downloaded now, `kept`
    ones were there. `recipe` is the digest of the recipe. `problems` are the mirrors' reasons for missing packages. `away` counts
    the missing packages whose mirror did not answer, which may pass.
    """

    recipe: str
    packages: int
    kept: int = 0
    fetched: int = 0
    bytes: int = 0
    missing: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    away: int = 0

    @property
    def is_only_away(self) -> bool:
        """Return True if packages are missing only because their mirrors did not answer."""
        return bool(self.missing) and not self.wrong and self.away == len(self.missing)


class ArchiveExpectation(Struct, frozen=True, kw_only=True):
    """Expectation of the gate image_lock/archive: the recipe's digest, its number of locked packages, and the commands that make
    the lock again."""

    recipe: str
    packages: int
    relock: str = ""
