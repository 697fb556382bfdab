"""Types of stage stack_tree: the observation of its gate is `TreeObservation`; here is the expectation."""

from typing import Final

from msgspec import Struct

from steps.softwarestack.contract.tree_check import TreeObservation

PRODUCT: Final = "softwarestack"
"""Folder of `steps` with the tasks and the report of this stage."""


class TreeExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expectation of the gate stack_tree/tree: the stack's digest, its key, and the numbers of installed packages and of those that
    have a module. `largest` is the size budget in bytes; 0: any size. `view`: the stack has a view.
    """

    stack: str
    key: str
    packages: int
    modules: int = 0
    largest: int = 0
    view: bool = False


__all__ = ["PRODUCT", "TreeExpectation", "TreeObservation"]
