"""Types of stage stack_publish: the observation of its gate is `PublishedStack`; here is the expectation."""

from typing import Final

from msgspec import Struct

from steps.softwarestack.contract.stack_release import PublishedStack

PRODUCT: Final = "softwarestack"
"""Folder of `steps` with the tasks and the report of this stage."""


class VersionExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expectation of the gate stack_publish/version: number of packages, signature if wanted, number of versions to keep.

    Read beside the task: `name` and `key` of the stack, `tests` by name (modules to load, commands, ReFrame files), and `tree`, the
    digest of the tree that was tested.
    """

    packages: int
    signed: bool = False
    keep: int = 3
    name: str = ""
    key: str = ""
    tree: str = ""
    tests: tuple[str, ...] = ()


__all__ = ["PRODUCT", "PublishedStack", "VersionExpectation"]
