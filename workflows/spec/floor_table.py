"""Published bandwidth floors as data: the table `catalog/floors.yaml`, and the choice of its most specific entry."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from workflows.spec.fields import Listed, Section
from workflows.spec.parsing.loading import load_as

FILE = Path(__file__).parents[1] / "catalog/floors.yaml"
MEASURED_SHARE = 0.9
"""Share of a published measurement that is demanded: sites differ in NCCL, driver, firmware and topology."""
STALE_DAYS = 365
"""Age from which a floor is called stale: drivers and NCCL releases of a year move figures by more than a fabric's own spread."""


class PublishedFloor(Section):
    """An entry of the table. Empty keys match anything; `provenance` is F (shipped as a floor), M (measured) or C (claimed)."""

    gpu: str = Field(description="Product, as in accelerator.product.")
    nodes: Annotated[int, Field(ge=1)] | None = None
    fabric: Literal["", "infiniband", "roce", "efa", "tcpxo", "nvlink"] = ""
    operation: Literal["all_reduce", "all_gather", "alltoall", "ib_write_bw", "host_copy", "peer_copy", "adapters"]
    nccl: str = ""
    value: Annotated[float, Field(gt=0)]
    unit: Literal["GB/s", "Gbit/s"]
    provenance: Literal["F", "M", "C"]
    source: Annotated[str, Field(pattern=r"^https://")]
    date: Annotated[datetime.date, Field(strict=False)]

    @property
    def floor(self) -> float | None:
        """Return the floor to demand: the value, 0.9 of a measurement, or None of a mere claim."""
        return {"F": self.value, "M": round(MEASURED_SHARE * self.value, 2), "C": None}[self.provenance]

    @property
    def specificity(self) -> int:
        """Return how many keys beside GPU and operation the entry sets."""
        return sum(bool(key) for key in (self.nodes, self.fabric, self.nccl))

    def is_stale(self, today: datetime.date) -> bool:
        """Return True if the source was read too long ago."""
        return (today - self.date).days > STALE_DAYS

    @property
    def sentence(self) -> str:
        """Return the entry in words, with source and date."""
        kinds = {"F": "shipped floor", "M": "0.9 × a measurement", "C": "a claim"}
        return f"{self.floor or self.value:g} {self.unit}: {kinds[self.provenance]} of {self.source}, read {self.date.isoformat()}"


class RelativeFloor(Section):
    """Least share of what a run's own all_reduce lets expect of another operation, from published figures of both."""

    operation: Literal["all_gather", "alltoall"]
    share: Annotated[float, Field(gt=0, le=1)]
    source: Annotated[str, Field(pattern=r"^https://")]
    date: Annotated[datetime.date, Field(strict=False)]


class FloorTable(Section):
    """Content of `catalog/floors.yaml`."""

    floors: Annotated[tuple[PublishedFloor, ...], Listed]
    relative: Annotated[tuple[RelativeFloor, ...], Listed] = ()


@functools.cache
def packaged() -> FloorTable:
    """Return the packaged table."""
    return load_as(FloorTable, FILE)


def published() -> tuple[PublishedFloor, ...]:
    """Return the entries of the packaged table."""
    return packaged().floors


def relative(operation: str) -> float:
    """Return the least share of what a run's own all_reduce lets expect of an operation; 0 if none is known."""
    return next((entry.share for entry in packaged().relative if entry.operation == operation), 0.0)


def resolve(
    gpu: str, operation: str, *, nodes: int, fabric: str = "", nccl: str = "", table: Iterable[PublishedFloor] | None = None
) -> PublishedFloor | None:
    """Return the most specific entry that gives a floor; of equally specific ones the newest; None if nothing is published.

    An entry for a number of nodes, a fabric or an NCCL version (a prefix, as in 2.26) fits only these.
    """

    def fits(entry: PublishedFloor) -> bool:
        keys = entry.gpu == gpu and entry.operation == operation and entry.floor is not None
        place = entry.nodes in (None, nodes) and entry.fabric in ("", fabric)
        return keys and place and (not entry.nccl or nccl == entry.nccl or nccl.startswith(f"{entry.nccl}."))

    fitting = [entry for entry in (published() if table is None else table) if fits(entry)]
    return max(fitting, key=lambda entry: (entry.specificity, entry.date), default=None)
