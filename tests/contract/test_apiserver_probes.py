"""27 probes of Kubernetes API behaviour through the official client: the emulated server answers as a real one does.

With `BRINGUP_TEST_KUBECONFIG` they also run against the server of that kubeconfig, which proves the probes themselves.
"""

import json
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, dynamic, watch
from kubernetes.client.rest import ApiException

from tests.contract.objects import NODES, config_map, eventually, helm_chart

MERGE = "application/merge-patch+json"


def pod(**meta: str) -> dict[str, Any]:
    """A pod that nobody schedules, so that a real cluster's node leaves it alone."""
    spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def raw(response: Any) -> Any:
    return json.loads(response.data)


def reason(error: ApiException) -> tuple[int, str]:
    return error.status, json.loads(error.body)["reason"]


def test_version(api: client.ApiClient) -> None:
    assert client.VersionApi(api).get_code().git_version.startswith("v1.")


def test_create_sets_uid_revision_and_time(core: client.CoreV1Api, namespace: str) -> None:
    made = core.create_namespaced_config_map(namespace, config_map("c1", x="1"))
    assert made.metadata.uid
    assert made.metadata.resource_version
    assert made.metadata.creation_timestamp


def test_create_of_an_existing_object_is_409(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("c1"))
    with pytest.raises(ApiException) as caught:
        core.create_namespaced_config_map(namespace, config_map("c1"))
    assert reason(caught.value) == (409, "AlreadyExists")


def test_get_of_a_missing_object_is_404(core: client.CoreV1Api, namespace: str) -> None:
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_config_map("missing", namespace)
    assert reason(caught.value) == (404, "NotFound")


def test_list_has_kind_and_revision(core: client.CoreV1Api, namespace: str) -> None:
    body = raw(core.list_namespaced_config_map(namespace, _preload_content=False))
    assert body["kind"] == "ConfigMapList"
    assert body["metadata"]["resourceVersion"].isdigit()


def test_merge_patch_deletes_on_null(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("c1", x="1", y="2"))
    patched = core.patch_namespaced_config_map("c1", namespace, {"data": {"y": None, "z": "3"}}, _content_type=MERGE)
    assert patched.data == {"x": "1", "z": "3"}


def test_json_patch(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("c1", x="1"))
    operations = [{"op": "replace", "path": "/data/x", "value": "9"}, {"op": "add", "path": "/metadata/labels/b~1c", "value": "q"}]
    patched = core.patch_namespaced_config_map("c1", namespace, operations)
    assert patched.data == {"x": "9"}
    assert patched.metadata.labels["b/c"] == "q"


def test_put_with_an_old_revision_is_409(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("c1", x="1"))
    old = raw(core.read_namespaced_config_map("c1", namespace, _preload_content=False))
    assert core.replace_namespaced_config_map("c1", namespace, old | {"data": {"only": "1"}}).data == {"only": "1"}
    with pytest.raises(ApiException) as caught:
        core.replace_namespaced_config_map("c1", namespace, old)
    assert reason(caught.value) == (409, "Conflict")


def test_generation_counts_spec_changes_only(api: client.ApiClient, namespace: str) -> None:
    custom, where = client.CustomObjectsApi(api), ("helm.cattle.io", "v1", namespace, "helmcharts")
    made = custom.create_namespaced_custom_object(*where, helm_chart("hc", namespace, chart="a"))
    labelled = custom.patch_namespaced_custom_object(*where, "hc", {"metadata": {"labels": {"x": "y"}}})
    changed = custom.patch_namespaced_custom_object(*where, "hc", {"spec": {"chart": "b"}})
    assert [row["metadata"]["generation"] for row in (made, labelled, changed)] == [1, 1, 2]


def test_status_patch_leaves_spec_alone(core: client.CoreV1Api) -> None:
    core.patch_node_status("gpu-0001", {"status": {"phase": "X"}, "spec": {"providerID": "other"}})
    held = core.read_node("gpu-0001")
    assert held.status.phase == "X"
    assert held.spec.provider_id == "sim://gpu-0001"


def test_main_patch_leaves_status_alone(core: client.CoreV1Api) -> None:
    core.patch_node_status("gpu-0004", {"status": {"phase": "X"}})
    core.patch_node("gpu-0004", {"status": {"phase": "Y"}})
    assert core.read_node("gpu-0004").status.phase == "X"


def test_strategic_merge_adds_a_condition_by_type(core: client.CoreV1Api) -> None:
    core.patch_node_status("gpu-0002", {"status": {"conditions": [{"type": "GpuHealthy", "status": "True"}]}})
    assert len(core.read_node("gpu-0002").status.conditions) == 5


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ("topology.kubernetes.io/zone=su-000", 32),
        ("topology.kubernetes.io/zone in (su-000,su-001)", 64),
        ("nvidia.com/gpu.present,!nope", NODES),
        ("nope", 0),
    ],
)
def test_label_selectors(core: client.CoreV1Api, selector: str, count: int) -> None:
    assert len(raw(core.list_node(label_selector=selector, _preload_content=False))["items"]) == count


def test_field_selector_by_name(core: client.CoreV1Api) -> None:
    items = raw(core.list_node(field_selector="metadata.name=gpu-0003", _preload_content=False))["items"]
    assert [item["metadata"]["name"] for item in items] == ["gpu-0003"]


def test_limit_and_continue(core: client.CoreV1Api) -> None:
    first = raw(core.list_node(limit=50, _preload_content=False))
    second = raw(core.list_node(limit=50, _continue=first["metadata"]["continue"], _preload_content=False))
    names = [item["metadata"]["name"] for item in first["items"] + second["items"]]
    assert len(first["items"]) == 50
    assert len(set(names)) == len(names) >= NODES


