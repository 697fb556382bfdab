"""CustomResourceDefinition → served resources, and the status that says so."""

import functools
from collections.abc import Iterator
from typing import Any

import msgspec

from workflows.rehearsal.apiserver import objectmeta
from workflows.rehearsal.apiserver.entry import Entry, Object
from workflows.rehearsal.apiserver.resources import Column, Field, Resource, ScalePaths, builtin_types, dotted, metadata_reference
from workflows.rehearsal.apiserver.schema import Schema

KEY = ("apiextensions.k8s.io", "customresourcedefinitions")
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


class _VersionSchema(msgspec.Struct):
    open_api: msgspec.Raw = msgspec.field(name="openAPIV3Schema", default=msgspec.Raw(b"{}"))


class _Version(msgspec.Struct):
    name: str
    version_schema: _VersionSchema = msgspec.field(name="schema", default_factory=_VersionSchema)


class _Spec(msgspec.Struct):
    versions: list[_Version]


class _Definition(msgspec.Struct):
    spec: _Spec


def _load_schema(raw: bytes, version: str) -> Schema:
    """The schema of one version, decoded only when an object of it is first written."""
    definition = msgspec.json.decode(raw, type=_Definition)
    found = next(row for row in definition.spec.versions if row.name == version)
    schema: Object = msgspec.json.decode(found.version_schema.open_api)
    identity = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": metadata_reference()}
    schema["properties"] = schema.get("properties", {}) | identity
    return Schema(schema, builtin_types())


def _scale(version: Object) -> ScalePaths | None:
    row = version.get("subresources", {}).get("scale")
    if not row:
        return None
    return ScalePaths(dotted(row["specReplicasPath"]), dotted(row["statusReplicasPath"]), dotted(row.get("labelSelectorPath", "")))


def _columns(version: Object) -> Iterator[Column]:
    for row in version.get("additionalPrinterColumns", ()):
        yield Column(row["name"], row["jsonPath"], row["type"], row.get("priority", 0))


def _fields(version: Object) -> Iterator[Field]:
    for row in version.get("selectableFields", ()):
        yield Field(row["jsonPath"].removeprefix("."), dotted(row["jsonPath"]))


def resources_of(entry: Entry, *, unserved: bool = False) -> Iterator[Resource]:
    """The served versions of a definition, or all of them."""
    spec = entry.decode()["spec"]
    names = spec["names"]
    storage = next(row["name"] for row in spec["versions"] if row["storage"])
    for version in spec["versions"]:
        if version["served"] or unserved:
            yield Resource(
                group=spec["group"],
                version=version["name"],
                plural=names["plural"],
                kind=names["kind"],
                singular=names.get("singular", ""),
                namespaced=spec["scope"] == "Namespaced",
                subresources=frozenset(version.get("subresources", {})),
                short_names=tuple(names.get("shortNames", ())),
                categories=tuple(names.get("categories", ())),
                custom=True,
                storage_version=storage,
                load_schema=functools.partial(_load_schema, entry.raw, version["name"]),
                fields=tuple(_fields(version)),
                columns=tuple(_columns(version)),
                scale=_scale(version),
            )


def _condition(kind: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": "True", "lastTransitionTime": objectmeta.now(), "reason": reason, "message": message}


def establish(obj: Object) -> None:
    """Sets the status of a definition in place, as the apiextensions controllers of a real server do a moment later."""
    spec = obj["spec"]
    stored = obj.get("status", {}).get("storedVersions", [])
    storage = [row["name"] for row in spec["versions"] if row.get("storage") and row["name"] not in stored]
    held = {row["type"]: row for row in obj.get("status", {}).get("conditions", ())}
    accepted = held.get("NamesAccepted") or _condition("NamesAccepted", "NoConflicts", "no conflicts found")
    established = held.get("Established") or _condition(
        "Established", "InitialNamesAccepted", "the initial names have been accepted"
    )
    others = [row for kind, row in held.items() if kind not in ("NamesAccepted", "Established")]
    obj["status"] = {
        "conditions": [accepted, established, *others],
        "acceptedNames": spec["names"],
        "storedVersions": stored + storage,
    }
