"""Finds the parts of a report that a product, such as node images, writes itself."""

import importlib
from collections.abc import Iterable, Sequence
from typing import Protocol, cast

from msgspec import Struct

from steps.contract.runs.evidence import Evidence
from steps.contract.stage_contracts import products_of


class ProductReport(Protocol):
    """Interface of the module `steps.PRODUCT.product_report`. `SECTION` is the field of the report with its part."""

    SECTION: str

    def details(self, latest: Sequence[Evidence]) -> Struct | None:
        """Return what the last records of a run say about the product, for the report's field `SECTION`; None if nothing."""
        ...

    def nothing_to_do(self, latest: Iterable[Evidence]) -> str:
        """Return why all later stages were skipped, because the product needs no work; empty if they were not."""
        ...

    def untested(self, latest: Iterable[Evidence]) -> Iterable[tuple[str, str, str]]:
        """Return the tests that did not run although their stage did: stage, test and reason of each."""
        ...

    def template(self) -> str:
        """Return the Jinja template that shows `details` in the HTML report."""
        ...


def reports_of(stages: Iterable[str]) -> tuple[ProductReport, ...]:
    """Return the report modules of the products that some stages belong to."""
    return tuple(cast(ProductReport, importlib.import_module(f"steps.{product}.product_report")) for product in products_of(stages))


def sections(parts: Iterable[ProductReport], latest: Sequence[Evidence]) -> dict[str, Struct]:
    """Return field of the report → what the product says about the last records of a run; without products that say nothing."""
    return {part.SECTION: details for part in parts if (details := part.details(latest)) is not None}
