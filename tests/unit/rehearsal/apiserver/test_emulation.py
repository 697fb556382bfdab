"""Features that only the emulated API server has: writing container logs, snapshots, disturbances, and a record of requests."""

import threading
import time

import pytest

from tests.unit.rehearsal.apiserver.cluster_client import Cluster, pod

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
LOGS = "/emulation/logs/default"


@pytest.fixture
def running(emulated: Cluster) -> Cluster:
    emulated.post(PODS, pod("p", nodeName="n1"))
    return emulated


def write(cluster: Cluster, text: str, container: str = "c", query: str = "") -> None:
    answer = cluster.call("POST", f"{LOGS}/p/{container}{query}", text.encode(), content="text/plain")
    assert answer.status == 200, answer.body


def test_log_window(running: Cluster) -> None:
    write(running, "one\ntwo\nth")
    write(running, "ree\nfour\n")
    assert running.get(f"{PODS}/p/log").body == b"one\ntwo\nthree\nfour\n"
    assert running.get(f"{PODS}/p/log?tailLines=2").body == b"three\nfour\n"
    assert running.get(f"{PODS}/p/log?tailLines=0").body == b""
    assert running.get(f"{PODS}/p/log?limitBytes=5").body == b"one\nt"
    assert running.get(f"{PODS}/p/log?sinceSeconds=60&container=c").body == b"one\ntwo\nthree\nfour\n"
    stamp, _, text = running.get(f"{PODS}/p/log?timestamps=true&tailLines=1").body.partition(b" ")
    assert (stamp[-1:], text) == (b"Z", b"four\n")


def test_previous_log_after_a_restart(running: Cluster) -> None:
    assert running.get(f"{PODS}/p/log?previous=true").status == 400
    write(running, "crash\n")
    write(running, "again\n", query="?restart=true")
    assert running.get(f"{PODS}/p/log?previous=true").body == b"crash\n"
    assert running.get(f"{PODS}/p/log").body == b"again\n"


def test_container_must_be_chosen_and_exist(emulated: Cluster) -> None:
    two = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
    emulated.post(PODS, {"metadata": {"name": "p"}, "spec": {"containers": two}})
    answer = emulated.get(f"{PODS}/p/log")
    assert (answer.status, "choose one of: [a b]" in answer.body["message"]) == (400, True)
    assert emulated.get(f"{PODS}/p/log?container=x").status == 400
    assert emulated.call("POST", f"{LOGS}/p/x", b"", content="text/plain").status == 400
    assert emulated.call("POST", f"{LOGS}/none/x", b"", content="text/plain").status == 404
    write(emulated, "hello\n", "b")
    assert emulated.get(f"{PODS}/p/log?container=b").body == b"hello\n"


def test_waiting_container_has_no_log(running: Cluster) -> None:
    row = {
        "name": "c",
        "image": "i",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff"}},
    }
    running.patch(f"{PODS}/p/status", {"status": {"containerStatuses": [row]}})
    answer = running.get(f"{PODS}/p/log")
    assert answer.status == 400
    assert answer.body["message"] == 'container "c" in pod "p" is waiting to start: ImagePullBackOff'


def test_follow_ends_with_the_container(running: Cluster) -> None:
    write(running, "one\n")

    def go_on() -> None:
        write(running, "two\n")
        write(running, "three\n")
        running.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})

    later = threading.Thread(target=go_on)
    later.start()
    assert running.get(f"{PODS}/p/log?follow=true").body == b"one\ntwo\nthree\n"
    later.join()


def test_log_goes_with_its_pod(running: Cluster) -> None:
    write(running, "old\n")
    running.delete(f"{PODS}/p?gracePeriodSeconds=0")
    running.post(PODS, pod("p", nodeName="n1"))
    assert running.get(f"{PODS}/p/log").body == b""


