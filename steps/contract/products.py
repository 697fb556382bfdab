"""Products: node images and the like, to which a stage may belong instead of the bring-up of a cluster. Stage contracts declare
them.
"""

import importlib
from collections.abc import Iterable
from types import ModuleType


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
    """Return the PRODUCT that the contract of a stage names, which is a folder of `steps`; empty for a stage of a bring-up."""
    return str(getattr(stage_contract(stage), "PRODUCT", ""))


def products_of(stages: Iterable[str]) -> tuple[str, ...]:
    """Return the products of some stages, each once."""
    return tuple(dict.fromkeys(product for stage in stages if (product := product_of(stage))))
