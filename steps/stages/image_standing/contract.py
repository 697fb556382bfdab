"""Types of stage image_standing: is this image what nodes boot already, and did a person roll back from it."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from steps.contract import plain
from steps.contract.evidence import read_observation
from steps.contract.stage_contracts import Shortcut

PRODUCT: Final = "nodeimage"
"""Folder of `steps` with the tasks and the report of this stage."""

ID: Final = "image_standing"
TASK: Final = "tree"
OUTPUT: Final = "standing"
CURRENT, CHANGED = "current", "changed"
"""Values of the stage's output: `current`, this image is published and the later stages are skipped; `changed`, they run."""
MOST_NAMED: Final = 3
"""Most packages of a kind named in one line; the report has all."""
LEFT, NOTHING = "left", "nothing"
"""Further answers of a tree: a rollback left this image, or the tree has no version of it yet."""


class Standing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of the published tree, asked before anything is built.

    `key` is the image that was looked for, `where` the tree, `answer` one of the four answers above, `version` the version that its
    pointer names. `differs` is the first difference between that version and this image as it would be published now. `left` is the
    version of this image that a rollback left, by `left_by` at `left_at` (UTC seconds).
    """

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
    """Changes of this image against the version that the pointer names; entries are `name=version`, or `name old → new`."""

    @property
    def against(self) -> str:
        """Package changes against the published version, for the person who approves publishing.

        Empty if no decision is needed: nothing is published yet, or this image is current.
        """
        if not self.version or self.is_current:
            return ""
        kinds = {"changed": self.packages_changed, "added": self.packages_added, "removed": self.packages_removed}
        changes = [f"{len(rows)} {kind} ({plain.some(rows, MOST_NAMED)})" for kind, rows in kinds.items() if rows]
        return f"packages against {self.version}: {', '.join(changes) or 'the same'}"

    @property
    def is_current(self) -> bool:
        """Return True if nodes boot this very image already."""
        return self.answer == CURRENT and bool(self.version)

    @property
    def sentence(self) -> str:
        """Sentence for a user if the image is current."""
        return f"nothing changed: version {self.version} is this image"


def against(observations: Iterable[object]) -> str:
    """Return the package changes from the last readable observation of this stage in a run; empty if there is none."""
    standings = (read_observation(observation, Standing) for observation in observations)
    return next((standing.against for standing in reversed([*standings]) if standing is not None), "")


SHORTCUT: Final = Shortcut(
    stage=ID,
    task=TASK,
    output=OUTPUT,
    done=CURRENT,
    proceed=CHANGED,
    reason="nothing changed: this image is published already",
    changes=against,
)
"""Rule that skips the later stages if the image is published already."""


class StandingExpectation(Struct, frozen=True, kw_only=True):
    """Key of the image that is to be published."""

    key: str
