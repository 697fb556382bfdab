"""A waiting step keeps what a Job deletes with its pods: the log of a failed install, and why a check's pod did not start."""

from typing import Any

import msgspec
import pytest

from steps.contract.objects.charts import Chart, InstallJob, Release, ReleaseState
from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import FailureClass, Status
from steps.runtime.watching import keep_check_pods, keep_install_logs
from steps.stages.base_services import gate as base_services
from steps.stages.base_services.contract import ControlExpectation, ControlObservation
from steps.stages.rke2.contract import FunctionalObservation
from steps.stages.validation.contract import IntraObservation, NcclPod

LOG = 'Error: INSTALLATION FAILED: chart "cert-manager" version "v1.20.2" not found in https://charts.example.org repository'
WANT = ControlExpectation(releases=(Release(name="cert-manager", namespace="cert-manager", version="v1.20.2"),))


def seen(**job: Any) -> ControlObservation:
    """A release whose install Job looks like this; the HelmChart is failed when the Job is."""
    failed = "Job failed: BackoffLimitExceeded" if job.get("failed") else ""
    chart = Chart(version="v1.20.2", managed=True, changed=1000.0, failed=failed)
    made = InstallJob(uid=job.pop("uid", "first"), created=1001.0, **job)
    return ControlObservation(releases=(ReleaseState(name="cert-manager", chart=chart, job=made),))


def test_a_failed_install_keeps_the_cause_that_its_log_told() -> None:
    before, now = seen(log=LOG), seen(failed="BackoffLimitExceeded: Job has reached the specified backoff limit")
    alone, both = base_services.control(now, WANT), base_services.control(keep_install_logs(now, before), WANT)
    assert (alone.status, alone.failure_class) == (Status.FAIL, FailureClass.APPLY)
    assert (both.status, both.failure_class) == (Status.FAIL, FailureClass.DEPENDENCY)
    assert "not found in https://charts.example.org" in both.reason


@pytest.mark.parametrize("failed", ["", "BackoffLimitExceeded"], ids=["while it tries", "when it has failed"])
def test_the_first_lines_of_a_next_try_do_not_hide_the_cause_of_the_one_before(failed: str) -> None:
    begun = seen(log="+ helm_v3 install cert-manager", failed=failed)
    kept = keep_install_logs(begun, seen(log=LOG))
    assert "not found in https://charts.example.org" in base_services.control(kept, WANT).reason
    assert keep_install_logs(begun, seen(log="+ helm_v3 ls")) is begun


@pytest.mark.parametrize(
    "now",
    [
        pytest.param({"uid": "second"}, id="another Job"),
        pytest.param({"log": "Error: INSTALLATION FAILED: another"}, id="a newer log"),
        pytest.param({"complete": True}, id="a Job that completed"),
    ],
)
def test_nothing_else_is_carried(now: dict[str, Any]) -> None:
    one = seen(**now)
    assert keep_install_logs(one, seen(log=LOG)) is one


def test_an_observation_without_releases_stays_as_it_is() -> None:
    class Other(msgspec.Struct, frozen=True):
        """Of a gate that is about no charts."""

    other = Other()
    assert keep_install_logs(other, None) is other
    assert keep_install_logs(other, seen(log=LOG)) is other


PENDING = CheckPod(name="p-0", node="gpu001", index=0, phase="Pending", events=("FailedCreatePodSandBox: no plugin",))
RUNNING = CheckPod(name="p-1", node="gpu002", index=1, phase="Running")
REPORTED = CheckPod(name="p-2", node="gpu003", index=2, phase="Succeeded", report={"node": "gpu003"})


def test_pods_that_a_job_deleted_at_its_end_still_tell_why_they_did_not_start() -> None:
    kept = keep_check_pods(FunctionalObservation(), FunctionalObservation(pods=(PENDING, RUNNING, REPORTED)))
    assert [(pod.name, pod.phase) for pod in kept.pods] == [("p-0", "Pending"), ("p-1", "Deleted")]
    assert kept.pods[0].events == PENDING.events


def test_pods_that_are_there_are_as_they_are_now() -> None:
    now = FunctionalObservation(pods=(msgspec.structs.replace(PENDING, phase="Succeeded", report={"node": "gpu001"}),))
    assert keep_check_pods(now, FunctionalObservation(pods=(PENDING,))) == now
    assert keep_check_pods(now, None) is now


def test_pods_within_entries_are_kept_too() -> None:
    kept = keep_check_pods(IntraObservation(), IntraObservation(pods=(NcclPod(pod=RUNNING),)))
    assert [(entry.pod.name, entry.pod.phase) for entry in kept.pods] == [("p-1", "Deleted")]
