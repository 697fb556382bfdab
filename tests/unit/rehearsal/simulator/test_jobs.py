"""The Job controller with kubelets: indices, retries, suspension, deadlines, clean-up."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.rehearsal.simulator.harness import Make, User, conditions
from workflows.rehearsal.simulator.api.api_kinds import JOBS, Obj, Ref
from workflows.rehearsal.simulator.controllers.simulated_pods import Exit, check
from workflows.rehearsal.simulator.world import World

ANTI = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"bringup/check": "says-node"}}}
            ]
        }
    }
}


@check("says-node")
def says_node(_world: World, _pod: Obj, node: str) -> Exit:
    return Exit(message={"node": node}, seconds=5)


@check("fails")
def fails(_world: World, _pod: Obj, _node: str) -> Exit:
    return Exit(code=3, message="no luck", log="line\n", seconds=2)


@pytest.fixture
def user(make: Make) -> User:
    made = make(agents=3)
    made.bring_up()
    return made


def message(pod: Obj) -> Any:
    return pod["status"]["containerStatuses"][0]["state"]["terminated"].get("message")


def test_an_indexed_job_puts_one_pod_on_each_node_and_completes(user: User) -> None:
    spec = {"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimit": 0}
    user.job("spread", check="says-node", spec=spec, pod=ANTI)
    user.simulator.advance(60)
    job = user.read_job("spread")
    assert conditions(job) == {"SuccessCriteriaMet": "True", "Complete": "True"}
    assert job["status"]["succeeded"] == 4
    assert job["status"]["completedIndexes"] == "0-3"
    found = user.pods(labels="bringup/check=says-node")
    assert {pod["spec"]["nodeName"] for pod in found} == {"cp00", "gpu000", "gpu001", "gpu002"}
    assert all(message(pod) == f'{{"node":"{pod["spec"]["nodeName"]}"}}' for pod in found)
    assert {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in found} == {"0", "1", "2", "3"}


def test_a_failing_job_without_retries_fails_with_its_exit_code_and_message(user: User) -> None:
    user.job("bad", check="fails", spec={"backoffLimit": 0})
    user.simulator.advance(60)
    job = user.read_job("bad")
    assert conditions(job) == {"FailureTarget": "True", "Failed": "True"}
    assert {entry["reason"] for entry in job["status"]["conditions"]} == {"BackoffLimitExceeded"}
    (pod,) = user.pods(labels="bringup/check=fails")
    assert pod["status"]["phase"] == "Failed"
    assert message(pod) == "no luck"
    assert user.api.send("GET", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/log") == b"line\n"


def test_a_failing_job_is_retried_with_growing_pauses(user: User) -> None:
    user.job("bad", check="fails", spec={"backoffLimit": 2})
    user.simulator.advance(12)
    assert not {"Failed", "Complete"} & conditions(user.read_job("bad")).keys()
    user.simulator.advance(120)
    assert user.read_job("bad")["status"]["failed"] == 3
    assert conditions(user.read_job("bad"))["Failed"] == "True"


@check("fails-on-gpu001")
def fails_there(_world: World, _pod: Obj, node: str) -> Exit:
    return Exit(code=int(node == "gpu001"), message={"node": node}, seconds=2 if node == "gpu001" else 20)


def test_with_a_limit_per_index_one_bad_node_does_not_stop_the_others(user: User) -> None:
    anti = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"bringup/check": "fails-on-gpu001"}}}
    spec = {"completions": 4, "parallelism": 4, "completionMode": "Indexed", "backoffLimitPerIndex": 0}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}}
    user.job("per-index", check="fails-on-gpu001", spec=spec, pod={"affinity": affinity})
    user.simulator.advance(60)
    job = user.read_job("per-index")
    assert (job["status"]["succeeded"], job["status"]["failed"], len(job["status"]["failedIndexes"])) == (3, 1, 1)
    assert {entry["reason"] for entry in job["status"]["conditions"]} == {"FailedIndexes"}
    assert (
        sorted(pod["status"]["phase"] for pod in user.pods(labels="bringup/check=fails-on-gpu001"))
        == ["Failed"] + ["Succeeded"] * 3
    )


def test_on_failure_pods_restart_in_place_until_the_limit(user: User) -> None:
    user.job("bad", check="fails", spec={"backoffLimit": 2}, pod={"restartPolicy": "OnFailure"})
    user.simulator.advance(9)
    (pod,) = user.pods(labels="bringup/check=fails")
    state = pod["status"]["containerStatuses"][0]
    assert state["restartCount"] == 1
    assert state["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert state["lastState"]["terminated"]["exitCode"] == 3
    user.simulator.advance(120)
    assert conditions(user.read_job("bad"))["Failed"] == "True"
    assert user.pods(labels="bringup/check=fails") == []


def test_a_suspended_job_waits_and_goes_on_when_it_is_resumed(user: User) -> None:
    user.job("later", check="says-node", spec={"suspend": True})
    user.simulator.advance(60)
    assert conditions(user.read_job("later")) == {"Suspended": "True"}
    assert user.pods(labels="bringup/check=says-node") == []
    user.api.merge(JOBS, Ref("default", "later"), {"spec": {"suspend": False}})
    user.simulator.advance(60)
    assert conditions(user.read_job("later"))["Complete"] == "True"


def test_a_deadline_ends_a_job_that_cannot_start(user: User) -> None:
    user.job("stuck", check="says-node", spec={"activeDeadlineSeconds": 90}, pod={"nodeSelector": {"no": "such"}})
    user.simulator.advance(60)
    assert "Failed" not in conditions(user.read_job("stuck"))
    user.simulator.advance(60)
    failed = next(entry for entry in user.read_job("stuck")["status"]["conditions"] if entry["type"] == "Failed")
    assert failed["reason"] == "DeadlineExceeded"


def test_a_finished_job_goes_after_its_time_to_live_with_its_pods(user: User) -> None:
    user.job("short", check="says-node", spec={"ttlSecondsAfterFinished": 30})
    user.simulator.advance(30)
    assert conditions(user.read_job("short"))["Complete"] == "True"
    user.simulator.advance(60)
    assert user.api.get(JOBS, "short", "default") is None
    assert user.pods(labels="bringup/check=says-node") == []


def test_deleting_a_job_deletes_its_pods(user: User) -> None:
    user.job("one", check="says-node")
    user.simulator.advance(20)
    user.delete(JOBS, "one")
    user.simulator.advance(10)
    assert user.pods(labels="bringup/check=says-node") == []
