r"""Objects as rows of a `meta.k8s.io/v1` Table, which `kubectl get` prints.

Built-in columns are those of `kubectl get` for the kinds that a bring-up looks at; other kinds show name and age. Columns of CRDs
use a small part of JSONPath: `.a.b`, `.a\.b`, `[0]`, `[*]`, `[?(@.type=="Ready")]`.
"""

import datetime
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from workflows.rehearsal.apiserver.served_resources import PrinterColumn, ServedResource
from workflows.rehearsal.apiserver.stored_object import Object

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
    """Return all values at a JSONPath."""
    values = [obj]
    for step in _steps(path):
        values = [value for parent in values for value in _step(parent, step)]
    return values


def age(timestamp: str) -> str:
    """Return the age of a timestamp as kubectl prints it: `5s`, `12m`, `3h`, `4d`."""
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


def _count(path: str) -> Callable[[Object], Cell]:
    def read(obj: Object) -> Cell:
        values = json_path_values(obj, path)
        return len(values[0]) if values else 0

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


def _custom_row(column: PrinterColumn) -> _Row:
    read = _path(column.path)
    if column.type == "date":
        return column.name, "string", lambda obj: age(str(read(obj) or ""))
    return column.name, column.type, read


def _rows(resource: ServedResource) -> tuple[_Row, ...]:
    born: _Row = ("Age", "string", lambda obj: age(obj["metadata"].get("creationTimestamp", "")))
    if resource.columns:
        return tuple(_custom_row(column) for column in resource.columns if not column.priority)
    return (*_BUILT_IN.get(resource.key, ()), born)


def render(resource: ServedResource, objects: Iterable[Object], metadata: Mapping[str, Any], *, headings: bool = True) -> Object:
    """Return the Table of some objects. Rows carry the objects' metadata, which kubectl requests by default."""
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
