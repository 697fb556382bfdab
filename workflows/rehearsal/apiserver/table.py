"""`kubectl get`: objects as rows of a `meta.k8s.io/v1` Table.

The built-in columns are those of `kubectl get` for the kinds that a bring-up looks at; other kinds show name and age.
"""

import datetime
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workflows.rehearsal.apiserver import jsonpath
from workflows.rehearsal.apiserver.entry import Object
from workflows.rehearsal.apiserver.resources import Column, Resource

Cell = str | int | float | bool | None


def age(timestamp: str) -> str:
    """`5s`, `12m`, `3h`, `4d` since the time."""
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
        found = jsonpath.find(obj, path)
        value = found[0] if found else None
        return str(value) if isinstance(value, dict | list) else value

    return read


def _count(path: str) -> Callable[[Object], Cell]:
    def read(obj: Object) -> Cell:
        found = jsonpath.find(obj, path)
        return len(found[0]) if found else 0

    return read


def _ready(path_ready: str, path_wanted: str) -> Callable[[Object], Cell]:
    ready, wanted = _path(path_ready), _path(path_wanted)
    return lambda obj: f"{ready(obj) or 0}/{wanted(obj) or 0}"


def _node_status(obj: Object) -> Cell:
    ready = jsonpath.find(obj, '.status.conditions[?(@.type=="Ready")].status')
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
        found = jsonpath.find(obj, f".status.containerStatuses[*].state.{reason}.reason")
        if found:
            return str(found[0])
    status = obj.get("status", {})
    return str(status.get("reason") or status.get("phase", "Unknown"))


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
    ("", "configmaps"): (("Data", "integer", _count(".data")),),
    ("", "secrets"): (("Type", "string", _path(".type")), ("Data", "integer", _count(".data"))),
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


def _custom_row(column: Column) -> _Row:
    read = _path(column.path)
    if column.type == "date":
        return column.name, "string", lambda obj: age(str(read(obj) or ""))
    return column.name, column.type, read


def _rows(resource: Resource) -> tuple[_Row, ...]:
    born: _Row = ("Age", "string", lambda obj: age(obj["metadata"].get("creationTimestamp", "")))
    if resource.columns:
        return tuple(_custom_row(column) for column in resource.columns if not column.priority)
    return (*_BUILT_IN.get(resource.key, ()), born)


def render(resource: Resource, objects: Iterable[Object], metadata: Mapping[str, Any], *, headings: bool = True) -> Object:
    """The Table of some objects. Rows carry the objects' metadata, as kubectl asks by default."""
    columns = _rows(resource)
    rows = []
    for obj in objects:
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
        rows.append({"cells": [obj["metadata"]["name"], *(read(obj) for _, _, read in columns)], "object": partial})
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
