"""What is served: the built-in resources and, as they come and go, those of CRDs."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.schema import Schema, Types

_DATA = Path(__file__).parent / "data" / "kubernetes.json"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_PORTS = ("io.k8s.api.core.v1.ContainerPort", "io.k8s.api.core.v1.ServicePort")


@dataclass(frozen=True)
class Field:
    """A field that field selectors know: its name, where its value lies, and the value when absent."""

    name: str
    path: tuple[str, ...]
    absent: str = ""


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`: its heading, the JSONPath of its value, its OpenAPI type, and 0 for the narrow view."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True)
class ScalePaths:
    """Where a custom resource keeps what its scale sub-resource shows."""

    replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Resource:
    """One resource in one version. `storage_version` is the version in which its objects are stored."""

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
    fields: tuple[Field, ...] = ()
    columns: tuple[Column, ...] = ()
    scale: ScalePaths | None = None

    @property
    def api_version(self) -> str:
        """`apps/v1`, or `v1` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def key(self) -> tuple[str, str]:
        """What its objects are stored under: group and plural, whatever the version."""
        return self.group, self.plural

    @functools.cached_property
    def schema(self) -> Schema:
        """The type of its objects."""
        return self.load_schema()

    def missing(self, name: str) -> errors.ApiError:
        """The 404 for one of its objects."""
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
_SELECTABLE_SPECIAL: Mapping[str, tuple[Field, ...]] = {
    "nodes": (Field("spec.unschedulable", ("spec", "unschedulable"), "false"),),
    "pods": (Field("spec.hostNetwork", ("spec", "hostNetwork"), "false"),),
    "events": (Field("source", ("source", "component")),),
    "jobs": (Field("status.successful", ("status", "succeeded"), "0"),),
    "replicasets": (Field("status.replicas", ("status", "replicas"), "0"),),
    "replicationcontrollers": (Field("status.replicas", ("status", "replicas"), "0"),),
}


def dotted(name: str) -> tuple[str, ...]:
    """The path of a simple JSONPath such as `.spec.nodeName`."""
    return tuple(filter(None, name.split(".")))


def _fields(plural: str) -> tuple[Field, ...]:
    plain = tuple(Field(name, dotted(name)) for name in _SELECTABLE.get(plural, ()))
    return plain + _SELECTABLE_SPECIAL.get(plural, ())


@functools.cache
def _kinds() -> tuple[str, list[dict[str, Any]], Types]:
    data = msgspec.json.decode(_DATA.read_bytes())
    definitions = data["types"]
    definitions[_QUANTITY] = {"type": "string", "format": "quantity"}
    for name in _PORTS:  # the one list key with a default, which the published document leaves out
        definitions[name]["properties"]["protocol"]["default"] = "TCP"
    return data["version"], data["resources"], Types(definitions)


def kubernetes_version() -> str:
    """The version whose built-in kinds are served, for instance `v1.34.4`."""
    return _kinds()[0]


def builtin_types() -> Types:
    """The types of the built-in kinds."""
    return _kinds()[2]


def metadata_reference() -> dict[str, str]:
    """The schema node that points to the type of `metadata`."""
    return {"$ref": _META}


def metadata_schema() -> Schema:
    """The type of every object's `metadata`."""
    return _kinds()[2][_META]


def _built_in(row: Mapping[str, Any], types: Types) -> Resource:
    scale = ScalePaths(("spec", "replicas"), ("status", "replicas")) if "scale" in row["subresources"] else None
    return Resource(
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
        scale=scale,
    )


class Resources:
    """The table of served resources."""

    def __init__(self) -> None:
        _, rows, types = _kinds()
        self._served: dict[tuple[str, str, str], Resource] = {}
        self._serve(_built_in(row, types) for row in rows)

    def _serve(self, resources: Iterable[Resource]) -> None:
        for resource in resources:
            self._served[resource.group, resource.version, resource.plural] = resource

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._served.values())

    def find(self, group: str, version: str, plural: str) -> Resource:
        """The resource under a path.

        Raises:
            ApiError: 404, nothing is served there.
        """
        found = self._served.get((group, version, plural))
        if found is None:
            raise errors.no_such_path()
        return found

    def core(self, plural: str) -> Resource:
        """A resource of the core group."""
        return self.find("", "v1", plural)

    def replace_custom(self, group: str, plural: str, versions: Iterable[Resource]) -> None:
        """Serves `versions` of a custom resource, and no other version of it."""
        for key in [key for key, resource in self._served.items() if resource.custom and resource.key == (group, plural)]:
            del self._served[key]
        self._serve(versions)

    def groups(self) -> dict[str, list[str]]:
        """Versions by group, in the order of preference; the core group is left out."""
        found: dict[str, list[str]] = {}
        for resource in self:
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        found.pop("", None)
        return {group: sorted(versions, key=_priority) for group, versions in found.items()}


def _priority(version: str) -> tuple[int, int, int]:
    """Sort key of version names: v2, v1, v1beta2, v1beta1, v1alpha1 (apimachinery `version.CompareKubeAwareVersionStrings`)."""
    for rank, mark in ((1, "beta"), (2, "alpha")):
        major, found, minor = version[1:].partition(mark)
        if found and major.isdigit() and minor.isdigit():
            return rank, -int(major), -int(minor)
    return (0, -int(version[1:]), 0) if version[1:].isdigit() else (3, 0, 0)
