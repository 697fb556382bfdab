r"""Representations of objects by the `Accept` header (whole, a Table for `kubectl get`, metadata alone), and discovery documents.

Built-in columns are those of `kubectl get` for the kinds that a bring-up looks at; other kinds show name and age. Columns of CRDs
use a small part of JSONPath: `.a.b`, `.a\.b`, `[0]`, `[*]`, `[?(@.type=="Ready")]`.
"""

import datetime
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import msgspec

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.served_resources import PrinterColumn, ResourceTable, ServedResource
from workflows.rehearsal.apiserver.stored_object import Object, StoredObject

Cell = str | int | float | bool | None
_STEP = re.compile(r"""\.?((?:\\.|[^.\[\]\\])+)|\[(\d+|\*)\]|\[['"](.+?)['"]\]|\[\?\(@\.([\w.]+)\s*==\s*['"]([^'"]*)['"]\)\]""")


@functools.lru_cache(maxsize=512)
def _steps(path: str) -> tuple[re.Match[str], ...]:
    return tuple(_STEP.finditer(path.strip("{}")))


def _step(value: Any, step: re.Match[str]) -> list[Any]:
    name, index, quoted, key, wanted = step.groups()
    if name or quoted:
        field = quoted or re.sub(r"\\(.)", r"\1", name)
        return [value[field]] if isinstance(value, dict) and field in value else []
    if not isinstance(value, list):
        return []
    if key:
        return [element for element in value if isinstance(element, dict) and str(element.get(key)) == wanted]
    return value if index == "*" else value[int(index) : int(index) + 1]


def json_path_values(obj: Any, path: str) -> list[Any]:
    """Return all values in an object at a JSONPath; an empty list if there are none."""
    values = [obj]
    for step in _steps(path):
        values = [value for parent in values for value in _step(parent, step)]
    return values


def age(timestamp: str) -> str:
    """Return the age of an RFC 3339 timestamp as kubectl prints it: `5s`, `12m`, `3h`, `4d`; `<unknown>` for an empty one."""
    if not timestamp:
        return "<unknown>"
    born = datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    seconds = max(0, int((datetime.datetime.now(datetime.UTC) - born).total_seconds()))
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "m"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def _path(path: str) -> Callable[[Object], Cell]:
    def read(obj: Object) -> Cell:
        values = json_path_values(obj, path)
        value = values[0] if values else None
        return str(value) if isinstance(value, dict | list) else value

    return read


def _ready(path_ready: str, path_wanted: str) -> Callable[[Object], Cell]:
    ready, wanted = _path(path_ready), _path(path_wanted)
    return lambda obj: f"{ready(obj) or 0}/{wanted(obj) or 0}"


def _node_status(obj: Object) -> Cell:
    ready = json_path_values(obj, '.status.conditions[?(@.type=="Ready")].status')
    text = {"True": "Ready", "False": "NotReady"}.get(ready[0], "Unknown") if ready else "Unknown"
    return text + (",SchedulingDisabled" if obj.get("spec", {}).get("unschedulable") else "")


def _node_roles(obj: Object) -> Cell:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in obj["metadata"].get("labels", {}) if key.startswith(prefix))
    return ",".join(roles) or "<none>"


def _pod_ready(obj: Object) -> Cell:
    statuses = obj.get("status", {}).get("containerStatuses", ())
    return f"{sum(bool(row.get('ready')) for row in statuses)}/{len(obj['spec'].get('containers', ()))}"


def _pod_status(obj: Object) -> Cell:
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for reason in ("waiting", "terminated"):
        values = json_path_values(obj, f".status.containerStatuses[*].state.{reason}.reason")
        if values:
            return str(values[0])
    status = obj.get("status", {})
    return str(status.get("reason") or status.get("phase", "Unknown"))


def _data(obj: Object) -> Cell:
    return len(obj.get("data", ()))


def _restarts(obj: Object) -> Cell:
    return sum(int(row.get("restartCount", 0)) for row in obj.get("status", {}).get("containerStatuses", ()))


