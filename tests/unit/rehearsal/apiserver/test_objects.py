"""Create, read, update and delete of objects, as any Kubernetes API server does them."""

from collections.abc import Callable

import pytest

from tests.unit.rehearsal.apiserver.cluster_client import JSON_PATCH, STRATEGIC, Cluster, pod, thing


def test_put_and_get_keep_what_the_server_sets(cluster: Cluster, maps: str) -> None:
    made = cluster.post(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}}).body
    sent = {
        "metadata": {"name": "a", "uid": made["metadata"]["uid"], "creationTimestamp": "2001-01-01T00:00:00Z"},
        "data": {"x": "2"},
    }
    held = cluster.put(f"{maps}/a", sent).body
    assert held["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert int(held["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert cluster.get(f"{maps}/a").body["data"] == {"x": "2"}


def test_write_without_change_keeps_the_revision(cluster: Cluster, maps: str) -> None:
    made = cluster.post(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}}).body
    for _ in range(2):
        assert (
            cluster.patch(f"{maps}/a", {"data": {"x": "1"}}).body["metadata"]["resourceVersion"]
            == made["metadata"]["resourceVersion"]
        )


def test_name_and_uid_must_agree(cluster: Cluster, maps: str) -> None:
    cluster.post(maps, {"metadata": {"name": "a"}})
    assert cluster.put(f"{maps}/a", {"metadata": {"name": "b"}}).status == 400
    assert cluster.put(f"{maps}/a", {"metadata": {"name": "a", "uid": "6f7d1f9e-0000-4000-8000-000000000000"}}).status == 409


def test_created_object_must_not_carry_a_revision(cluster: Cluster, maps: str) -> None:
    assert cluster.post(maps, {"metadata": {"name": "a", "resourceVersion": "7"}}).status == 500


