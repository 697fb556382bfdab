"""When an object's spec was last written: read from managedFields, because many operators report no observedGeneration."""

import datetime

import msgspec
from msgspec import Struct


class Managed(Struct, frozen=True, rename="camel"):
    """One entry of managedFields: who wrote which fields, and when."""

    manager: str = ""
    time: datetime.datetime | None = None
    subresource: str = ""
    fields_v1: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict, name="fieldsV1")


class Meta(Struct, frozen=True, rename="camel"):
    """Metadata with its writers."""

    name: str = ""
    uid: str = ""
    creation_timestamp: datetime.datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    managed_fields: tuple[Managed, ...] = ()


def spec_changed(meta: Meta) -> float:
    """When somebody last wrote the object's spec, by managedFields; its creation where those are absent."""
    times = [entry.time for entry in meta.managed_fields if entry.time and not entry.subresource and "f:spec" in entry.fields_v1]
    newest = max(times, default=meta.creation_timestamp)
    return newest.timestamp() if newest else 0.0
