"""Stored objects: encoded JSON with labels and fields beside it, so that selectors need not decode it.

Objects are kept as bytes because 12,000 pods as dicts need 200 MB more. They are immutable, so list snapshots and watchers can
share them.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from workflows.rehearsal.apiserver.served_resources import SelectableField, ServedResource

Object = dict[str, Any]


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """An object at one revision: its encoded JSON, its labels, and the values of the fields that field selectors can name."""

    namespace: str
    name: str
    revision: int
    raw: bytes
    labels: Mapping[str, str]
    fields: tuple[str, ...]

    def decode(self) -> Object:
        """Return the object as a new dict, which the caller may change."""
        decoded: Object = msgspec.json.decode(self.raw)
        return decoded


_NO_LABELS: Mapping[str, str] = {}


def value_at(obj: Mapping[str, Any], path: Sequence[str]) -> Any:
    """Return the value in an object at a path of field names, or None if it is absent."""
    value: Any = obj
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _selectable(obj: Object, fields: tuple[SelectableField, ...]) -> Iterator[str]:
    for field in fields:
        value = value_at(obj, field.path)
        text = field.absent if value is None else str(value)
        yield sys.intern(text.lower() if isinstance(value, bool) else text)


def encode_object(resource: ServedResource, obj: Object, revision: int) -> StoredObject:
    """Encode an object as StoredObject under `revision`, which its metadata must already have as resourceVersion."""
    meta = obj["metadata"]
    labels = {sys.intern(key): sys.intern(value) for key, value in meta.get("labels", _NO_LABELS).items()}
    fields = tuple(_selectable(obj, resource.fields))
    return StoredObject(meta.get("namespace", ""), meta["name"], revision, msgspec.json.encode(obj), labels or _NO_LABELS, fields)
