"""CustomResourceDefinitions: served at once, pruned, defaulted, validated, taken away with their objects."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.rehearsal.apiserver.cluster_client import Cluster, definition, thing, until

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[5] / "shared") / "crds"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPEC = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 8},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4},
        "port": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "list": {"type": "array", "maxItems": 2, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        "nested": {"type": "object", "default": {}, "properties": {"on": {"type": "boolean", "default": True}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "one": {
            "type": "object",
            "oneOf": [{"required": ["x"]}, {"required": ["y"]}],
            "properties": {"x": {"type": "string"}, "y": {"type": "string"}},
        },
    },
}


def test_defaults_and_pruning(cluster: Cluster, define: Callable[..., str]) -> None:
    path = define(SPEC)
    made = cluster.post(path, thing(path, "t", size=1, unknown=1, free={"any": {"x": None}}, nested={"off": 1}))
    assert made.status == 201
    assert made.body["spec"] == {"size": 1, "mode": "a", "nested": {"on": True}, "free": {"any": {"x": None}}}
    assert 'unknown field \\"spec.unknown\\"' in made.headers["Warning"]
    strict = cluster.post(f"{path}?fieldValidation=Strict", thing(path, "u", size=1, unknown=1))
    assert (strict.status, strict.reason) == (400, "BadRequest")
    assert 'unknown field "spec.unknown"' in strict.body["message"]


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({}, "spec.size", "Required value"),
        ({"size": 0}, "spec.size", "greater than or equal to 1"),
        ({"size": 9}, "spec.size", "less than or equal to 8"),
        ({"size": "1"}, "spec.size", "must be of type integer"),
        ({"size": True}, "spec.size", "must be of type integer"),
        ({"size": 1, "mode": "c"}, "spec.mode", 'supported values: "a", "b"'),
        ({"size": 1, "name": "A"}, "spec.name", "should match"),
        ({"size": 1, "name": "aaaaa"}, "spec.name", "may not be more than 4"),
        ({"size": 1, "port": 1.5}, "spec.port", "must be of type integer,string"),
        ({"size": 1, "list": ["a", "b", "c"]}, "spec.list", "at most 2 items"),
        ({"size": 1, "list": ["a", "a"]}, "spec.list[1]", "Duplicate value"),
        ({"size": 1, "one": {"x": "1", "y": "1"}}, "spec.one", "one and only one"),
        ({"size": 1, "free": None}, "spec.free", "must be of type object"),
    ],
)
def test_validation(cluster: Cluster, define: Callable[..., str], spec: dict[str, Any], field: str, words: str) -> None:
    path = define(SPEC)
    answer = cluster.post(path, thing(path, "t", **spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert words in answer.body["message"]
    assert field in [cause["field"] for cause in answer.body["details"]["causes"]]


def test_all_problems_are_reported_together(cluster: Cluster, define: Callable[..., str]) -> None:
    path = define(SPEC)
    answer = cluster.post(path, thing(path, "t", size=0, mode="c"))
    assert {cause["field"] for cause in answer.body["details"]["causes"]} == {"spec.size", "spec.mode"}


def test_kind_is_required(cluster: Cluster, define: Callable[..., str]) -> None:
    path = define(SPEC)
    body = thing(path, "t", size=1)
    del body["kind"]
    assert cluster.post(path, body).status == 400


def test_definition_must_make_sense(cluster: Cluster) -> None:
    schema = {"type": "object"}
    wrong_name = definition("one.example.com", schema) | {"metadata": {"name": "things.two.example.com"}}
    no_schema = definition("one.example.com", schema, schema={})
    no_storage = definition("one.example.com", schema, storage=False)
    for body in (wrong_name, no_schema, no_storage):
        assert cluster.post(CRDS, body).status == 422


def test_status_says_established(cluster: Cluster, define: Callable[..., str]) -> None:
    group = define(SPEC).split("/")[2]
    held = cluster.get(f"{CRDS}/things.{group}").body
    assert {row["type"]: row["status"] for row in held["status"]["conditions"]} == {"NamesAccepted": "True", "Established": "True"}
    assert held["status"]["storedVersions"] == ["v1"]
    assert held["spec"]["names"]["listKind"] == "ThingList"


def test_new_schema_holds_for_the_next_write(cluster: Cluster, define: Callable[..., str]) -> None:
    path = define({"type": "object", "properties": {"a": {"type": "string"}}})
    group = path.split("/")[2]
    assert cluster.post(path, thing(path, "t", a="1", b=2)).body["spec"] == {"a": "1"}
    place = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/b"
    operation = {"op": "add", "path": place, "value": {"type": "integer"}}
    assert cluster.patch(f"{CRDS}/things.{group}", [operation], "application/json-patch+json").status == 200
    until(lambda: cluster.patch(f"{path}/t", {"spec": {"b": 2}}).body["spec"] == {"a": "1", "b": 2})


def test_objects_go_with_their_definition(cluster: Cluster, define: Callable[..., str]) -> None:
    path = define(SPEC)
    group = path.split("/")[2]
    held = thing(path, "held", size=1)
    held["metadata"]["finalizers"] = ["x.io/hold"]
    cluster.post(path, thing(path, "free", size=1))
    cluster.post(path, held)
    cluster.delete(f"{CRDS}/things.{group}")
    until(lambda: cluster.get(f"{path}/free").status == 404)
    assert cluster.get(f"{CRDS}/things.{group}").body["metadata"]["deletionTimestamp"]
    cluster.patch(f"{path}/held", {"metadata": {"finalizers": None}})
    until(lambda: cluster.get(f"{CRDS}/things.{group}").status == 404)
    until(lambda: cluster.get(path).status == 404)


def test_objects_stored_under_an_older_version_stay_readable(cluster: Cluster, define: Callable[..., str]) -> None:
    path = define({"type": "object", "properties": {"a": {"type": "integer"}}})
    group = path.split("/")[2]
    crd = f"{CRDS}/things.{group}"
    cluster.post(path, thing(path, "t", a=1))
    old = cluster.get(crd).body["spec"]["versions"][0]
    versions = [old | {"storage": False}, old | {"name": "v1beta22"}]
    assert cluster.patch(crd, {"spec": {"versions": versions}}).status == 200
    newer = path.replace("/v1/", "/v1beta22/")
    until(lambda: cluster.get(newer).status == 200)
    for place, version in ((path, "v1"), (newer, "v1beta22")):
        assert cluster.get(f"{place}/t").body["apiVersion"] == f"{group}/{version}"
        assert cluster.get(place).body["items"][0]["spec"] == {"a": 1}
    assert cluster.patch(f"{path}/t", {"spec": {"a": 2}}).body["apiVersion"] == f"{group}/v1"
    assert set(cluster.get(crd).body["status"]["storedVersions"]) == {"v1", "v1beta22"}


def test_scale_and_printer_columns(cluster: Cluster, define: Callable[..., str]) -> None:
    columns = [
        {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Wide", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
        {"name": "Born", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.selector"}
    path = define(SPEC, subresources={"status": {}, "scale": scale}, additionalPrinterColumns=columns)
    cluster.post(path, thing(path, "t", size=2))
    status = {"size": 1, "selector": "a=b", "conditions": [{"type": "Ready", "status": "True"}]}
    cluster.patch(f"{path}/t/status", {"status": status})
    held = cluster.get(f"{path}/t/scale").body
    assert (held["kind"], held["spec"], held["status"]) == ("Scale", {"replicas": 2}, {"replicas": 1, "selector": "a=b"})
    assert cluster.patch(f"{path}/t/scale", {"spec": {"replicas": 5}}).body["spec"] == {"replicas": 5}
    assert cluster.get(f"{path}/t").body["spec"]["size"] == 5
    table = cluster.get(path, Accept="application/json;as=Table;v=v1;g=meta.k8s.io").body
    narrow = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert narrow == ["Name", "Ready", "Size", "Born"]
    assert table["rows"][0]["cells"][:3] == ["t", "True", 5]


def test_selectable_fields(cluster: Cluster, define: Callable[..., str]) -> None:
    path = define(SPEC, selectableFields=[{"jsonPath": ".spec.mode"}])
    cluster.post(path, thing(path, "a", size=1, mode="a"))
    cluster.post(path, thing(path, "b", size=1, mode="b"))
    items = cluster.get(f"{path}?fieldSelector=spec.mode%3Db").body["items"]
    assert [item["metadata"]["name"] for item in items] == ["b"]


@pytest.mark.parametrize(
    "folder", ["gpu-operator-v26.7.0", "helm-controller-v0.17.7", "network-operator-2026-08-19", "slurm-operator-2026-08-20"]
)
def test_published_crds_are_accepted_and_served(emulated: Cluster, folder: str) -> None:
    files = sorted((DATA / folder / "crds").glob("*.yaml"))
    if not files:
        pytest.skip(f"no CRDs in {DATA / folder}: set BRINGUP_TEST_DATA")
    for file in files:
        body = yaml.load(file.read_bytes(), Loader=yaml.CSafeLoader)
        made = emulated.post(f"{CRDS}?fieldValidation=Strict", body)
        assert made.status == 201, made.body["message"]
        version = next(row["name"] for row in body["spec"]["versions"] if row["served"])
        assert emulated.get(f"/apis/{body['spec']['group']}/{version}/{body['spec']['names']['plural']}").body["items"] == []
