"""Declarations in the contract modules of stages: the product that a stage builds, and a shortcut past later stages."""

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType

from msgspec import Struct


def stage_contract(stage: str) -> ModuleType | None:
    """Return the contract module of a stage; None if this version has no such stage."""
    # ids may come from a store that another version wrote, so a stage without a module is no error
    if not stage.isidentifier():
        return None
    try:
        return importlib.import_module(f"steps.stages.{stage}.contract")
    except ModuleNotFoundError:
        return None


def product_of(stage: str) -> str:
    """Return the PRODUCT that a stage's contract names, a folder of `steps` like `nodeimage`; empty for a stage of a bring-up."""
    return str(getattr(stage_contract(stage), "PRODUCT", ""))


def products_of(stages: Iterable[str]) -> tuple[str, ...]:
    """Return the products that some stages belong to, each once."""
    return tuple(dict.fromkeys(product for stage in stages if (product := product_of(stage))))


class Shortcut(Struct, frozen=True, kw_only=True):
    """Rule by which a stage whose work is done already lets a run skip the stages after it; declared as SHORTCUT in its contract.

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


class ApprovalNote(Struct, frozen=True, kw_only=True):
    """Declaration, as APPROVAL_NOTE in a stage's contract, of the consequences that the approval before the stage shows.

    `text` turns the observations of task `task` of the earlier stage `stage` into one line; "" if there is nothing to show.
    """

    stage: str
    task: str
    text: Callable[[Iterable[object]], str]


def approval_note(stage: str) -> ApprovalNote | None:
    """Return the note that a stage declares for the approval before it; None if it declares none."""
    note = getattr(stage_contract(stage), "APPROVAL_NOTE", None)
    return note if isinstance(note, ApprovalNote) else None


def declared_shortcuts(stages: Iterable[str]) -> tuple[Shortcut, ...]:
    """Return the shortcuts that these stages declare, in the order of the stages."""
    shortcuts = (getattr(stage_contract(stage), "SHORTCUT", None) for stage in stages)
    return tuple(shortcut for shortcut in shortcuts if isinstance(shortcut, Shortcut))