_Row = tuple[str, str, Callable[[Object], Cell]]
_BUILT_IN: Mapping[tuple[str, str], tuple[_Row, ...]] = {
    ("", "nodes"): (
        ("Status", "string", _node_status),
        ("Roles", "string", _node_roles),
        ("Version", "string", _path(".status.nodeInfo.kubeletVersion")),
    ),
    ("", "pods"): (("Ready", "string", _pod_ready), ("Status", "string", _pod_status), ("Restarts", "integer", _restarts)),
    ("", "namespaces"): (("Status", "string", _path(".status.phase")),),
    ("", "configmaps"): (("Data", "integer", _data),),
    ("", "secrets"): (("Type", "string", _path(".type")), ("Data", "integer", _data)),
    ("", "services"): (("Type", "string", _path(".spec.type")), ("Cluster-IP", "string", _path(".spec.clusterIP"))),
    ("apps", "deployments"): (("Ready", "string", _ready(".status.readyReplicas", ".spec.replicas")),),
    ("apps", "statefulsets"): (("Ready", "string", _ready(".status.readyReplicas", ".spec.replicas")),),
    ("apps", "daemonsets"): (
        ("Desired", "integer", _path(".status.desiredNumberScheduled")),
        ("Ready", "integer", _path(".status.numberReady")),
    ),
    ("batch", "jobs"): (("Completions", "string", _ready(".status.succeeded", ".spec.completions")),),
    ("", "events"): (
        ("Type", "string", _path(".type")),
        ("Reason", "string", _path(".reason")),
        ("Message", "string", _path(".message")),
    ),
}


def _custom_row(column: PrinterColumn) -> _Row:
    read = _path(column.path)
    if column.type == "date":
        return column.name, "string", lambda obj: age(str(read(obj) or ""))
    return column.name, column.type, read


def _rows(resource: ServedResource) -> tuple[_Row, ...]:
    if resource.columns:
        return tuple(_custom_row(column) for column in resource.columns if not column.priority)
    born: _Row = ("Age", "string", lambda obj: age(obj["metadata"].get("creationTimestamp", "")))
    return (*_BUILT_IN.get(resource.key, ()), born)


def render(resource: ServedResource, objects: Iterable[Object], metadata: Mapping[str, Any], *, headings: bool = True) -> Object:
    """Return a `meta.k8s.io/v1` Table with one row for each object, whose metadata the row carries as kubectl requests it.

    `metadata` is the Table's own metadata.
    """
    columns = _rows(resource)
    rows = [
        {"cells": [obj["metadata"]["name"], *(read(obj) for _, _, read in columns)], "object": _partial(obj)} for obj in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata),
        "columnDefinitions": _headings(columns) if headings else [],
        "rows": rows,
    }


def _headings(columns: Iterable[_Row]) -> list[Object]:
    name = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
    return [name, *({"name": title, "type": kind, "format": "", "description": "", "priority": 0} for title, kind, _ in columns)]


class Representation(Enum):
    """The forms in which a client can ask for objects: whole, as a Table, or their metadata alone."""

    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


_LIST_SUFFIX = "List"
_JSON = ("application/json", "application/*", "*/*")


def accepted_representation(header: str) -> Representation:
    """Return the first representation in an `Accept` header that the server knows. Raises StatusError (406) if it knows none."""
    for choice in header.split(",") if header else ("*/*",):
        media, *parameters = (part.strip() for part in choice.split(";"))
        name = next((text[3:].removesuffix(_LIST_SUFFIX) for text in parameters if text.startswith("as=")), "")
        if media in _JSON and name in (form.value for form in Representation):
            return Representation(name)
    raise errors.not_acceptable()


