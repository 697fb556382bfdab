"""One stored object: its encoded bytes and a small index.

Bytes, not dicts, because 12,000 pods as dicts need 200 MB more; an object is decoded when somebody must look into it. Entries are
immutable, so a list snapshot or a watcher may hold one for as long as it likes.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from workflows.rehearsal.apiserver.resources import Field, Resource

Object = dict[str, Any]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One object at one revision: its JSON, and what selectors ask for."""

    namespace: str
    name: str
    revision: int
    raw: bytes
    labels: Mapping[str, str]
    fields: tuple[str, ...]

    def decode(self) -> Object:
        """A fresh dict of the object."""
        decoded: Object = msgspec.json.decode(self.raw)
        return decoded


_NO_LABELS: Mapping[str, str] = {}


def _text(value: Any, absent: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return absent if value is None else str(value)


def _selectable(obj: Object, fields: tuple[Field, ...]) -> Iterator[str]:
    for field in fields:
        value: Any = obj
        for step in field.path:
            value = value.get(step) if isinstance(value, dict) else None
        yield sys.intern(_text(value, field.absent))


def entry_of(resource: Resource, obj: Object, revision: int) -> Entry:
    """The entry of an object, which must carry its own resourceVersion."""
    meta = obj["metadata"]
    labels = {sys.intern(key): sys.intern(value) for key, value in meta.get("labels", _NO_LABELS).items()}
    fields = tuple(_selectable(obj, resource.fields))
    return Entry(meta.get("namespace", ""), meta["name"], revision, msgspec.json.encode(obj), labels or _NO_LABELS, fields)
