"""Runs in trouble on Argo: a pod whose node is lost, a second `cancel`, and a run that cannot be started at once."""

from typing import Any

import msgspec
import pytest

from tests.unit.engines.argo.lab import Lab, until
from tests.unit.engines.argo.test_follow import BY_ADA, Drill, Follower, begin, shell
from workflows.engines.argo import cancellation, submission
from workflows.engines.argo.waits import Watchdog
from workflows.engines.argo.workflow_objects import NODE_NAME, WORKFLOW_LABEL, Workflow

FINALIZER = "example.org/keeps"
LOST = "busy-07"


def on_lost_node(lab: Lab, run: str) -> tuple[Workflow, str]:
    """A run whose one step runs, as Argo has it, and the path of its pod: on a node whose kubelet will never say that it ended."""
    home, name = lab.home, f"{run}-work-1"
    submission.submit(home, shell(lab, run, "true"))
    node = {"id": name, "name": f"{run}.work(0)", "displayName": "work(0)", "type": "Pod", "phase": "Running"}
    home.ask(lambda kube: kube.merge(home.workflows(run), {"status": {"phase": "Running", "nodes": {name: node}}}))
    meta: dict[str, Any] = {"name": name, "namespace": lab.where.namespace, "finalizers": [FINALIZER]}
    meta |= {"labels": {WORKFLOW_LABEL: run}, "annotations": {NODE_NAME: node["name"]}}
    container = {"name": "main", "image": "none"}
    spec = {"nodeName": LOST, "containers": [container], "terminationGracePeriodSeconds": 0}
    lab.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    return home.workflow(run), home.core("pods", name)


def test_a_pod_that_does_not_go_names_its_node_once(cluster: Lab) -> None:
    workflow, pod = on_lost_node(cluster, "lost")
    home, dog = cluster.home, Watchdog(cluster.home, late=0.0)
    assert list(dog.look(workflow)) == [], "it runs, as far as anybody knows"
    home.ask(lambda kube: kube.delete(pod))
    assert "deletionTimestamp" in msgspec.json.decode(home.fetch(pod))["metadata"]
    assert list(Watchdog(home).look(workflow)) == [], "a minute is allowed"
    (sentence,) = until(lambda: list(dog.look(workflow)), "a word about the pod")
    assert sentence == (
        f"pod lost-work-1 is being deleted but does not disappear: node {LOST} does not answer; once that is certainly off, give "
        "it the taint node.kubernetes.io/out-of-service, and Argo tries the task again"
    )
    assert list(dog.look(workflow)) == []
    home.ask(lambda kube: kube.merge(pod, {"metadata": {"finalizers": None}}))
    assert list(Watchdog(home, late=0.0).look(workflow)) == [], "the pod is gone"


@pytest.mark.parametrize(
    ("asked", "told"),
    [((False,), "Stop"), ((False, True), "Terminate"), ((True, False), "Terminate"), ((True, True), "Terminate")],
    ids=["stop", "then now", "now, then stop", "now twice"],
)
def test_what_is_to_end_now_is_never_slowed_down(cluster: Lab, drill: Drill, asked: tuple[bool, ...], told: str) -> None:
    begin(cluster, drill)
    node = {"id": "r1", "name": "r1", "type": "DAG", "phase": "Running"}
    begun = {"status": {"phase": "Running", "nodes": {"r1": node}}}
    cluster.home.ask(lambda kube: kube.merge(cluster.home.workflows("r1"), begun))
    for now in asked:
        cancellation.cancel(cluster.home, "r1", BY_ADA, now=now)
    assert cluster.home.workflow("r1").spec.shutdown == told


def test_the_watchdog_names_the_account_that_reports_results(cluster: Lab, drill: Drill) -> None:
    """Account of Argo's executor, not that of the task, which has no right to report anything."""
    cluster.stand_in(withhold={"drill-apply": 10.0})
    begin(cluster, drill, "quiet")
    dog = Watchdog(cluster.home, late=0.3)

    def overdue() -> str:
        return next((sentence for sentence in dog.look(cluster.home.workflow("quiet")) if "has not reached Argo" in sentence), "")

    assert "may ServiceAccount bringup-executor create and patch workflowtaskresults" in until(overdue, "a word about the result")


def test_a_run_waits_while_its_volumes_cannot_be_read(emulated: Lab) -> None:
    """The stand-in keeps what it could not start, and starts it when the API server answers again."""
    meta = {"name": "given", "namespace": emulated.where.namespace}
    emulated.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"x": "y"}})
    where = emulated.home.core("configmaps")
    emulated.disturb(fail_next={"count": 5, "status": 503, "path_prefix": where})  # all tries of one request
    submission.submit(
        emulated.home, shell(emulated, "patient", "true", volumes=[{"name": "tasks", "configMap": {"name": "given"}}])
    )
    follower = Follower(emulated, "patient")
    emulated.stand_in()
    assert follower.await_end().status.phase == "Succeeded"
