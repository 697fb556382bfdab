"""Server-side apply: ownership, conflicts, removal, list types."""

from collections.abc import Callable
from typing import Any

from tests.unit.rehearsal.apiserver.cluster_client import STRATEGIC, Cluster, thing


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "data": data}


def owners(body: dict[str, Any]) -> dict[str, Any]:
    return {row["manager"]: row["fieldsV1"] for row in body["metadata"]["managedFields"]}


def test_apply_creates_and_records_its_fields(cluster: Cluster, maps: str) -> None:
    made = cluster.apply(f"{maps}/a", config_map(x="1") | {"metadata": {"labels": {"l": "1"}}}, "one")
    assert made.status == 201
    assert owners(made.body) == {"one": {"f:data": {"f:x": {}}, "f:metadata": {"f:labels": {"f:l": {}}}}}
    again = cluster.apply(f"{maps}/a", config_map(x="1") | {"metadata": {"labels": {"l": "1"}}}, "one")
    assert again.status == 200
    assert again.body["metadata"]["resourceVersion"] == made.body["metadata"]["resourceVersion"]


def test_shared_field_stays_until_its_last_owner_drops_it(cluster: Cluster, maps: str) -> None:
    cluster.apply(f"{maps}/a", config_map(x="1", y="1"), "one")
    cluster.apply(f"{maps}/a", config_map(x="1"), "two")
    assert cluster.apply(f"{maps}/a", config_map(y="1"), "one").body["data"] == {"x": "1", "y": "1"}
    assert cluster.apply(f"{maps}/a", config_map(z="1"), "two").body["data"] == {"y": "1", "z": "1"}


def test_conflict_names_owner_and_field(cluster: Cluster, maps: str) -> None:
    cluster.apply(f"{maps}/a", config_map(x="1", y="1"), "one")
    refused = cluster.apply(f"{maps}/a", config_map(x="2", y="1"), "two")
    assert (refused.status, refused.reason) == (409, "Conflict")
    assert refused.body["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert [row["field"] for row in refused.body["details"]["causes"]] == [".data.x"]
    forced = cluster.apply(f"{maps}/a", config_map(x="2", y="1"), "two", force=True).body
    assert forced["data"] == {"x": "2", "y": "1"}
    assert owners(forced) == {"one": {"f:data": {"f:y": {}}}, "two": {"f:data": {"f:x": {}, "f:y": {}}}}


def test_plain_update_takes_ownership(cluster: Cluster, maps: str) -> None:
    cluster.apply(f"{maps}/a", config_map(x="1", y="1"), "one")
    patched = cluster.patch(f"{maps}/a?fieldManager=editor", {"data": {"x": "2"}}).body
    rows = {(row["manager"], row["operation"]): row["fieldsV1"] for row in patched["metadata"]["managedFields"]}
    assert rows[("one", "Apply")] == {"f:data": {"f:y": {}}}
    assert "f:x" in rows[("editor", "Update")]["f:data"]
    refused = cluster.apply(f"{maps}/a", config_map(x="1", y="1"), "one")
    assert refused.status == 409
    assert 'conflict with "editor" using v1' in refused.body["message"]


def test_field_set_before_the_first_apply_is_a_conflict(cluster: Cluster, maps: str) -> None:
    cluster.post(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert cluster.apply(f"{maps}/a", config_map(x="2"), "one").status == 409
    shared = cluster.apply(f"{maps}/a", config_map(x="1", y="1"), "one")
    assert shared.status == 200
    assert cluster.apply(f"{maps}/a", config_map(y="1"), "one").body["data"] == {"x": "1", "y": "1"}


def test_managed_fields_can_be_cleared_but_not_applied(cluster: Cluster, maps: str) -> None:
    cluster.apply(f"{maps}/a", config_map(x="1"), "one")
    body = config_map(x="1") | {"metadata": {"managedFields": [{"manager": "x"}]}}
    assert cluster.apply(f"{maps}/a", body, "one").status == 400
    cleared = cluster.patch(f"{maps}/a", {"metadata": {"managedFields": []}}).body
    assert "one" not in {row["manager"] for row in cleared["metadata"].get("managedFields", [])}


def daemon_set(*containers: dict[str, Any]) -> dict[str, Any]:
    template = {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": list(containers)}}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "spec": {"selector": {"matchLabels": {"a": "1"}}, "template": template}}


def test_containers_are_merged_by_name_and_ports_by_two_keys(cluster: Cluster, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/d"
    ports = [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}]
    cluster.apply(path, daemon_set({"name": "a", "image": "i:1", "ports": ports}), "one")
    side = daemon_set(
        {"name": "b", "image": "s:1"}, {"name": "a", "image": "i:1", "ports": [{"containerPort": 80, "name": "http"}]}
    )
    both = cluster.apply(path, side, "two").body["spec"]["template"]["spec"]["containers"]
    assert [row["name"] for row in both] == ["a", "b"]
    assert both[0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "http"}, {"containerPort": 80, "protocol": "UDP"}]
    alone = cluster.apply(path, daemon_set({"name": "a", "image": "i:1"}), "two").body["spec"]["template"]["spec"]["containers"]
    assert [row["name"] for row in alone] == ["a"]
    assert "name" not in alone[0]["ports"][0]


def test_selector_is_owned_as_a_whole(cluster: Cluster, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/d"
    made = cluster.apply(path, daemon_set({"name": "a", "image": "i"}), "one").body
    assert owners(made)["one"]["f:spec"]["f:selector"] == {}


def test_undeclared_field_is_refused(cluster: Cluster, namespace: str) -> None:
    answer = cluster.apply(
        f"/apis/apps/v1/namespaces/{namespace}/daemonsets/d", daemon_set({"name": "a", "image": "i", "imege": "j"}), "one"
    )
    assert answer.status == 500
    assert "field not declared in schema" in answer.body["message"]


def test_manager_and_name_are_required(cluster: Cluster, maps: str) -> None:
    assert cluster.patch(f"{maps}/a", config_map(x="1"), "application/apply-patch+yaml").status in (400, 422)
    assert cluster.apply(f"{maps}/a", config_map(x="1") | {"metadata": {"name": "b"}}, "one").status == 400
    assert cluster.apply(f"{maps}/a", {"data": {"x": "1"}}, "one").status == 400


def test_list_types_of_a_crd(cluster: Cluster, define: Callable[..., str]) -> None:
    entry = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "zone": {"type": "string", "default": "z"}, "size": {"type": "integer"}},
    }
    keyed = {"type": "array", "items": entry, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "zone"]}
    texts = {"type": "array", "items": {"type": "string"}}
    fields = {"rows": keyed, "tags": texts | {"x-kubernetes-list-type": "set"}, "order": texts}
    path = define({"type": "object", "properties": fields})
    first = thing(path, "t", rows=[{"name": "a", "zone": "z", "size": 1}], tags=["x"], order=["1"])
    second = thing(path, "t", rows=[{"name": "a", "zone": "y", "size": 2}], tags=["y"])
    cluster.apply(f"{path}/t", first, "one")
    both = cluster.apply(f"{path}/t", second, "two").body["spec"]
    assert [(row["name"], row["zone"], row["size"]) for row in both["rows"]] == [("a", "z", 1), ("a", "y", 2)]
    assert both["tags"] == ["x", "y"]
    assert cluster.apply(f"{path}/t", second | {"spec": second["spec"] | {"order": ["2"]}}, "two").status == 409
    left = cluster.apply(f"{path}/t", thing(path, "t", tags=["y"]), "one").body["spec"]
    assert left == {"rows": [{"name": "a", "zone": "y", "size": 2}], "tags": ["y"]}


