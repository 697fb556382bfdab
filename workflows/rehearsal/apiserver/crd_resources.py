"""The served resources of a CustomResourceDefinition, and the status that reports the definition as Established."""

import functools
from collections.abc import Iterator

import msgspec

from workflows.rehearsal.apiserver import object_metadata
from workflows.rehearsal.apiserver.builtin_decoder import Schema
from workflows.rehearsal.apiserver.served_resources import (
    METADATA,
    PrinterColumn,
    ScalePaths,
    SelectableField,
    ServedResource,
    builtin_types,
    json_path_steps,
)
from workflows.rehearsal.apiserver.stored_object import Object, StoredObject

CRD_KEY = ("apiextensions.k8s.io", "customresourcedefinitions")
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


class _VersionSchema(msgspec.Struct):
    open_api: msgspec.Raw = msgspec.field(name="openAPIV3Schema", default=msgspec.Raw(b"{}"))


class _Version(msgspec.Struct):
    name: str
    version_schema: _VersionSchema = msgspec.field(name="schema", default_factory=_VersionSchema)


class _DefinitionSpec(msgspec.Struct):
    versions: list[_Version]


class _CustomResourceDefinition(msgspec.Struct):
    spec: _DefinitionSpec


def _load_schema(raw: bytes, version: str) -> Schema:
    """Decode the schema of one version of an encoded CustomResourceDefinition.

    A resource calls this when it first needs the schema, because some definitions exceed 1 MB.
    """
    definition = msgspec.json.decode(raw, type=_CustomResourceDefinition)
    declared = next(row for row in definition.spec.versions if row.name == version)
    schema: Object = msgspec.json.decode(declared.version_schema.open_api)
    identity = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"$ref": METADATA}}
    schema["properties"] = schema.get("properties", {}) | identity
    return Schema(schema, builtin_types())


def _scale(version: Object) -> ScalePaths | None:
    row = version.get("subresources", {}).get("scale")
    if not row:
        return None
    return ScalePaths(
        json_path_steps(row["specReplicasPath"]),
        json_path_steps(row["statusReplicasPath"]),
        json_path_steps(row.get("labelSelectorPath", "")),
    )


def resources_of(entry: StoredObject, *, unserved: bool = False) -> Iterator[ServedResource]:
    """Yield a ServedResource for each served version of a stored definition; with `unserved`, for every version."""
    spec = entry.decode()["spec"]
    names = spec["names"]
    storage = next(row["name"] for row in spec["versions"] if row["storage"])
    for version in spec["versions"]:
        if version["served"] or unserved:
            yield ServedResource(
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
                fields=tuple(
                    SelectableField(row["jsonPath"].removeprefix("."), json_path_steps(row["jsonPath"]))
                    for row in version.get("selectableFields", ())
                ),
                columns=tuple(
                    PrinterColumn(row["name"], row["jsonPath"], row["type"], row.get("priority", 0))
                    for row in version.get("additionalPrinterColumns", ())
                ),
                scale=_scale(version),
            )


def set_established_status(obj: Object) -> None:
    """Set a definition's status in place to Established, as a real server's controllers do a moment after the create."""
    spec = obj["spec"]
    stored = obj.get("status", {}).get("storedVersions", [])
    storage = [row["name"] for row in spec["versions"] if row.get("storage") and row["name"] not in stored]
    conditions = {
        kind: {
            "type": kind,
            "status": "True",
            "lastTransitionTime": object_metadata.current_time(),
            "reason": reason,
            "message": message,
        }
        for kind, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    }
    conditions |= {row["type"]: row for row in obj.get("status", {}).get("conditions", ())}
    obj["status"] = {
        "conditions": list(conditions.values()),
        "acceptedNames": spec["names"],
        "storedVersions": stored + storage,
    }
