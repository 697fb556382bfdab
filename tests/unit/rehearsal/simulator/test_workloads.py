"""DaemonSets, Deployments, StatefulSets, what kubelets make of their pods, owners and namespaces."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.rehearsal.simulator.harness import Make, User, conditions
from workflows.rehearsal.simulator.api.api_kinds import (  # fmt: skip
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    Obj,
    ObjectKind,
    Ref,
)
from workflows.rehearsal.simulator.controllers.simulated_pods import BlockedStart, LongRunning, pod_program
from workflows.rehearsal.simulator.world import World


@pod_program("app", "picky")
def picky(world: World, _pod: Obj, node: str) -> LongRunning | BlockedStart:
    """Waits in its second init container on nodes that carry the label `bad`."""
    labels = (world.find(NODES, node) or {"metadata": {}})["metadata"].get("labels", {})
    return BlockedStart(init="second", reason="CreateContainerError", message="no runtime") if "bad" in labels else LongRunning()


@pytest.fixture
def user(make: Make) -> User:
    made = make(agents=2)
    made.bring_up()
    return made


def workload(user: User, kind: ObjectKind, name: str = "w", *, app: str = "plain", init: tuple[str, ...] = (), **spec: Any) -> None:
    inner: Obj = {"containers": [{"name": "c", "image": "i"}], "initContainers": [{"name": step, "image": "i"} for step in init]}
    template = {"metadata": {"labels": {"app": app}}, "spec": inner | spec.pop("pod", {})}
    body = {"selector": {"matchLabels": {"app": app}}, "template": template} | spec
    user.api.create(kind, {"metadata": {"name": name, "namespace": "default"}, "spec": body})
    user.simulator.advance(30)


def status(user: User, kind: ObjectKind, name: str = "w") -> Obj:
    found = user.api.get(kind, name, "default")
    assert found is not None
    made: Obj = found["status"]
    return made


def test_a_daemon_set_runs_on_each_eligible_node(user: User) -> None:
    workload(user, DAEMON_SETS, pod={"nodeSelector": {"node-role.kubernetes.io/control-plane": "true"}})
    assert status(user, DAEMON_SETS)["desiredNumberScheduled"] == 1
    assert status(user, DAEMON_SETS)["numberReady"] == 1
    user.api.merge(NODES, Ref("", "gpu000"), {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": "true"}}})
    user.simulator.advance(30)
    assert status(user, DAEMON_SETS)["numberReady"] == 2
    user.api.merge(NODES, Ref("", "gpu000"), {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": None}}})
    user.simulator.advance(30)
    assert status(user, DAEMON_SETS)["desiredNumberScheduled"] == 1
    assert [pod["spec"]["nodeName"] for pod in user.pods(labels="app=plain")] == ["cp00"]


def test_a_stuck_pod_shows_where_it_waits_and_goes_on_when_its_node_changes(user: User) -> None:
    user.api.merge(NODES, Ref("", "gpu001"), {"metadata": {"labels": {"bad": "yes"}}})
    workload(user, DAEMON_SETS, app="picky", init=("first", "second", "third"))
    assert (status(user, DAEMON_SETS)["numberReady"], status(user, DAEMON_SETS)["numberUnavailable"]) == (2, 1)
    pod = next(found for found in user.pods(labels="app=picky") if found["spec"]["nodeName"] == "gpu001")
    assert pod["status"]["phase"] == "Pending"
    states = {entry["name"]: next(iter(entry["state"].values())) for entry in pod["status"]["initContainerStatuses"]}
    assert states["first"]["exitCode"] == 0
    assert states["second"] == {"reason": "CreateContainerError", "message": "no runtime"}
    assert states["third"]["reason"] == "PodInitializing"
    assert conditions(pod)["Initialized"] == "False"
    user.api.merge(NODES, Ref("", "gpu001"), {"metadata": {"labels": {"bad": None}}})
    user.simulator.advance(30)
    assert status(user, DAEMON_SETS)["numberReady"] == 3


def test_a_deleted_daemon_pod_comes_back(user: User) -> None:
    workload(user, DAEMON_SETS)
    user.delete(PODS, user.pods(labels="app=plain")[0]["metadata"]["name"])
    user.simulator.advance(30)
    assert status(user, DAEMON_SETS)["numberReady"] == 3


def test_a_changed_template_rolls_the_pods_unless_they_wait_to_be_deleted(user: User) -> None:
    workload(user, DAEMON_SETS)
    before = {pod["metadata"]["uid"] for pod in user.pods(labels="app=plain")}
    note = {"spec": {"template": {"metadata": {"annotations": {"shares": "4"}}}}}
    user.api.merge(DAEMON_SETS, Ref("default", "w"), note)
    user.simulator.settle()
    assert status(user, DAEMON_SETS).get("updatedNumberScheduled", 0) == 0
    user.simulator.advance(40)
    assert status(user, DAEMON_SETS)["updatedNumberScheduled"] == status(user, DAEMON_SETS)["numberReady"] == 3
    assert not before & {pod["metadata"]["uid"] for pod in user.pods(labels="app=plain")}
    user.api.merge(DAEMON_SETS, Ref("default", "w"), {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}})
    user.api.merge(DAEMON_SETS, Ref("default", "w"), {"spec": {"template": {"metadata": {"annotations": {"shares": "8"}}}}})
    user.simulator.advance(60)
    assert status(user, DAEMON_SETS).get("updatedNumberScheduled", 0) == 0


def test_in_a_large_fleet_daemon_pods_are_sampled_but_counts_are_complete(make: Make) -> None:
    user = make(agents=310, delay_scale=0.0)
    user.play("rke2_server")
    user.play("rke2_agent")
    user.simulator.settle()
    user.api.merge(NODES, Ref("", "gpu007"), {"metadata": {"labels": {"bad": "yes"}}})
    workload(user, DAEMON_SETS, app="picky", init=("second",))
    assert status(user, DAEMON_SETS)["desiredNumberScheduled"] == 311
    assert status(user, DAEMON_SETS)["numberReady"] == 310
    nodes = {pod["spec"]["nodeName"] for pod in user.pods(labels="app=picky")}
    assert "gpu007" in nodes
    assert len(nodes) == 17


@pytest.mark.parametrize("kind", [DEPLOYMENTS, STATEFUL_SETS])
def test_replicas_come_and_go(user: User, kind: ObjectKind) -> None:
    workload(user, kind, replicas=3, serviceName="w")
    assert status(user, kind)["readyReplicas"] == 3
    user.api.merge(kind, Ref("default", "w"), {"spec": {"replicas": 1}})
    user.simulator.advance(30)
    assert status(user, kind)["replicas"] == 1
    assert len(user.pods(labels="app=plain")) == 1


def test_a_stateful_sets_pods_are_numbered(user: User) -> None:
    workload(user, STATEFUL_SETS, replicas=2, serviceName="w")
    assert [pod["metadata"]["name"] for pod in user.pods(labels="app=plain")] == ["w-0", "w-1"]


def test_what_an_owner_owns_goes_with_it(user: User) -> None:
    workload(user, DEPLOYMENTS, replicas=2)
    user.delete(DEPLOYMENTS, "w")
    user.simulator.advance(5)
    assert user.pods(labels="app=plain") == []


def test_foreground_deletion_deletes_dependents_before_the_owner(user: User) -> None:
    workload(user, DEPLOYMENTS, replicas=1)
    user.api.send("DELETE", DEPLOYMENTS.path("default", "w"), {"propagationPolicy": "Foreground"})
    user.simulator.advance(5)
    assert user.api.get(DEPLOYMENTS, "w", "default") is None
    assert user.pods(labels="app=plain") == []


def test_a_namespace_gets_its_account_and_is_emptied_when_deleted(user: User) -> None:
    user.api.create(NAMESPACES, {"metadata": {"name": "bringup-check"}})
    user.simulator.settle()
    assert user.api.get(SERVICE_ACCOUNTS, "default", "bringup-check") is not None
    user.api.create(CONFIG_MAPS, {"metadata": {"name": "mine", "namespace": "bringup-check"}, "data": {"a": "b"}})
    user.api.create(
        PODS, {"metadata": {"name": "p", "namespace": "bringup-check"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    user.simulator.advance(20)
    user.delete(NAMESPACES, "bringup-check", "")
    user.simulator.advance(60)
    assert user.api.get(NAMESPACES, "bringup-check") is None
