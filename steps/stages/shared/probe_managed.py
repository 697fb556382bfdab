"""Time of the last write to an object's spec, from managedFields: many operators report no observedGeneration."""

import datetime

import msgspec
from msgspec import Struct


class Managed(Struct, frozen=True, rename="camel"):
    """An entry of managedFields: a manager, the fields it wrote, and the time."""

    manager: str = ""
    time: datetime.datetime | None = None
    subresource: str = ""
    fields_v1: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict, name="fieldsV1")


class Meta(Struct, frozen=True, rename="camel"):
    """Metadata with managedFields."""

    name: str = ""
    uid: str = ""
    creation_timestamp: datetime.datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    managed_fields: tuple[Managed, ...] = ()


def spec_changed(meta: Meta) -> float:
    """Return when the object's spec was last written, in seconds since the epoch; its creation time if managedFields are absent."""
    # status writes have a subresource; they do not change what the operator must reconcile
    times = [entry.time for entry in meta.managed_fields if entry.time and not entry.subresource and "f:spec" in entry.fields_v1]
    newest = max(times, default=meta.creation_timestamp)
    return newest.timestamp() if newest else 0.0
