"""Types of stage image_status: how an image compares with the published one, before anything is built."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from steps.contract import plain_text
from steps.contract.runs.evidence import read_observation
from steps.contract.stage_contracts import Shortcut

PRODUCT: Final = "nodeimage"
"""Folder of `steps` with the tasks and the report of this stage."""

ID: Final = "image_status"
TASK: Final = "tree"
OUTPUT: Final = "status"
CURRENT, CHANGED = "current", "changed"
"""Values of the stage's output: `current`, this image is published and the later stages are skipped; `changed`, they run."""
MOST_NAMED: Final = 3
"""Most packages of a kind (added, removed, changed) named in one line; the report has all."""
LEFT, NOTHING = "left", "nothing"
"""Further values of `ImageStatus.answer`: `left`, a person rolled back from this image; `nothing`, none of it is published."""


class ImageStatus(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate image_status/tree: how the published release folder compares with the image that is to be built.

    `key` is the key of that image, `where` the folder. `answer` is `current`, `changed`, `left` or `nothing`. `version` is the
    version that the folder's pointer names, `differs` the first difference between it and the image as it would be published now.
    `left` is the version of the image from which a person rolled back, by `left_by` at `left_at` (UTC seconds).
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
        """Return the package changes against the published version as a line for the person who approves publishing.

        Empty if no decision is needed: nothing is published yet, or this image is current.
        """
        if not self.version or self.is_current:
            return ""
        kinds = {"changed": self.packages_changed, "added": self.packages_added, "removed": self.packages_removed}
        changes = [f"{len(rows)} {kind} ({plain_text.some(rows, MOST_NAMED)})" for kind, rows in kinds.items() if rows]
        return f"packages against {self.version}: {', '.join(changes) or 'the same'}"

    @property
    def is_current(self) -> bool:
        """Return True if nodes already boot the image of this run."""
        return self.answer == CURRENT and bool(self.version)

    @property
    def sentence(self) -> str:
        """Return the sentence that is shown if the image is published already."""
        return f"nothing changed: version {self.version} is this image"


def against(observations: Iterable[object]) -> str:
    """Return the package changes from the last readable observation of this stage in a run; empty if there is none."""
    statuses = (read_observation(observation, ImageStatus) for observation in observations)
    return next((status.against for status in reversed([*statuses]) if status is not None), "")


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


class ImageStatusExpectation(Struct, frozen=True, kw_only=True):
    """Expectation of the gate image_status/tree: the key of the image that is to be published."""

    key: str
