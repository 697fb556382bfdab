"""Shortcuts of a pipeline: a stage that may find that nothing is left to do, so that all later stages are skipped."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from steps.contract.products import stage_contract


class Shortcut(Struct, frozen=True, kw_only=True):
    """Declaration of a shortcut in a stage's contract, under the name SHORTCUT.

    The output parameter `output` of its task `task` is `done` if nothing is left to do, else `proceed`, which is also the default.
    `reason` is shown for the stages that were skipped. `changes` turns the observations of the task into the line that an approval
    shows about what is going to change; it returns "" if there is nothing to show.
    """

    stage: str
    task: str
    output: str
    done: str
    proceed: str
    reason: str
    changes: Callable[[Iterable[object]], str]


def declared(stages: Iterable[str]) -> tuple[Shortcut, ...]:
    """Return the shortcuts that these stages declare, in the order of the stages."""
    shortcuts = (getattr(stage_contract(stage), "SHORTCUT", None) for stage in stages)
    return tuple(shortcut for shortcut in shortcuts if isinstance(shortcut, Shortcut))
