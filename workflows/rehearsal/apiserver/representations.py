"""Representations of objects, chosen by the `Accept` header: the object, a Table for `kubectl get`, or metadata alone."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from workflows.rehearsal.apiserver import errors, kubectl_table
from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.stored_object import Object, StoredObject


class Representation(Enum):
    """A representation that a client can ask for."""

    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


_LIST_SUFFIX = "List"
_JSON = ("application/json", "application/*", "*/*")


def accepted_representation(header: str) -> Representation:
    """Return the first representation in an `Accept` header that the server knows. Raises StatusError (406) if there is none."""
    for choice in header.split(",") if header else ("*/*",):
        media, *parameters = (part.strip() for part in choice.split(";"))
        name = next((text[3:].removesuffix(_LIST_SUFFIX) for text in parameters if text.startswith("as=")), "")
        if media in _JSON and name in (form.value for form in Representation):
            return Representation(name)
    raise errors.not_acceptable()


class Presenter:
    """An encoder of one resource's objects in one representation."""

    def __init__(self, resource: ServedResource, form: Representation) -> None:
        self._resource = resource
        self._form = form
        self._start = b'{"apiVersion":"%b",' % resource.api_version.encode()
        self._item_skip = 0 if resource.custom else len(self._start) + len(b'"kind":"%b",' % resource.kind.encode())

    def live(self, entry: StoredObject) -> Object:
        """Return the object as a dict in the requested API version."""
        return entry.decode() | {"apiVersion": self._resource.api_version}

    def object(self, entry: StoredObject) -> bytes:
        """Return one object, encoded."""
        if self._form is Representation.TABLE:
            return msgspec.json.encode(
                kubectl_table.render(self._resource, [self.live(entry)], {"resourceVersion": str(entry.revision)})
            )
        if self._form is Representation.METADATA:
            return msgspec.json.encode(_partial(self.live(entry)))
        return self._whole(entry)

    def event_object(self, entry: StoredObject) -> bytes:
        """Return the object of a watch event, encoded; a Table has no column headings there."""
        if self._form is not Representation.TABLE:
            return self.object(entry)
        return msgspec.json.encode(
            kubectl_table.render(self._resource, [self.live(entry)], {"resourceVersion": str(entry.revision)}, headings=False)
        )

    def _whole(self, entry: StoredObject) -> bytes:
        # Objects are stored in one version; another version differs in apiVersion only, which is the first key.
        if entry.raw.startswith(self._start):
            return entry.raw
        return self._start + entry.raw[entry.raw.index(b",") + 1 :]

    def _item(self, entry: StoredObject) -> bytes:
        """Return a list item, encoded. Items of built-in kinds carry no apiVersion and kind, as on a real server."""
        return b"{" + entry.raw[self._item_skip :] if self._item_skip else self._whole(entry)

    def list(self, entries: Iterable[StoredObject], metadata: Mapping[str, Any]) -> bytes:
        """Return a list of objects, encoded."""
        if self._form is Representation.TABLE:
            return msgspec.json.encode(kubectl_table.render(self._resource, map(self.live, entries), metadata))
        kind, version = f"{self._resource.kind}List", self._resource.api_version
        if self._form is Representation.METADATA:
            kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
            items = [msgspec.json.encode(_partial(self.live(entry))) for entry in entries]
        else:
            items = [self._item(entry) for entry in entries]
        head = b'{"kind":"%b","apiVersion":"%b","metadata":%b,"items":['
        return head % (kind.encode(), version.encode(), msgspec.json.encode(metadata)) + b",".join(items) + b"]}"


def _partial(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
