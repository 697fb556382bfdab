"""WATCH: what a client sees, and when it must list again."""

from collections.abc import Iterator
from typing import Any

from tests.unit.rehearsal.apiserver.cluster_client import Cluster


def brief(event: Any) -> tuple[str, str]:
    return event["type"], event["object"]["metadata"].get("name", "")


def take(events: Iterator[Any], count: int) -> list[tuple[str, str]]:
    return [brief(next(events)) for _ in range(count)]


def test_without_revision_the_present_objects_come_first(cluster: Cluster, maps: str) -> None:
    for name in ("a", "b"):
        cluster.post(maps, {"metadata": {"name": name, "labels": {"mine": "1"}}})
    events = cluster.watch(f"{maps}?labelSelector=mine")
    assert sorted(take(events, 2)) == [("ADDED", "a"), ("ADDED", "b")]
    cluster.delete(f"{maps}/a")
    assert take(events, 1) == [("DELETED", "a")]


def test_initial_events_end_with_a_marked_bookmark(cluster: Cluster, maps: str) -> None:
    cluster.post(maps, {"metadata": {"name": "a", "labels": {"mine": "1"}}})
    options = "labelSelector=mine&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    events = cluster.watch(f"{maps}?{options}")
    assert take(events, 1) == [("ADDED", "a")]
    mark = next(events)
    assert mark["type"] == "BOOKMARK"
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert cluster.get(f"{maps}?watch=true&sendInitialEvents=true").status == 422


def test_objects_enter_and_leave_a_label_selection(cluster: Cluster, maps: str) -> None:
    revision = cluster.revision(maps)
    cluster.post(maps, {"metadata": {"name": "a", "labels": {"app": "x"}}, "data": {"n": "1"}})
    cluster.patch(f"{maps}/a", {"data": {"n": "2"}})
    left = cluster.patch(f"{maps}/a", {"metadata": {"labels": {"app": "y"}}}).body
    cluster.patch(f"{maps}/a", {"data": {"n": "3"}})
    cluster.patch(f"{maps}/a", {"metadata": {"labels": {"app": "x"}}})
    cluster.delete(f"{maps}/a")
    events = cluster.watch(f"{maps}?resourceVersion={revision}&labelSelector=app%3Dx")
    seen = [next(events) for _ in range(5)]
    assert [event["type"] for event in seen] == ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    gone = seen[2]["object"]
    assert gone["metadata"]["labels"] == {"app": "x"}
    assert gone["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]


def test_field_selection_follows_a_pod_to_its_node(cluster: Cluster, pods: str, namespace: str) -> None:
    revision = cluster.revision(pods)
    cluster.post(pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    target = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": f"none-{namespace}"}}
    assert cluster.post(f"{pods}/p/binding", target).status == 201
    events = cluster.watch(f"{pods}?resourceVersion={revision}&fieldSelector=spec.nodeName%3Dnone-{namespace}")
    assert take(events, 1) == [("ADDED", "p")]


def test_one_object_can_be_watched(cluster: Cluster, maps: str) -> None:
    revision = cluster.revision(maps)
    for name in ("a", "b"):
        cluster.post(maps, {"metadata": {"name": name}})
    assert take(cluster.watch(f"{maps}/b?resourceVersion={revision}"), 1) == [("ADDED", "b")]


def test_bookmark_comes_before_the_end(emulated: Cluster) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    revision = emulated.post(path, {"metadata": {"name": "a"}}).body["metadata"]["resourceVersion"]
    emulated.post("/api/v1/namespaces/default/secrets", {"metadata": {"name": "a"}})
    (last,) = list(emulated.watch(f"{path}?resourceVersion={revision}&allowWatchBookmarks=true", seconds=1))
    assert last["type"] == "BOOKMARK"
    assert int(last["object"]["metadata"]["resourceVersion"]) == int(revision) + 1


def test_revision_from_the_future_is_504(emulated: Cluster) -> None:
    answer = emulated.get("/api/v1/nodes?resourceVersion=999999999")
    assert (answer.status, answer.body["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")
    assert emulated.get("/api/v1/nodes?watch=true&resourceVersion=x").status == 400


def test_custom_version_is_what_was_asked_for(emulated: Cluster) -> None:
    names = {"plural": "things", "kind": "Thing"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": name, "served": True, "storage": name == "v1", "schema": schema} for name in ("v1beta1", "v1")]
    spec = {"group": "e.com", "scope": "Cluster", "names": names, "versions": versions}
    crd = {"metadata": {"name": "things.e.com"}, "spec": spec}
    assert emulated.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).status == 201
    body = {"apiVersion": "e.com/v1beta1", "kind": "Thing", "metadata": {"name": "t"}, "size": 1}
    assert emulated.post("/apis/e.com/v1beta1/things", body).body["apiVersion"] == "e.com/v1beta1"
    assert emulated.get("/apis/e.com/v1/things/t").body["apiVersion"] == "e.com/v1"
    assert emulated.get("/apis/e.com/v1beta1/things").body["items"][0]["apiVersion"] == "e.com/v1beta1"
    event = next(emulated.watch("/apis/e.com/v1beta1/things"))
    assert event["object"]["apiVersion"] == "e.com/v1beta1"
    patched = emulated.patch("/apis/e.com/v1beta1/things/t", {"size": 2}).body
    assert (patched["apiVersion"], patched["size"]) == ("e.com/v1beta1", 2)


def test_many_watchers_get_every_event_in_order(emulated: Cluster) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    revision = emulated.post(path, {"metadata": {"name": "c"}, "data": {"n": "0"}}).body["metadata"]["resourceVersion"]
    watches = [emulated.watch(f"{path}?resourceVersion={revision}") for _ in range(5)]
    for number in range(1, 101):
        emulated.patch(f"{path}/c", {"data": {"n": str(number)}})
    for events in watches:
        assert [next(events)["object"]["data"]["n"] for _ in range(100)] == [str(number) for number in range(1, 101)]


def test_table_form_of_events(emulated: Cluster) -> None:
    emulated.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "a"}, "data": {"x": "1"}})
    answer = emulated.call(
        "GET",
        "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=1",
        Accept="application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    )
    table = answer.body["object"]
    assert table["kind"] == "Table"
    assert table["rows"][0]["cells"][:2] == ["a", 1]
