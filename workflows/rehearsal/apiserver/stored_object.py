"""Stored objects: encoded bytes with a small index for selectors.

Objects are kept as bytes because 12,000 pods as dicts need 200 MB more. Entries are immutable, so list snapshots and watchers can
share them.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from workflows.rehearsal.apiserver.served_resources import SelectableField, ServedResource

Object = dict[str, Any]


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """An object at one revision: its JSON, its labels and its selectable fields."""

    namespace: str
    name: str
    revision: int
    raw: bytes
    labels: Mapping[str, str]
    fields: tuple[str, ...]

    def decode(self) -> Object:
        """Return the object as a new dict."""
        decoded: Object = msgspec.json.decode(self.raw)
        return decoded


_NO_LABELS: Mapping[str, str] = {}


def _text(value: Any, absent: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return absent if value is None else str(value)


def _selectable(obj: Object, fields: tuple[SelectableField, ...]) -> Iterator[str]:
    for field in fields:
        value: Any = obj
        for step in field.path:
            value = value.get(step) if isinstance(value, dict) else None
        yield sys.intern(_text(value, field.absent))


def encode_object(resource: ServedResource, obj: Object, revision: int) -> StoredObject:
    """Return the stored form of an object, whose metadata must already contain its resourceVersion."""
    meta = obj["metadata"]
    labels = {sys.intern(key): sys.intern(value) for key, value in meta.get("labels", _NO_LABELS).items()}
    fields = tuple(_selectable(obj, resource.fields))
    return StoredObject(meta.get("namespace", ""), meta["name"], revision, msgspec.json.encode(obj), labels or _NO_LABELS, fields)
