"""LIST: chunks of one snapshot, selectors, representations."""

import pytest

from tests.unit.rehearsal.apiserver.cluster_client import Cluster, pod

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def names(body: dict) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


def test_chunks_show_the_state_of_the_first_one(cluster: Cluster, maps: str) -> None:
    for number in range(5):
        cluster.post(maps, {"metadata": {"name": f"c{number}", "labels": {"mine": "1"}}})
    chunks = [cluster.get(f"{maps}?limit=2&labelSelector=mine").body]
    cluster.delete(f"{maps}/c2")
    cluster.post(maps, {"metadata": {"name": "c9", "labels": {"mine": "1"}}})
    while token := chunks[-1]["metadata"].get("continue"):
        chunks.append(cluster.get(f"{maps}?limit=2&labelSelector=mine&continue={token}").body)
    assert [names(chunk) for chunk in chunks] == [["c0", "c1"], ["c2", "c3"], ["c4"]]
    assert len({chunk["metadata"]["resourceVersion"] for chunk in chunks}) == 1


def test_remaining_count_and_items_without_kind(cluster: Cluster, maps: str) -> None:
    for number in range(3):
        cluster.post(maps, {"metadata": {"name": f"c{number}"}})
    body = cluster.get(f"{maps}?limit=2").body
    assert body["metadata"]["remainingItemCount"] >= 1
    assert "kind" not in body["items"][0]


def test_token_that_is_done_or_broken(emulated: Cluster) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    for number in range(3):
        emulated.post(path, {"metadata": {"name": f"c{number}"}})
    token = emulated.get(f"{path}?limit=2").body["metadata"]["continue"]
    assert names(emulated.get(f"{path}?continue={token}").body) == ["c2"]
    done = emulated.get(f"{path}?continue={token}")
    assert (done.status, done.reason) == (410, "Expired")
    assert emulated.get(f"{path}?continue=nonsense").status == 400
    assert emulated.get(f"{path}?limit=many").status == 400


def test_exact_revision_is_only_served_while_it_is_the_present(emulated: Cluster) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    revision = emulated.post(path, {"metadata": {"name": "a"}}).body["metadata"]["resourceVersion"]
    assert emulated.get(f"{path}?resourceVersion={revision}&resourceVersionMatch=Exact").status == 200
    emulated.post(path, {"metadata": {"name": "b"}})
    assert emulated.get(f"{path}?resourceVersion={revision}&resourceVersionMatch=Exact").status == 410
    assert emulated.get(f"{path}?resourceVersion={revision}&resourceVersionMatch=NotOlderThan").status == 200


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("fieldSelector=spec.nodeName=", ["p0"]),
        ("fieldSelector=spec.nodeName=n1,metadata.name!=p2", ["p1"]),
        ("fieldSelector=status.phase=Pending,spec.nodeName!=n1", ["p0"]),
        ("labelSelector=rank in (1, 2),rank notin (2)", ["p1"]),
        ("labelSelector=rank>0,rank<2", ["p1"]),
        ("labelSelector=!rank", []),
    ],
)
def test_selectors(cluster: Cluster, pods: str, selector: str, found: list[str]) -> None:
    for number in range(3):
        body = pod(f"p{number}", **({"nodeName": "n1"} if number else {}))
        body["metadata"]["labels"] = {"rank": str(number)}
        cluster.post(pods, body)
    for old, new in ((" ", "%20"), ("!", "%21"), ("<", "%3C"), (">", "%3E")):
        selector = selector.replace(old, new)
    body = cluster.get(f"{pods}?{selector}").body
    for number in (1, 2):
        cluster.delete(f"{pods}/p{number}?gracePeriodSeconds=0")
    assert names(body) == found


@pytest.mark.parametrize(
    "query", ["labelSelector=a%3D%3D%3Db", "labelSelector=a%20in%20b", "fieldSelector=spec.hostname%3Dx", "fieldSelector=x"]
)
def test_bad_selector_is_400(cluster: Cluster, pods: str, query: str) -> None:
    answer = cluster.get(f"{pods}?{query}")
    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_table(cluster: Cluster, pods: str) -> None:
    cluster.post(pods, pod("p"))
    body = cluster.get(pods, Accept=TABLE).body
    columns = [column["name"] for column in body["columnDefinitions"]]
    assert (body["kind"], body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert columns[0] == "Name"
    assert "Age" in columns
    assert body["rows"][0]["cells"][0] == "p"
    assert body["rows"][0]["object"]["metadata"]["name"] == "p"
    assert cluster.get(f"{pods}/p", Accept=TABLE).body["rows"][0]["cells"][columns.index("Status")] == "Pending"


def test_metadata_alone(cluster: Cluster, maps: str) -> None:
    cluster.post(maps, {"metadata": {"name": "a"}, "data": {"x": "1"}})
    body = cluster.get(maps, Accept=PARTIAL).body
    assert body["kind"] == "PartialObjectMetadataList"
    assert all(item.keys() == {"kind", "apiVersion", "metadata"} for item in body["items"])
    assert cluster.get(maps, Accept="application/vnd.unknown").status == 406


def test_delete_collection_answers_with_the_deleted(cluster: Cluster, maps: str) -> None:
    for name in ("a", "b"):
        cluster.post(maps, {"metadata": {"name": name, "labels": {"mine": "1"}}})
    body = cluster.delete(f"{maps}?labelSelector=mine").body
    assert (body["kind"], names(body)) == ("ConfigMapList", ["a", "b"])
    assert cluster.get(f"{maps}?labelSelector=mine").body["items"] == []
