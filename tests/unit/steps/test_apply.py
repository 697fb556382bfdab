"""Apply against an API server that says no: what was written before is in the record, with what a person looks at next."""

import base64
import gzip
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from steps.clients.kube.client import Kube
from steps.contract import fleet
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, Status
from workflows.rehearsal.apiserver import RunningServer, serve_in_thread


@pytest.fixture
def server() -> Iterator[RunningServer]:
    with serve_in_thread() as running:
        yield running


def config_map(name: str, **more: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": {"x": "y"}, **more}


def attempt(desk: Any, server: RunningServer, *objects: dict[str, Any], **arguments: Any) -> tuple[int, Evidence]:
    (desk.root / "secrets" / "kubeconfig").write_text(server.kubeconfig)
    task = Task(stage="drill", name="apply", verb=Verb.APPLY, arguments={"objects": list(objects), **arguments})
    code = desk.run(task).returncode
    return code, desk.record("drill", "apply")


@pytest.fixture
def kube(desk: Any, server: RunningServer) -> Kube:
    (desk.root / "kubeconfig").write_text(server.kubeconfig)
    return Kube.from_file(desk.root / "kubeconfig")


def test_what_was_applied_is_said_and_recorded(desk: Any, server: RunningServer, kube: Kube) -> None:
    kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu1"}})
    code, record = attempt(desk, server, config_map("a"), config_map("b"), node_labels={"k": "v"}, select="all")
    assert code == 0
    assert record.changes == (
        "created ConfigMap default/a",
        "created ConfigMap default/b",
        "changed labels of nodes: k=v (1 of 1 nodes)",
    )
    assert record.diagnosis == ()
    said = (desk.root / "store/runs/r1/logs/drill/apply/0000/01.log").read_text()
    for change in record.changes:
        assert said.count(change) == 1
    code, record = attempt(desk, server, config_map("a"), node_labels={"k": "v"}, select="all")
    assert record.changes == ("unchanged ConfigMap default/a", "unchanged labels of nodes: k=v (0 of 1 nodes)")


def test_each_host_group_gets_its_own_labels(desk: Any, server: RunningServer, kube: Kube) -> None:
    kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu1"}})
    code, record = attempt(desk, server, group_labels={"g": {"k": "v"}, "other": {"k": "w"}}, select="all")
    assert code == 0
    assert record.changes == ("changed labels of nodes: k=v (1 of 1 nodes)", "unchanged labels of nodes: k=w (0 of 0 nodes)")


def test_leaf_switches_are_annotated_and_labels_of_other_stages_stay(desk: Any, server: RunningServer, kube: Kube) -> None:
    desk.hosts(
        [fleet.Host(name=name, address=name, group="g", role="agent", variables={"leaf": "l1"}) for name in ("gpu1", "gpu2")]
    )
    kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu1"}})
    attempt(desk, server, node_labels={"k": "v"}, select="all")
    for done in ("changed annotation example.org/leaf (1 of 1 node)", "unchanged annotation example.org/leaf (0 of 1 node)"):
        code, record = attempt(desk, server, leaf_annotation={"key": "example.org/leaf", "prefix": "tree:"}, select="all")
        assert (code, record.changes) == (0, (done,))
    node = kube.get("/api/v1/nodes/gpu1", dict[str, Any])
    assert node is not None
    assert (node["metadata"]["annotations"], node["metadata"]["labels"]) == ({"example.org/leaf": "tree:l1"}, {"k": "v"})


def test_a_refused_object_keeps_what_was_written_before_it(desk: Any, server: RunningServer) -> None:
    code, record = attempt(desk, server, config_map("a"), config_map("Not.A_Name"), config_map("c"))
    assert code == 65
    assert record.changes == ("created ConfigMap default/a",)
    assert record.verdict is not None
    assert (record.verdict.status, record.verdict.failure_class) == (Status.FAIL, FailureClass.APPLY)
    assert {one.what for one in record.diagnosis} >= {"answer of the API server", "live object", "namespace", "checklist"}
    assert record.diagnosis[-1].content == "steps/report/checklists.yaml#apply"


def test_an_answer_that_may_change_keeps_it_too(desk: Any, server: RunningServer) -> None:
    code, record = attempt(desk, server, config_map("a"), config_map("b", nonsense="x"))
    assert code == 75  # an unknown field in a patch is answered with 500
    assert record.changes == ("created ConfigMap default/a",)
    assert record.verdict is not None
    assert record.verdict.status is Status.INCONCLUSIVE
    assert {one.what for one in record.diagnosis} == {"readiness", "checklist"}


def test_a_denied_object_is_a_matter_of_permission_and_is_looked_into(desk: Any, server: RunningServer, kube: Kube) -> None:
    meta = {"name": "default-is-going", "namespace": "going", "finalizers": ["example.org/held"]}
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}})
    kube.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
    kube.delete("/api/v1/namespaces/going")  # stays, terminating: what is new there is answered with 403
    late = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late", "namespace": "going"}}
    code, record = attempt(desk, server, config_map("a"), late)
    assert code == 65
    assert record.changes == ("created ConfigMap default/a",)
    assert record.verdict is not None
    assert record.verdict.failure_class is FailureClass.PERMISSION
    assert "403" in record.verdict.reason
    found = {(one.what, one.source): one.content for one in record.diagnosis}
    assert found["namespace", "going"] == "phase Terminating"
    assert found["live object", "ConfigMap going/late"] == "it does not exist"
    assert found["checklist", "class permission"].endswith("#permission")