def test_snapshot_brings_back_objects_definitions_and_logs(running: Cluster) -> None:
    write(running, "before\n")
    names = {"plural": "things", "kind": "Thing"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": "e.com",
        "scope": "Cluster",
        "names": names,
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
    }
    running.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"metadata": {"name": "things.e.com"}, "spec": spec})
    running.post("/apis/e.com/v1/things", {"apiVersion": "e.com/v1", "kind": "Thing", "metadata": {"name": "t"}})
    made = running.post(MAPS, {"metadata": {"name": "a"}, "data": {"x": "1"}}).body
    uid = running.get("/api/v1/namespaces/kube-system").body["metadata"]["uid"]
    token = running.get("/api/v1/namespaces?limit=1").body["metadata"]["continue"]

    taken = running.get("/emulation/snapshot").body
    events = running.watch(f"{MAPS}?resourceVersion={made['metadata']['resourceVersion']}")
    running.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.e.com")
    changed = running.patch(f"{MAPS}/a", {"data": {"x": "2"}}).body
    write(running, "after\n")
    assert next(events)["type"] == "MODIFIED"
    assert running.call("PUT", "/emulation/snapshot", taken, content="application/octet-stream").status == 200

    assert running.get(f"{MAPS}/a").body == made
    assert running.get("/apis/e.com/v1/things/t").status == 200
    assert running.get(f"{PODS}/p/log").body == b"before\n"
    assert running.get("/api/v1/namespaces/kube-system").body["metadata"]["uid"] == uid
    assert int(running.revision(MAPS)) > int(changed["metadata"]["resourceVersion"])
    error = next(events)
    assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
    assert running.get(f"/api/v1/namespaces?limit=1&continue={token}").status == 410
    assert running.put(f"{MAPS}/a", changed).status == 409


def test_what_is_not_a_snapshot_is_refused(emulated: Cluster) -> None:
    assert emulated.call("PUT", "/emulation/snapshot", b"nonsense", content="application/octet-stream").status == 400


def test_latency(emulated: Cluster) -> None:
    assert emulated.put("/emulation/disturbance", {"latency_ms": 150}).body["latency_ms"] == 150
    start = time.monotonic()
    emulated.get("/api/v1/nodes")
    assert time.monotonic() - start >= 0.15
    emulated.delete("/emulation/disturbance")
    assert emulated.get("/emulation/disturbance").body["latency_ms"] == 0


def test_next_requests_fail_as_asked(emulated: Cluster) -> None:
    fault = {"count": 2, "status": 429, "retry_after_s": 7, "methods": ["GET"], "path_prefix": "/api/v1/nodes"}
    emulated.put("/emulation/disturbance", {"fail_next": fault})
    assert emulated.get(MAPS).status == 200
    refused = [emulated.get("/api/v1/nodes") for _ in range(3)]
    assert [answer.status for answer in refused] == [429, 429, 200]
    assert (refused[0].reason, refused[0].headers["Retry-After"]) == ("TooManyRequests", "7")
    assert emulated.put("/emulation/disturbance", {"fail_next": {"count": 1, "status": 200}}).status == 400
    assert emulated.put("/emulation/disturbance", {"latency": 1}).status == 400


def test_dropped_watch_resumes_and_expired_one_does_not(emulated: Cluster) -> None:
    revision = emulated.post(MAPS, {"metadata": {"name": "a"}}).body["metadata"]["resourceVersion"]
    dropped = emulated.watch(f"{MAPS}?resourceVersion={revision}", seconds=60)
    emulated.patch(f"{MAPS}/a", {"data": {"x": "1"}})
    assert next(dropped)["type"] == "MODIFIED"
    emulated.put("/emulation/disturbance", {"drop_watches": True})
    assert list(dropped) == []
    resumed = emulated.watch(f"{MAPS}?resourceVersion={revision}", seconds=60)
    assert next(resumed)["type"] == "MODIFIED"
    emulated.put("/emulation/disturbance", {"expire_watches": True})
    assert [event["object"]["code"] for event in resumed] == [410]
    (error,) = emulated.watch(f"{MAPS}?resourceVersion={revision}", seconds=60)
    assert error["object"]["code"] == 410


