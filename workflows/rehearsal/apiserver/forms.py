"""The form in which objects go out: as they are, as a Table for `kubectl get`, or their metadata alone (the `Accept` header)."""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from workflows.rehearsal.apiserver import errors, table
from workflows.rehearsal.apiserver.entry import Entry, Object
from workflows.rehearsal.apiserver.resources import Resource


class Form(Enum):
    """What the client asked for."""

    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


_LIST_SUFFIX = "List"
_JSON = ("application/json", "application/*", "*/*")


def accepted(header: str) -> Form:
    """The first form in the header that the server knows.

    Raises:
        ApiError: 406, none of them.
    """
    for choice in header.split(",") if header else ("*/*",):
        media, *parameters = (part.strip() for part in choice.split(";"))
        wanted = next((text[3:].removesuffix(_LIST_SUFFIX) for text in parameters if text.startswith("as=")), "")
        if media in _JSON and wanted in (form.value for form in Form):
            return Form(wanted)
    raise errors.not_acceptable()


class Presenter:
    """Encodes one resource's entries in one form."""

    def __init__(self, resource: Resource, form: Form) -> None:
        self._resource = resource
        self._form = form
        self._start = b'{"apiVersion":"%b",' % resource.api_version.encode()
        self._item_skip = 0 if resource.custom else len(self._start) + len(b'"kind":"%b",' % resource.kind.encode())

    def live(self, entry: Entry) -> Object:
        """The object as a dict, in the version that was asked for."""
        return entry.decode() | {"apiVersion": self._resource.api_version}

    def object(self, entry: Entry) -> bytes:
        """One object that stands alone."""
        if self._form is Form.TABLE:
            return msgspec.json.encode(table.render(self._resource, [self.live(entry)], {"resourceVersion": str(entry.revision)}))
        if self._form is Form.METADATA:
            return msgspec.json.encode(_partial(self.live(entry)))
        return self._whole(entry)

    def event_object(self, entry: Entry) -> bytes:
        """One object in a watch event: a Table without headings, else as `object`."""
        if self._form is not Form.TABLE:
            return self.object(entry)
        return msgspec.json.encode(
            table.render(self._resource, [self.live(entry)], {"resourceVersion": str(entry.revision)}, headings=False)
        )

    def _whole(self, entry: Entry) -> bytes:
        if entry.raw.startswith(self._start):
            return entry.raw
        return self._start + entry.raw[entry.raw.index(b",") + 1 :]

    def _item(self, entry: Entry) -> bytes:
        """Items of built-in lists go without apiVersion and kind, as a real server leaves them out."""
        return b"{" + entry.raw[self._item_skip :] if self._item_skip else self._whole(entry)

    def list(self, entries: Iterable[Entry], metadata: Mapping[str, Any]) -> bytes:
        """A list object of this resource's kind."""
        if self._form is Form.TABLE:
            return msgspec.json.encode(table.render(self._resource, map(self.live, entries), metadata))
        kind, version = f"{self._resource.kind}List", self._resource.api_version
        if self._form is Form.METADATA:
            kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
            items = [msgspec.json.encode(_partial(self.live(entry))) for entry in entries]
        else:
            items = [self._item(entry) for entry in entries]
        head = b'{"kind":"%b","apiVersion":"%b","metadata":%b,"items":['
        return head % (kind.encode(), version.encode(), msgspec.json.encode(metadata)) + b",".join(items) + b"]}"


def _partial(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
