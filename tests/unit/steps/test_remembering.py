"""A waiting step keeps the reason of a failed install: its log is deleted with the Job's pod."""

from typing import Any

import msgspec
import pytest

from steps.contract.charts import Chart, InstallJob, Release, ReleaseState
from steps.contract.verdict import FailureClass, Status
from steps.runtime.watching import keep_install_logs
from steps.stages.base_services import gate as base_services
from steps.stages.base_services.contract import ControlExpectation, ControlObservation

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
