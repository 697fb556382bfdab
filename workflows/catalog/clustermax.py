"""The table of ClusterMAX's auditable items: the gates that prove each, or why none does."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from workflows.spec.fields import Listed, Section, Text, problem
from workflows.spec.parsing.loading import load_as
from workflows.stage_names import StageName

FILE = Path(__file__).with_name("clustermax.yaml")
Gate = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*/[a-z][a-z0-9_]*$")]


class VersionFloors(Section):
    """Least versions by what a run calls the part, with the day on which they were read and how long they hold."""

    date: Annotated[datetime.date, Field(strict=False)]
    source: str
    stale_days: int
    versions: Mapping[str, Annotated[tuple[str, ...], Listed]]

    def is_stale(self, today: datetime.date) -> bool:
        """Return True if the floors are too old: patched versions age in days."""
        return (today - self.date).days > self.stale_days


class AuditItem(Section):
    """An auditable item: either gates or versions prove it, or `why` says that nothing does; `attested` items need documents.

    `measured` are beginnings of quantities that a run must have measured on every node that its gates passed: a level of an
    acceptance, or an image without a program, leaves some out although the gate passes.
    """

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    expected: Text
    stage: StageName
    gates: Annotated[tuple[Gate, ...], Listed] = ()
    measured: Annotated[tuple[Text, ...], Listed] = ()
    versions: str = ""
    attested: bool = False
    why: str = ""

    @model_validator(mode="after")
    def _proved_or_explained(self) -> AuditItem:
        if bool(self.gates or self.versions) == bool(self.why):
            raise problem("an item has gates or versions, or says why it has neither", "give gates, versions, or why")
        return self


class AuditTable(Section):
    """Content of `clustermax.yaml`."""

    floors: VersionFloors
    items: Annotated[tuple[AuditItem, ...], Listed]


@functools.cache
def table() -> AuditTable:
    """Return the packaged table."""
    return load_as(AuditTable, FILE)