def test_another_run_that_holds_the_target_is_shown(desk: Any, server: RunningServer, kube: Kube) -> None:
    spec = {"holderIdentity": "r0", "leaseDurationSeconds": 10**6, "renewTime": "2199-01-01T00:00:00.000000Z"}
    meta = {"name": "bringup", "namespace": "kube-system"}
    kube.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": spec})
    code, record = attempt(desk, server, config_map("a"))
    assert code == 65
    assert record.verdict is not None
    assert record.verdict.failure_class is FailureClass.PERMISSION
    found = {one.what: one.content for one in record.diagnosis}
    assert "holderIdentity: r0" in found["lease"]
    assert found["checklist"].endswith("#permission")


def test_a_target_that_is_away_and_a_bad_task_are_explained_too(desk: Any, server: RunningServer) -> None:
    code, record = attempt(desk, server, config_map("a"), select=7)
    assert code == 64
    assert {one.what for one in record.diagnosis} == {"given files", "checklist"}
    server.stop()
    code, record = attempt(desk, server, config_map("a"))
    assert code == 75
    found = {one.what: one for one in record.diagnosis}
    assert found["could not be read"].source == "readiness of the API server"
    assert found["checklist"].content.endswith("#runtime")


def stored_release(version: str, status: str, number: int = 1) -> dict[str, Any]:
    text = msgspec.json.encode({"chart": {"metadata": {"version": version}}})
    data = base64.b64encode(base64.b64encode(gzip.compress(text))).decode()
    labels = {"owner": "helm", "name": "gpu-operator", "version": str(number), "status": status}
    meta = {"name": f"sh.helm.release.v1.gpu-operator.v{number}", "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "metadata": meta, "data": {"release": data}}


@pytest.mark.parametrize(
    ("version", "status", "code"),
    [
        ("v26.3.1", "deployed", 0),
        ("v25.10.2", "deployed", 0),
        ("v25.3.0", "deployed", 65),
        ("", "deployed", 65),
        ("v25.3.0", "failed", 0),
    ],
)
def test_a_release_of_a_line_that_cannot_be_upgraded_is_left_alone(
    desk: Any, server: RunningServer, kube: Kube, version: str, status: str, code: int
) -> None:
    kube.create(stored_release(version, status))
    rule = {"default/gpu-operator": ["25.10", "26.3"]}
    ended, record = attempt(desk, server, config_map("a"), upgrade_from=rule)
    assert ended == code
    assert record.changes == (("created ConfigMap default/a",) if code == 0 else ())
    if code:
        assert record.verdict is not None
        assert record.verdict.failure_class is FailureClass.INPUT
        assert "default/gpu-operator revision 1 runs" in record.verdict.seen