class Presenter:
    """Encodes stored objects of one resource as JSON in one representation, for answers and watch events."""

    def __init__(self, resource: ServedResource, form: Representation) -> None:
        self._resource = resource
        self._form = form
        self._start = b'{"apiVersion":"%b",' % resource.api_version.encode()
        self._item_skip = 0 if resource.custom else len(self._start) + len(b'"kind":"%b",' % resource.kind.encode())

    def live(self, entry: StoredObject) -> Object:
        """Return a stored object as a dict in the API version that the client requested."""
        return self.shown(entry.decode())

    def shown(self, obj: Object) -> Object:
        """Return a decoded object in the API version that the client requested; both share all their parts."""
        return obj | {"apiVersion": self._resource.api_version}

    def object(self, entry: StoredObject, *, headings: bool = True) -> bytes:
        """Return one object as JSON. Watch events turn `headings` off, because their Tables have no column headings."""
        if self._form is Representation.TABLE:
            metadata = {"resourceVersion": str(entry.revision)}
            return msgspec.json.encode(render(self._resource, [self.live(entry)], metadata, headings=headings))
        if self._form is Representation.METADATA:
            return msgspec.json.encode(_partial(self.live(entry)))
        return self._whole(entry)

    def _whole(self, entry: StoredObject) -> bytes:
        # Objects are stored in one version; another version differs in apiVersion only, which is the first key.
        if entry.raw.startswith(self._start):
            return entry.raw
        return self._start + entry.raw[entry.raw.index(b",") + 1 :]

    def _item(self, entry: StoredObject) -> bytes:
        """Return one item of a list as JSON. Items of built-in kinds carry no apiVersion and kind, as on a real server."""
        return b"{" + entry.raw[self._item_skip :] if self._item_skip else self._whole(entry)

    def list(self, entries: Iterable[StoredObject], metadata: Mapping[str, Any]) -> bytes:
        """Return a list of objects with its ListMeta as JSON."""
        if self._form is Representation.TABLE:
            return msgspec.json.encode(render(self._resource, map(self.live, entries), metadata))
        kind, version = f"{self._resource.kind}List", self._resource.api_version
        if self._form is Representation.METADATA:
            kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
            items = [msgspec.json.encode(_partial(self.live(entry))) for entry in entries]
        else:
            items = [self._item(entry) for entry in entries]
        form = b'{"kind":"%b","apiVersion":"%b","metadata":%b,"items":['
        head = form % (kind.encode(), version.encode(), msgspec.json.encode(metadata))
        if not items:
            return head + b"]}"
        # a list may have 70 MB: it is put together in one step
        items[0] = head + items[0]
        items[-1] += b"]}"
        return b",".join(items)


def _partial(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_SUBRESOURCES: dict[str, tuple[list[str], dict[str, str]]] = {
    "log": (["get"], {}),
    "exec": (["create", "get"], {"kind": "PodExecOptions"}),
    "finalize": (["update"], {}),
    "scale": (["get", "patch", "update"], {"group": "autoscaling", "version": "v1", "kind": "Scale"}),
    "eviction": (["create"], {"group": "policy", "version": "v1", "kind": "Eviction"}),
    "binding": (["create"], {"kind": "Binding"}),
    "status": (["get", "patch", "update"], {}),
}


def version(git_version: str) -> dict[str, str]:
    """Return the document that answers `GET /version`; `git_version` is for instance `v1.34.4+rke2r1`."""
    major, minor = git_version.removeprefix("v").split(".")[:2]
    build = {"gitCommit": "", "gitTreeState": "clean", "buildDate": "2026-01-01T00:00:00Z", "goVersion": "", "compiler": "emulated"}
    return {"major": major, "minor": minor, "gitVersion": git_version, "platform": "linux/amd64", **build}


CORE_VERSIONS = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
"""The discovery document that answers `GET /api`."""


def groups(resources: ResourceTable) -> dict[str, Any]:
    """Return the discovery document of all API groups, which answers `GET /apis`."""
    listed = [_group(name, versions) for name, versions in resources.groups().items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(resources: ResourceTable, name: str) -> dict[str, Any]:
    """Return the discovery document that answers `GET /apis/GROUP`. Raises StatusError (404) if the group is not served."""
    versions = resources.groups().get(name)
    if versions is None:
        raise errors.no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(resources: ResourceTable, group_name: str, version_name: str) -> dict[str, Any]:
    """Return the list of resources in one API version. Raises StatusError (404) if the version is not served.

    It answers `GET /api/v1` (empty group name) or `GET /apis/GROUP/VERSION`.
    """
    matching = [resource for resource in resources if (resource.group, resource.version) == (group_name, version_name)]
    if not matching:
        raise errors.no_such_path()
    rows = [row for resource in matching for row in _resource_rows(resource)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": matching[0].api_version, "resources": rows}


def _resource_rows(resource: ServedResource) -> Iterator[dict[str, Any]]:
    row: dict[str, Any] = {"name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced}
    row |= {"kind": resource.kind, "verbs": _VERBS}
    if resource.short_names:
        row["shortNames"] = list(resource.short_names)
    if resource.categories:
        row["categories"] = list(resource.categories)
    yield row
    for name in sorted(resource.subresources):
        verbs, kind = _SUBRESOURCES[name]
        subresource = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
        yield subresource | {"kind": resource.kind, "verbs": verbs} | kind
