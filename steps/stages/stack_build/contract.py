"""Types of stage stack_build: the packages of one batch, and the expectation of its gate."""

from typing import Final

from msgspec import Struct

from steps.softwarestack.contract.package_build import PackageBuilt

PRODUCT: Final = "softwarestack"
"""Folder of `steps` with the tasks and the report of this stage."""


class BatchBuilt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate stack_build/batch: results of all packages of a batch, of the stack with this digest."""

    stack: str
    batch: int
    packages: tuple[PackageBuilt, ...] = ()


class BatchExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expectation of the gate stack_build/batch: the stack's digest and the hashes of the batch, which are read beside the task."""

    stack: str
    packages: tuple[str, ...] = ()