def test_status_is_applied_apart(cluster: Cluster, define: Callable[..., str]) -> None:
    path = define({"type": "object", "properties": {"a": {"type": "integer"}}}, subresources={"status": {}})
    cluster.apply(f"{path}/t", thing(path, "t", a=1) | {"status": {"x": 1}}, "one")
    applied = cluster.apply(f"{path}/t/status", thing(path, "t", a=2) | {"status": {"x": 2}}, "controller").body
    rows = {(row["manager"], row.get("subresource")): row["fieldsV1"] for row in applied["metadata"]["managedFields"]}
    assert (applied["spec"], applied["status"]) == ({"a": 1}, {"x": 2})
    assert rows == {("one", None): {"f:spec": {"f:a": {}}}, ("controller", "status"): {"f:status": {"f:x": {}}}}
    assert cluster.apply(f"{path}/u/status", thing(path, "u"), "controller").status == 404


def test_strategic_patch_of_an_applied_object_keeps_records_true(cluster: Cluster, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/d"
    cluster.apply(path, daemon_set({"name": "a", "image": "i:1"}), "one")
    change = {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "i:2"}]}}}}
    cluster.patch(f"{path}?fieldManager=other", change, STRATEGIC)
    refused = cluster.apply(path, daemon_set({"name": "a", "image": "i:1"}), "one")
    assert refused.body["details"]["causes"][0]["field"] == '.spec.template.spec.containers[name="a"].image'


def test_who_applies_nothing_but_a_name_owns_nothing_and_may_apply_again(cluster: Cluster, maps: str) -> None:
    for status in (201, 200):
        made = cluster.apply(f"{maps}/bare", {"apiVersion": "v1", "kind": "ConfigMap"}, "one")
        assert made.status == status
        assert "managedFields" not in made.body["metadata"]
