"""Stage image_standing: whether what nodes boot is this very image already, and whether a person went back from it."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from steps.contract.evidence import seen

ID: Final = "image_standing"
TASK: Final = "tree"
OUTPUT: Final = "standing"
CURRENT, CHANGED = "current", "changed"
"""Values of that output: this image is published, so nothing is left to do; or everything after it is done."""
MOST_NAMED: Final = 3
"""Packages of a kind that one line names; the report has all."""
LEFT, NOTHING = "left", "nothing"
"""What else a tree may answer: a rollback left this image; it has no version yet."""


class Standing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The published tree, asked before anything is built. `key` is the image that was looked for, `where` the tree, `answer` one of
    the four above, `version` what its pointer names; `differs` says the first thing by which that is not this image as it would be
    published now; `left` is the version of this image that a rollback left, `left_by` who did that and `left_at` when (UTC
    seconds)."""

    key: str
    where: str
    answer: str
    version: str = ""
    differs: str = ""
    left: str = ""
    left_by: str = ""
    left_at: float = 0.0
    packages_added: tuple[str, ...] = ()
    packages_removed: tuple[str, ...] = ()
    packages_changed: tuple[str, ...] = ()
    """Of this image against the version that the pointer names: `name=version`, and `name old → new`."""

    @property
    def against(self) -> str:
        """How its packages differ from the published ones, for who decides whether it is published; empty where they are asked
        nothing: without a published version, or where this image is that."""
        if not self.version or self.is_current:
            return ""
        kinds = {"changed": self.packages_changed, "added": self.packages_added, "removed": self.packages_removed}
        told = [f"{len(rows)} {kind} ({_some(rows)})" for kind, rows in kinds.items() if rows]
        return f"packages against {self.version}: {', '.join(told) or 'the same'}"

    @property
    def is_current(self) -> bool:
        """Whether this very image is what nodes boot."""
        return self.answer == CURRENT and bool(self.version)

    @property
    def sentence(self) -> str:
        """What is told then."""
        return f"nothing changed: version {self.version} is this image"


def _some(rows: tuple[str, ...]) -> str:
    return ", ".join(rows[:MOST_NAMED]) + (f" and {len(rows) - MOST_NAMED} more" if len(rows) > MOST_NAMED else "")


def against(observations: Iterable[object]) -> str:
    """The same of what a run's records of this stage observed, the last one that can be read; empty where there is none."""
    found = ""
    for one in observations:
        if (standing := seen(one, Standing)) is not None:
            found = standing.against
    return found


class Wanted(Struct, frozen=True, kw_only=True):
    """Key of the image that is to be published."""

    key: str
