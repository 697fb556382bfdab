"""Scale, binding, eviction, and discovery."""

from tests.unit.rehearsal.apiserver.cluster_client import STRATEGIC, Cluster, pod


def test_scale_of_a_deployment(cluster: Cluster, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    cluster.post(
        path, {"metadata": {"name": "d"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "1"}}, "template": template}}
    )
    held = cluster.get(f"{path}/d/scale").body
    assert (held["kind"], held["spec"].get("replicas", 0), held["status"]["selector"]) == ("Scale", 0, "a=1")
    held["spec"] = {"replicas": 3}
    assert cluster.put(f"{path}/d/scale", held).body["spec"]["replicas"] == 3
    assert cluster.put(f"{path}/d/scale", held).status == 409
    assert cluster.patch(f"{path}/d/scale", {"spec": {"replicas": -1}}).status == 422
    deployment = cluster.patch(f"{path}/d/scale", {"spec": {"replicas": 0}}, STRATEGIC)
    assert deployment.status == 200
    assert cluster.get(f"{path}/d").body["metadata"]["generation"] == 3


def test_binding_only_once(cluster: Cluster, pods: str, namespace: str) -> None:
    cluster.post(pods, pod("p"))
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": f"none-{namespace}"}}
    assert cluster.post(f"{pods}/p/binding", body).status == 201
    held = cluster.get(f"{pods}/p").body
    assert [(row["type"], row["status"]) for row in held["status"]["conditions"]] == [("PodScheduled", "True")]
    again = cluster.post(f"{pods}/p/binding", body)
    assert (again.status, again.reason) == (409, "Conflict")


def test_binding_of_a_simulated_scheduler_brings_its_own_time(emulated: Cluster) -> None:
    pods = "/api/v1/namespaces/default/pods"
    emulated.post(pods, pod("bound-in-simulated-time"))
    path, target = f"{pods}/bound-in-simulated-time", {"kind": "Node", "name": "n"}
    for stamp, status in (("yesterday", 400), ("2031-02-03T04:05:06Z", 201)):
        metadata = {"name": "bound-in-simulated-time", "creationTimestamp": stamp}
        assert emulated.post(f"{path}/binding", {"metadata": metadata, "target": target}).status == status
    (condition,) = emulated.get(path).body["status"]["conditions"]
    assert condition["lastTransitionTime"] == "2031-02-03T04:05:06Z"


def test_binding_must_name_its_pod_and_a_node(cluster: Cluster, pods: str) -> None:
    cluster.post(pods, pod("p", schedulingGates=[{"name": "x.io/wait"}]))
    target = {"kind": "Node", "name": "n"}
    assert cluster.post(f"{pods}/p/binding", {"metadata": {"name": "q"}, "target": target}).status == 400
    gated = cluster.post(f"{pods}/p/binding", {"metadata": {"name": "p"}, "target": target})
    assert (gated.status, "schedulingGates" in gated.body["message"]) == (409, True)


def test_eviction_asks_the_disruption_budget(emulated: Cluster) -> None:
    pods = "/api/v1/namespaces/default/pods"
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    for name in ("p", "q", "r"):
        body = pod(name)
        body["metadata"]["labels"] = {"app": "x"}
        emulated.post(pods, body)
        if name != "r":
            emulated.patch(f"{pods}/{name}/status", ready)
    made = emulated.post(
        budgets, {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
    )
    assert made.body["status"]["disruptionsAllowed"] == 0
    new = emulated.post(f"{pods}/p/eviction", {"metadata": {"name": "p"}})
    assert (new.status, new.headers["Retry-After"]) == (429, "10")
    counts = {"currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 3, "disruptionsAllowed": 1, "observedGeneration": 1}
    emulated.patch(f"{budgets}/b/status", {"status": counts})
    assert emulated.post(f"{pods}/p/eviction?dryRun=All", {"metadata": {"name": "p"}}).status == 201
    assert emulated.post(f"{pods}/p/eviction", {"metadata": {"name": "p"}}).status == 201
    assert emulated.get(f"{pods}/p").status == 404
    assert emulated.get(f"{budgets}/b").body["status"]["disruptionsAllowed"] == 0
    assert emulated.post(f"{pods}/q/eviction", {"metadata": {"name": "q"}}).status == 429
    assert emulated.post(f"{pods}/r/eviction", {"metadata": {"name": "r"}}).status == 201, "a pending pod is not guarded"
    assert emulated.post(f"{pods}/q/eviction", {"metadata": {"name": "other"}}).status == 400


def test_subresource_must_exist(cluster: Cluster, maps: str) -> None:
    cluster.post(maps, {"metadata": {"name": "a"}})
    assert cluster.get(f"{maps}/a/scale").status == 404
    assert cluster.delete(f"{maps}/a/status").status in (404, 405)


def test_discovery(cluster: Cluster) -> None:
    assert cluster.get("/readyz").body == b"ok"
    assert cluster.get("/version").body["major"] == "1"
    assert cluster.get("/api").body["versions"] == ["v1"]
    groups = {row["name"]: row["preferredVersion"]["version"] for row in cluster.get("/apis").body["groups"]}
    assert groups["apps"] == "v1"
    assert groups["resource.k8s.io"] == "v1"
    rows = {row["name"]: row for row in cluster.get("/api/v1").body["resources"]}
    assert rows["pods"]["shortNames"] == ["po"]
    assert {"pods/log", "pods/status", "pods/binding", "pods/eviction", "namespaces/finalize"} <= rows.keys()
    assert cluster.get("/apis/apps").body["kind"] == "APIGroup"
    scale = next(row for row in cluster.get("/apis/apps/v1").body["resources"] if row["name"] == "deployments/scale")
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