def test_namespace_of_body_and_path_must_agree(cluster: Cluster, maps: str) -> None:
    assert cluster.post(maps, {"metadata": {"name": "a", "namespace": "other"}}).status == 400


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "dot.", "a..b", "x" * 254])
def test_bad_names_are_invalid(cluster: Cluster, maps: str, name: str) -> None:
    answer = cluster.post(maps, {"metadata": {"name": name}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.body["details"]["causes"][0]["field"] == "metadata.name"


def test_labels_must_be_strings(cluster: Cluster, maps: str) -> None:
    answer = cluster.post(maps, {"metadata": {"name": "a", "labels": {"x": 1}}})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "cannot unmarshal number" in answer.body["message"]
    assert cluster.post(maps, {"metadata": {"name": "a", "labels": {"x": "not a label"}}}).status == 422


def test_quantities_come_back_in_canonical_form(cluster: Cluster, namespace: str) -> None:
    name = f"node-{namespace}"
    capacity = {"nvidia.com/gpu": 8, "cpu": "2000m", "memory": "2048Mi"}
    made = cluster.post("/api/v1/nodes", {"metadata": {"name": name}, "status": {"capacity": capacity}}).body
    wrong = cluster.patch(f"/api/v1/nodes/{name}/status", {"status": {"capacity": {"cpu": "many"}}})
    cluster.delete(f"/api/v1/nodes/{name}")
    assert made["status"]["capacity"] == {"nvidia.com/gpu": "8", "cpu": "2", "memory": "2Gi"}
    assert made["status"]["allocatable"] == made["status"]["capacity"]
    assert wrong.status == 400


def test_unknown_field_is_dropped_or_refused(cluster: Cluster, pods: str) -> None:
    body = pod("p", nodeNames="x")
    strict = cluster.post(f"{pods}?fieldValidation=Strict", body)
    assert (strict.status, strict.reason) == (400, "BadRequest")
    assert 'unknown field "spec.nodeNames"' in strict.body["message"]
    made = cluster.post(pods, body)
    assert made.status == 201
    assert "nodeNames" not in made.body["spec"]
    assert 'unknown field \\"spec.nodeNames\\"' in made.headers["Warning"]
    assert "Warning" not in cluster.post(f"{pods}?fieldValidation=Ignore", pod("q", nodeNames="x")).headers


def test_put_creates_what_may_be_created_so(cluster: Cluster, namespace: str, maps: str) -> None:
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/l"
    assert cluster.put(path, lease).status == 201
    assert cluster.put(path, lease).status == 422
    assert cluster.put(f"{maps}/a", {"metadata": {"name": "a"}}).status == 404


def test_limits_become_requests_in_pods_but_not_in_templates(cluster: Cluster, namespace: str, pods: str) -> None:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    made = cluster.post(pods, {"metadata": {"name": "p"}, "spec": {"containers": [container]}}).body
    assert made["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}
    job = {"metadata": {"name": "j"}, "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}}
    held = cluster.post(f"/apis/batch/v1/namespaces/{namespace}/jobs", job).body
    assert held["spec"]["template"]["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": "8"}}


def test_missing_parts_are_listed_together(cluster: Cluster, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    spec = {
        "selector": {"matchLabels": {"a": "1"}},
        "template": {"metadata": {"labels": {"a": "2"}}, "spec": {"containers": [{"name": "c"}]}},
    }
    answer = cluster.post(path, {"metadata": {"name": "d"}, "spec": spec})
    fields = {cause["field"] for cause in answer.body["details"]["causes"]}
    assert answer.status == 422
    assert fields == {"spec.template.metadata.labels", "spec.template.spec.containers[0].image"}


def test_extended_resources_cannot_be_overcommitted(cluster: Cluster, pods: str) -> None:
    resources = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}}
    answer = cluster.post(
        pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}
    )
    assert answer.status == 422
    assert "must be equal to nvidia.com/gpu limit" in answer.body["message"]


def test_defaults_of_workloads(cluster: Cluster, namespace: str) -> None:
    template = {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "1"}}, "template": template}}
    made = cluster.post(f"/apis/apps/v1/namespaces/{namespace}/daemonsets", body).body
    assert made["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    assert made["spec"]["template"]["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    assert made["status"]["numberReady"] == 0
    assert made["metadata"]["generation"] == 1


def test_job_gets_its_selector(cluster: Cluster, namespace: str) -> None:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    made = cluster.post(path, {"metadata": {"name": "j"}, "spec": spec}).body
    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    assert made["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    assert made["spec"]["backoffLimit"] == 6
    changed = cluster.patch(f"{path}/j", {"spec": {"completions": 7}})
    assert (changed.status, changed.reason) == (422, "Invalid")


def test_pod_spec_is_immutable_but_for_images(cluster: Cluster, pods: str) -> None:
    cluster.post(pods, pod("p"))
    assert cluster.patch(f"{pods}/p", {"spec": {"hostNetwork": True}}).status == 422
    changed = cluster.patch(f"{pods}/p", {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}, STRATEGIC)
    assert changed.body["spec"]["containers"][0]["image"] == "i:2"


def test_secret_string_data_is_encoded(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    made = cluster.post(path, {"metadata": {"name": "s"}, "stringData": {"k": "v"}}).body
    assert (made["type"], made["data"]) == ("Opaque", {"k": "dg=="})
    assert "stringData" not in made
    assert cluster.post(path, {"metadata": {"name": "t"}, "data": {"k": "*"}}).status == 400


def test_immutable_config_map(cluster: Cluster, maps: str) -> None:
    cluster.post(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}, "immutable": True})
    assert cluster.patch(f"{maps}/a", {"data": {"x": "2"}}).status == 422
    assert cluster.patch(f"{maps}/a", {"metadata": {"labels": {"x": "2"}}}).status == 200


def test_delete_answers_with_a_status_and_checks_preconditions(cluster: Cluster, maps: str) -> None:
    made = cluster.post(maps, {"metadata": {"name": "a"}}).body
    assert cluster.delete(f"{maps}/a", {"preconditions": {"uid": "other"}}).status == 409
    assert cluster.delete(f"{maps}/a", {"preconditions": {"resourceVersion": "1"}}).status == 409
    gone = cluster.delete(f"{maps}/a", {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert (gone.status, gone.body["kind"], gone.body["status"]) == (200, "Status", "Success")
    assert gone.body["details"]["uid"] == made["metadata"]["uid"]
    assert cluster.delete(f"{maps}/a").status == 404


def test_running_pod_ends_gracefully(cluster: Cluster, pods: str, namespace: str) -> None:
    cluster.post(pods, pod("p", nodeName=f"none-{namespace}"))
    held = cluster.delete(f"{pods}/p")
    assert held.status == 200
    assert held.body["metadata"]["deletionGracePeriodSeconds"] == 30
    assert cluster.get(f"{pods}/p").body["metadata"]["deletionTimestamp"]
    cluster.delete(f"{pods}/p", {"gracePeriodSeconds": 0})
    assert cluster.get(f"{pods}/p").status == 404


def test_pod_without_node_is_deleted_at_once(cluster: Cluster, pods: str) -> None:
    cluster.post(pods, pod("p"))
    cluster.delete(f"{pods}/p")
    assert cluster.get(f"{pods}/p").status == 404


def test_foreground_and_orphan_leave_a_finalizer(cluster: Cluster, maps: str) -> None:
    for name, policy, finalizer in (("a", "Foreground", "foregroundDeletion"), ("b", "Orphan", "orphan")):
        cluster.post(maps, {"metadata": {"name": name, "finalizers": ["x.io/hold"]}})
        held = cluster.delete(f"{maps}/{name}", {"propagationPolicy": policy}).body
        assert set(held["metadata"]["finalizers"]) == {"x.io/hold", finalizer}
        cluster.patch(f"{maps}/{name}", {"metadata": {"finalizers": None}})


def test_finalizers_cannot_be_added_to_a_terminating_object(cluster: Cluster, maps: str) -> None:
    cluster.post(maps, {"metadata": {"name": "a", "finalizers": ["x.io/a"]}})
    cluster.delete(f"{maps}/a")
    refused = cluster.patch(f"{maps}/a", {"metadata": {"finalizers": ["x.io/a", "x.io/b"]}})
    cluster.patch(f"{maps}/a", {"metadata": {"finalizers": None}})
    assert refused.status == 422
    assert cluster.get(f"{maps}/a").status == 404


def test_status_of_built_in_and_custom_objects(cluster: Cluster, define: Callable[..., str]) -> None:
    path = define({"type": "object", "properties": {"a": {"type": "integer"}}}, subresources={"status": {}})
    made = cluster.post(path, thing(path, "t", a=1) | {"status": {"x": 1}}).body
    assert "status" not in made
    body = {"status": {"x": 2}, "spec": {"a": 9}, "metadata": {"labels": {"l": "1"}}}
    held = cluster.patch(f"{path}/t/status", body).body
    assert (held["status"], held["spec"], held["metadata"].get("labels")) == ({"x": 2}, {"a": 1}, None)
    assert held["metadata"]["generation"] == 1


def test_missing_namespace_is_404_and_terminating_one_403(cluster: Cluster, namespace: str, maps: str) -> None:
    missing = cluster.post("/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "a"}})
    assert (missing.status, missing.body["message"]) == (404, 'namespaces "nowhere" not found')
    cluster.post(maps, {"metadata": {"name": "hold", "finalizers": ["x.io/hold"]}})
    held = cluster.delete(f"/api/v1/namespaces/{namespace}").body
    assert held["status"]["phase"] == "Terminating"
    refused = cluster.post(maps, {"metadata": {"name": "b"}})
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    cluster.patch(f"{maps}/hold", {"metadata": {"finalizers": None}})


def test_namespace_goes_when_finalized(emulated: Cluster) -> None:
    made = emulated.post("/api/v1/namespaces", {"metadata": {"name": "n"}}).body
    assert made["spec"]["finalizers"] == ["kubernetes"]
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "n"}
    emulated.patch("/api/v1/namespaces/n", {"spec": {"finalizers": []}})
    emulated.delete("/api/v1/namespaces/n")
    held = emulated.get("/api/v1/namespaces/n").body
    assert held["spec"]["finalizers"] == ["kubernetes"]
    emulated.put("/api/v1/namespaces/n/finalize", held | {"spec": {"finalizers": []}})
    assert emulated.get("/api/v1/namespaces/n").status == 404


def test_first_namespaces_stay(cluster: Cluster) -> None:
    assert cluster.delete("/api/v1/namespaces/kube-system").status == 403
    assert cluster.get("/api/v1/namespaces/kube-system").body["metadata"]["uid"]


def test_dry_run_of_every_write(cluster: Cluster, maps: str) -> None:
    cluster.post(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert cluster.patch(f"{maps}/a?dryRun=All", {"data": {"x": "2"}}).body["data"] == {"x": "2"}
    cluster.delete(f"{maps}/a?dryRun=All")
    cluster.delete(f"{maps}/a", {"dryRun": ["All"]})
    cluster.call("DELETE", f"{maps}?dryRun=All")
    assert cluster.get(f"{maps}/a").body["data"] == {"x": "1"}
    assert cluster.post(f"{maps}?dryRun=Some", {"metadata": {"name": "b"}}).status in (400, 422)


def test_patch_kinds_and_their_errors(cluster: Cluster, maps: str, define: Callable[..., str]) -> None:
    cluster.post(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    assert cluster.patch(f"{maps}/a", [{"op": "test", "path": "/data/x", "value": "2"}], JSON_PATCH).status == 422
    assert cluster.patch(f"{maps}/a", {"data": {"x": "2"}}, "text/plain").status == 415
    assert cluster.call("PATCH", f"{maps}/a", b"{", content=STRATEGIC).status == 400
    assert cluster.patch(f"{maps}/a", {"metadata": {"resourceVersion": "1"}}).status == 409
    path = define({"type": "object"})
    cluster.post(path, thing(path, "t"))
    assert cluster.patch(f"{path}/t", {"metadata": {"labels": {"a": "1"}}}, STRATEGIC).status == 415


def test_yaml_body(cluster: Cluster, maps: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: 'yes'\n"
    assert cluster.call("POST", maps, text, content="application/yaml").body["data"] == {"x": "yes"}


def test_yaml_dates_and_numbers_as_keys_are_text(cluster: Cluster, maps: str) -> None:
    text = b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: a}\ndata: {day: 2026-01-01, 1: one}\n"
    assert cluster.call("POST", maps, text, content="application/yaml").body["data"] == {"day": "2026-01-01", "1": "one"}
    assert cluster.call("POST", maps, b"a: [", content="application/yaml").status == 400
    assert cluster.call("POST", maps, b"[" * 100_000).status == 400


def test_custom_object_is_not_replaced_without_a_revision(cluster: Cluster, define: Callable[..., str]) -> None:
    path = define({"type": "object", "properties": {"a": {"type": "integer"}}})
    made = cluster.post(path, thing(path, "t", a=1)).body
    refused = cluster.put(f"{path}/t", thing(path, "t", a=2))
    assert (refused.status, "must be specified for an update" in refused.body["message"]) == (422, True)
    assert cluster.put(f"{path}/t", made | {"spec": {"a": 2}}).body["spec"] == {"a": 2}


def test_wrong_kind_method_and_path(cluster: Cluster, maps: str) -> None:
    assert cluster.post(maps, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}).status == 400
    assert cluster.call("PUT", maps, {"metadata": {"name": "a"}}).status == 405
    assert cluster.get("/api/v1/nothings").status == 404
    assert cluster.get("/apis/none.example.com/v1").status == 404
    assert cluster.get(f"{maps}/a/status").status == 404


def test_body_above_the_limit_is_413(cluster: Cluster, maps: str) -> None:
    assert cluster.post(maps, {"metadata": {"name": "a"}, "data": {"x": "y" * (3 << 20)}}).status == 413


def test_no_token_is_401(cluster: Cluster) -> None:
    answer = cluster.call("GET", "/api/v1/nodes", Authorization="Bearer wrong")
    assert (answer.status, answer.reason) == (401, "Unauthorized")
