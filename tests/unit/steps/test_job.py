"""A check's verdict outlives its clean-up; what cannot be removed or created is said, with what stands in the way."""

from typing import Any

import pytest

from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, Status
from steps.errors import Temporary
from steps.verbs import job
from tests.unit.steps.front import Refusal

MAPS = "/api/v1/namespaces/bringup-check/configmaps"
PODS = "/api/v1/namespaces/bringup-check/pods"
SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "bringup-check"}}
NOTHING_SEEN = Status.INCONCLUSIVE
FINALIZER = {"finalizers": ["example.com/never"]}


def thing(kind: str, name: str, **meta: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "bringup-check", **meta}}


def pod(**meta: Any) -> dict[str, Any]:
    return thing("Pod", "p", labels={"bringup/check": "dns"}, **meta) | {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def check(*objects: dict[str, Any]) -> Task:
    """A check that looks once."""
    arguments = {"gate": "rke2/functional", "objects": [SPACE, *objects], "checks": ["dns"], "select": "gpu"}
    return Task(stage="rke2", name="functional", verb=Verb.JOB, arguments=arguments, deadline_seconds=0)


def test_the_verdict_is_kept_when_the_api_refuses_the_clean_up(desk: Any, api: Any) -> None:
    api.refusals.append(Refusal("DELETE", f"{MAPS}/m", after=1))  # the first clears the way
    assert job.run(desk.context(check(thing("ConfigMap", "m")))) == 0
    verdict = desk.record("rke2", "functional").verdict
    assert verdict.status is NOTHING_SEEN
    assert "not cleaned up: the API server did not take the deletion" in verdict.notes[-1]
    assert desk.output("verdict") == "inconclusive"
    first = desk.store.keys("runs/r1/evidence/rke2/functional")[0]
    assert first.endswith("0000/01.json"), "the verdict was written before the clean-up began"


def test_pods_that_hang_are_named_and_keep_the_next_attempt_from_starting(desk: Any, api: Any, simulator: Any) -> None:
    assert job.run(desk.context(check(pod(**FINALIZER)))) == 0
    verdict = desk.record("rke2", "functional").verdict
    assert verdict.status is NOTHING_SEEN
    assert "not cleaned up: pods p" in verdict.notes[-1]
    with pytest.raises(Temporary, match="left of an earlier attempt after 30 s: pods p"):
        job.run(desk.context(check(pod())))
    api.user.patch(f"{PODS}/p", {"metadata": {"finalizers": None}})
    assert job.run(desk.context(check(pod()))) == 0
    assert api.user.get(f"{PODS}/p").status == 404


def test_an_object_that_does_not_go_away_is_a_verdict_with_its_cause(desk: Any, api: Any, simulator: Any) -> None:
    assert api.user.post("/api/v1/namespaces", SPACE).status == 201
    assert api.user.post(MAPS, thing("ConfigMap", "m", **FINALIZER)).status == 201
    assert job.run(desk.context(check(thing("ConfigMap", "m")))) == 0
    found = desk.record("rke2", "functional")
    assert (found.verdict.status, found.verdict.failure_class) == (Status.FAIL, FailureClass.COMPARISON)
    assert "ConfigMap m" in found.verdict.seen
    assert "example.com/never" in "".join(entry.content for entry in found.diagnosis)


def test_a_refused_check_says_what_the_api_server_answered(desk: Any, api: Any) -> None:
    api.refusals.append(Refusal("POST", MAPS))
    assert job.run(desk.context(check(thing("ConfigMap", "m")))) == 0
    found = desk.record("rke2", "functional")
    assert (found.verdict.status, found.verdict.failure_class) == (Status.FAIL, FailureClass.APPLY)
    assert any("refused by the test" in entry.content for entry in found.diagnosis)


def test_fields_of_another_manager_are_not_taken(desk: Any, api: Any) -> None:
    assert api.user.post("/api/v1/namespaces", SPACE | {"metadata": {"name": "bringup-check", "labels": {"a": "b"}}}).status == 201
    task = check()
    mine = SPACE | {"metadata": {"name": "bringup-check", "labels": {"a": "c"}}}
    arguments = {**task.arguments, "objects": [mine]}
    assert job.run(desk.context(Task(stage="rke2", name="functional", verb=Verb.JOB, arguments=arguments, deadline_seconds=0))) == 0
    found = desk.record("rke2", "functional")
    assert (found.verdict.status, found.verdict.failure_class) == (Status.FAIL, FailureClass.COMPARISON)
    assert found.diagnosis


def test_a_large_fleet_is_told_by_its_other_nodes(desk: Any, api: Any, simulator: Any, make_host: Any) -> None:
    """A thousand nodes under test: their pods say on which nodes they may not run, which are fewer."""
    members = [make_host(f"gpu{number:04d}", gpus=8) for number in range(1000)]
    desk.hosts([make_host("sv1", role="server"), *members])
    for name in ("sv1", "stranger", *(one.name for one in members)):
        api.user.post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    where = {"key": "kubernetes.io/hostname", "operator": "In", "values": "@nodes"}
    placed = pod(finalizers=["example.com/never"])
    required = {"nodeSelectorTerms": [{"matchExpressions": [where]}]}
    placed["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert job.run(desk.context(check(placed))) == 0
    made = api.user.get(f"{PODS}/p").body["spec"]["affinity"]["nodeAffinity"]
    (term,) = made["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{**where, "operator": "NotIn", "values": ["stranger", "sv1"]}]
