"""Tasks of a product: the module that runs verbs `build` and `publish` for the stages of a product."""

import importlib
from typing import Protocol, cast

from steps.contract.exit import ExitCode
from steps.contract.stage_contracts import product_of
from steps.runtime.context import Context


class ProductTasks(Protocol):
    """Interface of the module `steps.PRODUCT.tasks`, which does a product's work for the verbs `build` and `publish`."""

    def build(self, context: Context) -> ExitCode:
        """Make the part of the product that the task names, such as one layer of a node image; judge it and store the record."""
        ...

    def publish(self, context: Context) -> ExitCode:
        """Publish the product, or find out what publishing would change; judge it and store the record."""
        ...


def tasks_of(stage: str) -> ProductTasks | None:
    """Return the tasks of the product that a stage belongs to; None for a stage of a bring-up."""
    product = product_of(stage)
    # imported here: only the tasks of a product pay for the import of its builders
    return cast(ProductTasks, importlib.import_module(f"steps.{product}.tasks")) if product else None