def test_watch_from_a_revision_shows_new_events_only(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, config_map("c1", x="1"))
    revision = core.list_namespaced_config_map(namespace).metadata.resource_version
    stream = watch.Watch()
    change = threading.Thread(
        target=lambda: core.patch_namespaced_config_map("c1", namespace, {"data": {"w": "1"}}, _content_type=MERGE)
    )
    change.start()
    seen = []
    for event in stream.stream(
        core.list_namespaced_config_map, namespace, field_selector="metadata.name=c1", resource_version=revision, timeout_seconds=60
    ):
        seen.append((event["type"], event["object"].data))
        stream.stop()
    change.join()
    assert seen == [("MODIFIED", {"x": "1", "w": "1"})]


def test_watch_ends_after_timeout_seconds(core: client.CoreV1Api, namespace: str) -> None:
    start = time.monotonic()
    response = core.list_namespaced_config_map(
        namespace, watch=True, timeout_seconds=1, _preload_content=False, _request_timeout=60
    )
    list(response.stream())
    assert time.monotonic() - start < 30


def test_watch_from_a_forgotten_revision_is_410(core: client.CoreV1Api, namespace: str) -> None:
    response = core.list_namespaced_config_map(
        namespace, resource_version="1", watch=True, timeout_seconds=1, _preload_content=False, _request_timeout=60
    )
    event = json.loads(response.data)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_apply_creates_and_removes_what_it_no_longer_mentions(charts: Any, namespace: str) -> None:
    where = {"name": "ssa", "namespace": namespace, "field_manager": "m1"}
    charts.server_side_apply(body=helm_chart("ssa", namespace, chart="a", version="1"), **where)
    applied = charts.server_side_apply(body=helm_chart("ssa", namespace, chart="a"), **where).to_dict()
    assert applied["spec"]["chart"] == "a"
    assert "version" not in applied["spec"]
    assert [row["manager"] for row in applied["metadata"]["managedFields"]] == ["m1"]


def test_apply_of_anothers_field_is_409_unless_forced(charts: Any, namespace: str) -> None:
    where = {"name": "ssa", "namespace": namespace}
    charts.server_side_apply(body=helm_chart("ssa", namespace, chart="a"), field_manager="m1", **where)
    other = helm_chart("ssa", namespace, chart="other")
    with pytest.raises(ApiException) as caught:
        charts.server_side_apply(body=other, field_manager="m2", **where)
    assert caught.value.status == 409
    assert charts.server_side_apply(body=other, field_manager="m2", force_conflicts=True, **where).spec.chart == "other"


def test_new_crd_is_established_discoverable_and_usable(api: client.ApiClient, namespace: str, tmp_path: Path) -> None:
    group = f"probe{uuid.uuid4().hex[:6]}.example.com"
    open_object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": open_object, "status": open_object}}
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {"plural": "nodesets", "singular": "nodeset", "kind": "NodeSet"}
    definitions = client.ApiextensionsV1Api(api)
    definitions.create_custom_resource_definition(
        {
            "metadata": {"name": f"nodesets.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
        }
    )
    body = {"apiVersion": f"{group}/v1beta1", "kind": "NodeSet", "metadata": {"name": "n1"}, "spec": {"replicas": 4}}
    custom = client.CustomObjectsApi(api)
    made = eventually(lambda: custom.create_namespaced_custom_object(group, "v1beta1", namespace, "nodesets", body))
    conditions = definitions.read_custom_resource_definition(f"nodesets.{group}").status.conditions
    found = dynamic.DynamicClient(api, cache_file=str(tmp_path / "cache")).resources.get(
        api_version=f"{group}/v1beta1", kind="NodeSet"
    )
    definitions.delete_custom_resource_definition(f"nodesets.{group}", _preload_content=False)
    assert made["spec"]["replicas"] == 4
    assert ("Established", "True") in [(row.type, row.status) for row in conditions]
    assert found.name == "nodesets"


def test_a_pod_without_a_node_has_no_log(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod(name="p1"))
    answer = core.read_namespaced_pod_log("p1", namespace, _preload_content=False)
    assert (answer.status, answer.data) == (204, b"")


def test_generate_name(core: client.CoreV1Api, namespace: str) -> None:
    name = core.create_namespaced_pod(namespace, pod(generateName="job-")).metadata.name
    assert name.startswith("job-")
    assert len(name) == len("job-") + 5


def test_delete_collection_by_label(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "dc1", "labels": {"kill": "1"}}})
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "dc2"}})
    core.delete_collection_namespaced_config_map(namespace, label_selector="kill=1")
    left = {item.metadata.name for item in core.list_namespaced_config_map(namespace).items}
    assert "dc2" in left
    assert "dc1" not in left


def test_finalizer_holds_deletion(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "fin", "finalizers": ["x.io/f"]}})
    core.delete_namespaced_config_map("fin", namespace)
    assert core.read_namespaced_config_map("fin", namespace).metadata.deletion_timestamp
    core.patch_namespaced_config_map("fin", namespace, {"metadata": {"finalizers": None}}, _content_type=MERGE)
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_config_map("fin", namespace)
    assert caught.value.status == 404


def test_dry_run_stores_nothing(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "dry"}}, dry_run="All")
    with pytest.raises(ApiException) as caught:
        core.read_namespaced_config_map("dry", namespace)
    assert caught.value.status == 404


def test_binding_sets_the_node(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod(name="p1"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "gpu-0001"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p1"}, "target": target}
    core.create_namespaced_pod_binding("p1", namespace, body, _preload_content=False)
    assert core.read_namespaced_pod("p1", namespace).spec.node_name == "gpu-0001"
