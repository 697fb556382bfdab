"""Stage stack_tree: install all packages of the stack from the build cache into one tree, and check that."""

from __future__ import annotations

from typing import Final

from workflows.stages.stack_site import StackSite, cache_secrets, part_step, stack_stage
from workflows.stages.stage import Stage

ID: Final = "stack_tree"
GATE: Final = "stack_tree/tree"
PART: Final = "tree"
SECONDS: Final = 3600
"""Time limit in seconds to unpack and read some 100 GB."""


def build(site: StackSite) -> Stage:
    """Return stage stack_tree: one task that installs and checks the tree."""
    step = part_step(site, ID, PART, GATE, deadline=SECONDS, arguments=cache_secrets(site.stack))
    return stack_stage(ID, "Tree", GATE, step, rollback="nothing to undo: trees that no run needs go with `bringup stack gc`")
