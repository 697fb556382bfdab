"""Stage image_lock: what of the locked packages the archive holds, and that all must be there before anything builds."""

from typing import Final

from msgspec import Struct

ID: Final = "image_lock"
TASK: Final = "archive"
"""The task that fetches them."""


class Archive(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The package archive of the store. `missing` and `wrong` (bytes that are not the locked ones) are `name=version`; `fetched`
    were brought in just now, `kept` were there; `recipe` is the digest of the recipe that was read; `problems` say why something is
    missing, in the mirror's words; `away` of those missing have a mirror that did not answer, which may pass."""

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
        """Whether nothing hinders but mirrors that did not answer."""
        return bool(self.missing) and not self.wrong and self.away == len(self.missing)


class Wanted(Struct, frozen=True, kw_only=True):
    """Digest of the recipe, and how many packages it locks. `relock`: how the one who builds makes that lock anew, in commands."""

    recipe: str
    packages: int
    relock: str = ""
