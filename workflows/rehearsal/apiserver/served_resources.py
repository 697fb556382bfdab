"""The table of served resources: the built-in kinds, and the custom ones while their definitions exist."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.builtin_decoder import NamedTypes, Schema

_DATA = Path(__file__).parent / "data" / "kubernetes.json"
METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
"""The name of the OpenAPI type of `metadata`."""
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_PORTS = ("io.k8s.api.core.v1.ContainerPort", "io.k8s.api.core.v1.ServicePort")


@dataclass(frozen=True)
class SelectableField:
    """A field that a field selector can name: its name, its path in the object, and its value for objects that lack it."""

    name: str
    path: tuple[str, ...]
    absent: str = ""


@dataclass(frozen=True)
class PrinterColumn:
    """A column of `kubectl get` that a CRD declares: heading, JSONPath, OpenAPI type, priority (above 0: only with `-o wide`)."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True)
class ScalePaths:
    """The paths, in objects of a scalable resource, of the fields that the scale sub-resource shows."""

    replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ServedResource:
    """One resource in one API version, such as Deployments in `apps/v1`, as the server lists it in discovery.

    Its objects are stored in `storage_version`, whatever version a client uses.
    """

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool
    subresources: frozenset[str]
    short_names: tuple[str, ...]
    categories: tuple[str, ...]
    custom: bool
    storage_version: str
    load_schema: Callable[[], Schema]
    fields: tuple[SelectableField, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    scale: ScalePaths | None = None

    @property
    def api_version(self) -> str:
        """Return the field `apiVersion` of its objects: `apps/v1`, or `v1` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> tuple[str, str]:
        """Return group and plural name, the key under which the objects of all versions are stored together."""
        return self.group, self.plural

    @functools.cached_property
    def schema(self) -> Schema:
        """Return the schema of the resource's objects; it is loaded on first use."""
        return self.load_schema()

    def missing(self, name: str) -> errors.StatusError:
        """Return a StatusError (404) for an object `name` of this resource that does not exist."""
        return errors.not_found(self.group, self.plural, name)


_SELECTABLE: Mapping[str, tuple[str, ...]] = {
    "pods": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "events": (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    ),
    "secrets": ("type",),
    "services": ("spec.clusterIP", "spec.type"),
    "namespaces": ("status.phase",),
    "certificatesigningrequests": ("spec.signerName",),
    "resourceslices": ("spec.driver", "spec.nodeName"),
}
_SELECTABLE_SPECIAL: Mapping[str, tuple[SelectableField, ...]] = {
    "nodes": (SelectableField("spec.unschedulable", ("spec", "unschedulable"), "false"),),
    "pods": (SelectableField("spec.hostNetwork", ("spec", "hostNetwork"), "false"),),
    "events": (SelectableField("source", ("source", "component")),),
    "jobs": (SelectableField("status.successful", ("status", "succeeded"), "0"),),
    "replicasets": (SelectableField("status.replicas", ("status", "replicas"), "0"),),
    "replicationcontrollers": (SelectableField("status.replicas", ("status", "replicas"), "0"),),
}


def json_path_steps(name: str) -> tuple[str, ...]:
    """Return the field names in a simple JSONPath: `.spec.nodeName` → `("spec", "nodeName")`."""
    return tuple(filter(None, name.split(".")))


def _fields(plural: str) -> tuple[SelectableField, ...]:
    plain = tuple(SelectableField(name, json_path_steps(name)) for name in _SELECTABLE.get(plural, ()))
    return plain + _SELECTABLE_SPECIAL.get(plural, ())


@functools.cache
def _kinds() -> tuple[str, list[dict[str, Any]], NamedTypes]:
    data = msgspec.json.decode(_DATA.read_bytes())
    definitions = data["types"]
    definitions[_QUANTITY] = {"type": "string", "format": "quantity"}
    for name in _PORTS:  # the one list key with a default, which the published document leaves out
        definitions[name]["properties"]["protocol"]["default"] = "TCP"
    return data["version"], data["resources"], NamedTypes(definitions)


def kubernetes_version() -> str:
    """Return the Kubernetes version from which the built-in kinds are taken, for instance `v1.34.4`."""
    return _kinds()[0]


def builtin_types() -> NamedTypes:
    """Return the named OpenAPI types of all built-in kinds."""
    return _kinds()[2]


def metadata_schema() -> Schema:
    """Return the schema of `metadata` (ObjectMeta), which all kinds share."""
    return builtin_types()[METADATA]


def _built_in(row: Mapping[str, Any], types: NamedTypes) -> ServedResource:
    return ServedResource(
        group=row["group"],
        version=row["version"],
        plural=row["plural"],
        kind=row["kind"],
        singular=row["singular"],
        namespaced=row["namespaced"],
        subresources=frozenset(row["subresources"]),
        short_names=tuple(row["shortNames"]),
        categories=tuple(row["categories"]),
        custom=False,
        storage_version=row["version"],
        load_schema=functools.partial(types.__getitem__, row["type"]),
        fields=_fields(row["plural"]),
        scale=ScalePaths(("spec", "replicas"), ("status", "replicas")) if "scale" in row["subresources"] else None,
    )


class ResourceTable:
    """All resources that the emulated server serves now, by group, version and plural name."""

    def __init__(self) -> None:
        _, rows, types = _kinds()
        self._served: dict[tuple[str, str, str], ServedResource] = {}
        self._serve(_built_in(row, types) for row in rows)

    def _serve(self, resources: Iterable[ServedResource]) -> None:
        for resource in resources:
            self._served[resource.group, resource.version, resource.plural] = resource

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(self._served.values())

    def find(self, group: str, version: str, plural: str) -> ServedResource:
        """Return the resource with this group, version and plural. Raises StatusError (404) if it is not served."""
        if (group, version, plural) not in self._served:
            raise errors.no_such_path()
        return self._served[group, version, plural]

    def core(self, plural: str) -> ServedResource:
        """Return the resource with this plural name in `v1` of the core group. Raises StatusError (404) if it is not served."""
        return self.find("", "v1", plural)

    def replace_custom(self, group: str, plural: str, versions: Iterable[ServedResource]) -> None:
        """Serve these versions of a custom resource and stop serving all others of it; none means to serve it no longer."""
        for key in [key for key, resource in self._served.items() if resource.custom and resource.key == (group, plural)]:
            del self._served[key]
        self._serve(versions)

    def groups(self) -> dict[str, list[str]]:
        """Return the versions of each API group, preferred one first. The core group is left out."""
        by_group: dict[str, list[str]] = {}
        for resource in self:
            versions = by_group.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        by_group.pop("", None)
        return {group: sorted(versions, key=_priority) for group, versions in by_group.items()}


def _priority(version: str) -> tuple[int, int, int]:
    """Return a sort key that puts version names in the order v2, v1, v1beta2, v1beta1, v1alpha1.

    The rule is that of apimachinery's `CompareKubeAwareVersionStrings`.
    """
    for rank, mark in ((1, "beta"), (2, "alpha")):
        major, separator, minor = version[1:].partition(mark)
        if separator and major.isdigit() and minor.isdigit():
            return rank, -int(major), -int(minor)
    return (0, -int(version[1:]), 0) if version[1:].isdigit() else (3, 0, 0)
