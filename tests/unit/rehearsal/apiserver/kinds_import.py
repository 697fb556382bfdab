"""Generator of the emulated API server's `data/kubernetes.json`, the built-in kinds, from a Kubernetes source tree.

    go mod download -json k8s.io/kubernetes@v1.34.4
    python -m tests.unit.rehearsal.apiserver.kinds_import DIR_OF_THAT_MODULE v1.34.4

The file holds the served resources (from `api/discovery`) and the types they reach (from `api/openapi-spec/swagger.json`) without
descriptions. So types, list types, merge keys and required fields come from Kubernetes and not from a table of ours.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

GROUP_VERSIONS = (
    "api__v1",
    "apis__admissionregistration.k8s.io__v1",
    "apis__apiextensions.k8s.io__v1",
    "apis__apiregistration.k8s.io__v1",
    "apis__apps__v1",
    "apis__autoscaling__v2",
    "apis__batch__v1",
    "apis__certificates.k8s.io__v1",
    "apis__coordination.k8s.io__v1",
    "apis__discovery.k8s.io__v1",
    "apis__flowcontrol.apiserver.k8s.io__v1",
    "apis__networking.k8s.io__v1",
    "apis__node.k8s.io__v1",
    "apis__policy__v1",
    "apis__rbac.authorization.k8s.io__v1",
    "apis__resource.k8s.io__v1",
    "apis__scheduling.k8s.io__v1",
    "apis__storage.k8s.io__v1",
)
SUBRESOURCES = frozenset({"status", "scale", "binding", "eviction", "exec", "log", "finalize"})
EXTRA_TYPES = ("io.k8s.api.autoscaling.v1.Scale", "io.k8s.api.policy.v1.Eviction", "io.k8s.api.core.v1.Binding")
KEPT = ("type", "format", "$ref", "required", "enum", "default", "additionalProperties", "items", "properties")
PREFIX = "#/definitions/"
DATA = Path(__file__).parents[4] / "workflows" / "rehearsal" / "apiserver" / "data" / "kubernetes.json"


def stripped(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without descriptions and client-side marks."""
    kept = {key: value for key, value in schema.items() if key in KEPT or key.startswith("x-kubernetes-")}
    kept.pop("x-kubernetes-group-version-kind", None)
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = stripped(kept[key])
    if "properties" in kept:
        kept["properties"] = {name: stripped(child) for name, child in kept["properties"].items()}
    return kept


def references(schema: Any) -> Iterator[str]:
    """Yield the names of the definitions that a schema refers to."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):  # JSONSchemaProps has a property of that name
            yield schema["$ref"].removeprefix(PREFIX)
        for child in schema.values():
            yield from references(child)


def reachable(definitions: dict[str, Any], roots: list[str]) -> dict[str, Any]:
    """Return the stripped definitions that `roots` need, by name."""
    collected: dict[str, Any] = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in collected:
            collected[name] = stripped(definitions[name])
            waiting.extend(references(collected[name]))
    return dict(sorted(collected.items()))


def resources(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the served resources of `GROUP_VERSIONS`, without those that cannot be watched (reviews, bindings)."""
    for stem in GROUP_VERSIONS:
        listed = json.loads((folder / f"{stem}.json").read_text())
        group, _, version = listed["groupVersion"].rpartition("/")
        for row in listed["resources"]:
            if "/" not in row["name"] and "watch" in row["verbs"]:
                subs = {sub["name"].partition("/")[2] for sub in listed["resources"] if sub["name"].startswith(row["name"] + "/")}
                names = {"plural": row["name"], "kind": row["kind"], "singular": row["singularName"]}
                lists = {"shortNames": row.get("shortNames", []), "categories": row.get("categories", [])}
                identity = {"group": group, "version": version, "namespaced": row["namespaced"]}
                yield identity | names | lists | {"subresources": sorted(subs & SUBRESOURCES)}


def build(source: Path, version: str) -> dict[str, Any]:
    """Return the content of `data/kubernetes.json`."""
    definitions = json.loads((source / "api" / "openapi-spec" / "swagger.json").read_text())["definitions"]
    names: dict[tuple[str, str, str], str] = {}
    for name, schema in definitions.items():
        for gvk in schema.get("x-kubernetes-group-version-kind", []):
            names[gvk["group"], gvk["version"], gvk["kind"]] = name
    rows = [row | {"type": names[row["group"], row["version"], row["kind"]]} for row in resources(source / "api" / "discovery")]
    return {
        "version": version,
        "resources": rows,
        "types": reachable(definitions, [row["type"] for row in rows] + list(EXTRA_TYPES)),
    }


def main() -> None:
    """Generate the file from the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder of the k8s.io/kubernetes module")
    parser.add_argument("version", help="its version, for instance v1.34.4")
    arguments = parser.parse_args()
    DATA.write_text(json.dumps(build(arguments.source, arguments.version), separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
