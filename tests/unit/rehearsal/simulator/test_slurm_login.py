"""Login pods of SUNK under `OnDelete`: a sync leaves them, sessions are listed, and only approved ones end."""

from __future__ import annotations

import dataclasses
import re

import msgspec
import pytest

from steps.clients.kube.client import Kube
from steps.contract.objects.login_pods import LoginPods
from steps.contract.task import Task
from steps.runtime import login_pod_replacement
from steps.stages.slurm_login.contract import OutdatedPod, SessionsObservation, approval_text
from tests.unit.rehearsal.simulator.harness import Make, User
from tests.unit.rehearsal.simulator.stage_runner import DirectTask, VirtualClock, kubelets, run, stage
from tests.unit.rehearsal.simulator.test_slurm import cluster, sunk
from workflows.rehearsal.simulator.api import api_kinds
from workflows.rehearsal.simulator.stages import slurm_login
from workflows.stages.stage import Stage

SLURM = {"kind": "sunk", "repo": "oci://r.example.org/sunk", "version": "7.3.0"}
POD = api_kinds.Ref("tenant-slurm", "slurm-login-0")
SET = api_kinds.Ref("tenant-slurm", "slurm-login")
ALICE = OutdatedPod(name="slurm-login-0", sessions=("alice notty", "alice pts/0"))
OUTDATED = {"spec": {"template": {"metadata": {"annotations": {slurm_login.RESTARTED: "2026-11-29T12:00:00Z"}}}}}


def login() -> Stage:
    return stage("slurm_login", slurm=SLURM, approvals=[])


def wanted() -> LoginPods:
    return msgspec.convert(login().steps[0].task.arguments["login_replacement"], LoginPods)


def installed(make: Make) -> User:
    """A cluster after stage slurm's charts and slurmd pods are there."""
    user, whole = cluster(make), sunk()
    names = [step.name for step in whole.steps]
    verdicts = run(user, dataclasses.replace(whole, steps=whole.steps[: names.index("control") + 1]))
    assert {name: verdict.reason for name, verdict in verdicts.items() if not verdict.is_pass} == {}
    return user


def listed(user: User) -> SessionsObservation:
    with kubelets(user):
        return login_pod_replacement.listed(DirectTask(Kube.from_file(user.kubeconfig), VirtualClock(user)), wanted())[1]


def replaced(user: User, *approved: OutdatedPod) -> str:
    with kubelets(user):
        task = DirectTask(Kube.from_file(user.kubeconfig), VirtualClock(user))
        return login_pod_replacement.replace(task, wanted(), SessionsObservation(pods=approved)).reason


def uid(user: User) -> str:
    pod = user.api.get(api_kinds.PODS, POD.name, POD.namespace)
    assert pod is not None
    return str(pod["metadata"]["uid"])


def gate(user: User) -> str:
    (verdict,) = run(user, dataclasses.replace(login(), steps=login().steps[1:2])).values()
    return f"{verdict.status.value}: {verdict.reason}"


def test_an_update_leaves_the_pod_until_its_users_are_approved(make: Make) -> None:
    user = installed(make)
    assert listed(user) == SessionsObservation()
    assert replaced(user) == "0 login pods replaced"
    user.api.merge(api_kinds.STATEFUL_SETS, SET, OUTDATED)
    user.api.merge(api_kinds.PODS, POD, {"metadata": {"annotations": {slurm_login.SESSIONS: "alice notty,alice pts/0"}}})
    user.simulator.settle()
    before = uid(user)
    user.simulator.advance(600)
    assert uid(user) == before, "a new template alone ends nobody's session"
    seen = listed(user)
    assert seen == SessionsObservation(pods=(ALICE,))
    assert approval_text([msgspec.to_builtins(seen)]) == ("replacing login pods ends sessions, slurm-login-0: alice (notty, pts/0)")
    for stranger in ((), (OutdatedPod(name="slurm-login-0", sessions=("bob pts/0",)),)):
        assert "kept, since nobody approved it, slurm-login-0: alice (notty, pts/0)" in replaced(user, *stranger)
        assert uid(user) == before
    assert replaced(user, ALICE) == "1 login pod replaced"
    assert uid(user) != before
    assert re.fullmatch(r"pass: slurm-login-0: revision slurm-login-\w+, ready", gate(user))
    a_list_that_is_too_long_hides_nobody(user)
    a_pod_that_tells_nothing_is_asked_about(user)


def a_list_that_is_too_long_hides_nobody(user: User) -> None:
    user.api.merge(
        api_kinds.STATEFUL_SETS, SET, {"spec": {"template": {"metadata": {"annotations": {slurm_login.RESTARTED: "soon"}}}}}
    )
    everybody = ",".join(f"user{number} pts/{number}" for number in range(login_pod_replacement.MOST_SESSIONS + 1))
    user.api.merge(api_kinds.PODS, POD, {"metadata": {"annotations": {slurm_login.SESSIONS: everybody}}})
    user.simulator.settle()
    seen = listed(user)
    assert seen.pods == (OutdatedPod(name="slurm-login-0", error="201 sessions, more than the 200 that are listed"),)
    assert "kept, since nobody approved it, slurm-login-0: unknown (201 sessions" in replaced(user)


def a_pod_that_tells_nothing_is_asked_about(user: User) -> None:
    user.api.merge(
        api_kinds.STATEFUL_SETS, SET, {"spec": {"template": {"metadata": {"annotations": {slurm_login.RESTARTED: "later"}}}}}
    )
    user.simulator.settle()
    unreachable = login_pod_replacement.listed(DirectTask(Kube.from_file(user.kubeconfig), VirtualClock(user)), wanted())[1]
    assert unreachable.is_used
    assert unreachable.pods[0].error


def test_without_login_pods_that_wait_there_is_no_stage() -> None:
    for slurm in ({"kind": "slinky"}, SLURM | {"login": {"replicas": 0}}):
        with pytest.raises(AssertionError):
            stage("slurm_login", slurm=slurm, approvals=[])


def test_approvers_are_those_of_the_approval_before_slurm() -> None:
    before = [{"before": "slurm", "approvers": [{"name": "ada@example.org"}], "timeout": "2h"}]
    approval = stage("slurm_login", slurm=SLURM, approvals=before).approval
    assert approval is not None
    assert (dict(approval.approvers), approval.timeout_seconds) == ({"ada@example.org": ()}, 7200)
    assert isinstance(login().steps[0].task, Task)