def test_who_asked_for_what_is_told_as_an_authorizer_would_be_asked(emulated: Cluster) -> None:
    """Each kind once, also of what is not served or not there, and of requests that are refused."""

    def ask(method: str, path: str) -> None:
        emulated.call(method, path, **{"User-Agent": "somebody"})

    for method, path in (
        ("GET", MAPS),
        ("GET", f"{MAPS}?limit=1"),
        ("GET", f"{MAPS}/a"),
        ("POST", MAPS),
        ("PATCH", "/api/v1/nodes/n/status"),
        ("DELETE", "/apis/batch/v1/namespaces/x/jobs"),
        ("DELETE", "/apis/example.org/v1/namespaces/x/things/y"),
        ("GET", "/api/v1/namespaces"),
        ("GET", "/api/v1/namespaces/x"),
        ("PUT", "/api/v1/namespaces/x/status"),
        ("GET", f"{PODS}/p/log?tailLines=1"),
        ("GET", "/apis/batch/v1"),
        ("GET", "/readyz?verbose"),
    ):
        ask(method, path)
    assert list(emulated.watch(MAPS, seconds=1)) == []
    every = emulated.get("/emulation/requests").body
    assert any((row["verb"], row["resource"]) == ("watch", "configmaps") for row in every)
    rows = [tuple(row.values())[1:] for row in every if row["agent"] == "somebody"]
    assert rows == sorted(
        [
            ("list", "", "configmaps", "default", ""),
            ("get", "", "configmaps", "default", ""),
            ("create", "", "configmaps", "default", ""),
            ("patch", "", "nodes/status", "", ""),
            ("deletecollection", "batch", "jobs", "x", ""),
            ("delete", "example.org", "things", "x", ""),
            ("list", "", "namespaces", "", ""),
            ("get", "", "namespaces", "x", ""),
            ("update", "", "namespaces/status", "x", ""),
            ("get", "", "pods/log", "default", ""),
            ("get", "", "", "", "/apis/batch/v1"),
            ("get", "", "", "", "/readyz"),
        ]
    )
    assert emulated.call("DELETE", "/emulation/requests").status == 200
    assert emulated.get("/emulation/requests").body == []


def test_unknown_endpoint_and_method(emulated: Cluster) -> None:
    assert emulated.get("/emulation/other").status == 404
    assert emulated.post("/emulation/snapshot", {}).status == 405
    assert emulated.call("GET", "/emulation/snapshot", Authorization="").status == 401


def test_a_batch_is_answered_as_its_writes_would_be_one_by_one(emulated: Cluster) -> None:
    before = emulated.get("/emulation/changes").body
    emulated.post("/api/v1/nodes", {"metadata": {"name": "n1"}})
    running = {"status": {"phase": "Running", "unknown": 1}}
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    writes = [
        {"method": "POST", "path": PODS, "body": pod("p")},
        {"method": "POST", "path": f"{PODS}/p/binding", "body": binding},
        {"method": "PATCH", "path": f"{PODS}/p/status", "body": running},
        {"method": "PATCH", "path": f"{PODS}/p/status", "body": {"status": {"phase": 1}}},
        {"method": "POST", "path": PODS, "body": pod("p")},
        {"method": "DELETE", "path": f"{PODS}/none"},
        {"method": "PUT", "path": f"{PODS}/p", "body": pod("p")},
        {"method": "PATCH", "path": "/version", "body": {}},
    ]
    answers = emulated.post("/emulation/writes", writes).body
    assert [row["status"] for row in answers] == [201, 201, 200, 400, 409, 404, 405, 404]
    assert answers[2]["body"] == emulated.get(f"{PODS}/p").body
    assert (answers[2]["body"]["spec"]["nodeName"], answers[2]["body"]["status"]["phase"]) == ("n1", "Running")
    assert answers[4]["body"]["reason"] == "AlreadyExists"
    assert emulated.get("/emulation/changes").body["pods."] == before.get("pods.", 0) + 3
    assert emulated.post("/emulation/writes", {"method": "POST"}).status == 400


def test_a_batch_does_not_pass_by_a_disturbance(emulated: Cluster) -> None:
    emulated.put("/emulation/disturbance", {"fail_next": {"count": 1, "status": 503, "methods": ["POST"]}})
    write_of = {"method": "POST", "path": PODS, "body": pod("p")}
    assert [row["status"] for row in emulated.post("/emulation/writes", [write_of, write_of]).body] == [503, 201]


def test_a_merge_patch_checks_what_it_changes(emulated: Cluster) -> None:
    created = emulated.post(PODS, pod("p")).body
    same = emulated.patch(f"{PODS}/p", {"metadata": {"labels": None}}).body
    assert same["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    assert emulated.patch(f"{PODS}/p", {"metadata": {"labels": {"a b": "c"}}}).status == 422
    assert emulated.patch(f"{PODS}/p", {"spec": {"containers": "none"}}).status == 400
