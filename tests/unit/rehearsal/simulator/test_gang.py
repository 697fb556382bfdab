"""The gang stage on the simulated cluster: its own tasks, probes and gates, healthy and under each fault."""

from __future__ import annotations

import re
from typing import Any

import pytest

from steps.clients.kube.client import Kube
from steps.contract.verdict import Status
from tests.unit.rehearsal.simulator.harness import Make, User
from tests.unit.rehearsal.simulator.stage_runner import NODES, run, stage
from workflows.rehearsal.faults import gang as faults
from workflows.rehearsal.faults.fault_registry import Fault, find_fault
from workflows.rehearsal.simulator.api import api_kinds
from workflows.rehearsal.simulator.stages.gang import gang_kueue

VOLCANO: dict[str, Any] = {"gang": "volcano"}
KAI: dict[str, Any] = {"gang": "kai"}
KUEUE: dict[str, Any] = {"quota": "kueue", "queues": [{"name": "research", "namespace": "team-a", "gpus": 24}]}


def cluster(make: Make, *active: str) -> User:
    """RKE2 with three nodes of eight GPUs, which are advertised as a device plugin would do it."""
    user = make(agents=3, servers=1, faults=[(name, ()) for name in active])
    user.bring_up()
    for name in NODES:
        at, resources = api_kinds.Ref("", name), {"nvidia.com/gpu": "8"}
        user.api.merge(api_kinds.NODES, at, {"status": {"capacity": resources, "allocatable": resources}}, "status")
        user.api.merge(api_kinds.NODES, at, {"metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-H200"}}})
    user.simulator.settle()
    return user


@pytest.mark.parametrize("scheduler", [VOLCANO, KAI, KUEUE, VOLCANO | KUEUE], ids=["volcano", "kai", "kueue", "volcano_and_kueue"])
def test_a_healthy_cluster_passes_every_gate(make: Make, scheduler: dict[str, Any]) -> None:
    user = cluster(make)
    verdicts = run(user, stage("gang", scheduler=scheduler))
    assert {"control", "nodes", "oversize", "functional"} <= set(verdicts)
    # states of queues do not show that Kueue holds Jobs back, so it gets gangs of its own beside a gang scheduler
    assert ("quota_functional" in verdicts) is (scheduler == VOLCANO | KUEUE)
    assert [verdict.reason for verdict in verdicts.values() if not verdict.is_pass] == []
    assert user.pods("bringup-check") == []


UNDECIDED = {
    "gang_scheduler_hangs": "has not said that the gang is too large",
    "gang_scheduler_crashes": "",
    "gang_queue_closed": "state Closed",
    "gang_queue_closes_later": "state Closed",
    "gang_kueue_without_jobs": "no group of the check's pods exists",
    "gang_queue_limited": "admits at most 2 units",
    "gang_check_quota_zero": "admits at most 0 units",
}
"""Faults that leave a gate inconclusive; with any other it fails."""
NEEDED = {"scheduler.quota=kueue": VOLCANO | KUEUE, "scheduler.gang=none": KUEUE}
"""Section `scheduler` by what a fault needs; any other fault can show with Volcano."""


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_its_gate_and_by_none_before(make: Make, fault: Fault) -> None:
    caught(make, fault, NEEDED.get(fault.needs, VOLCANO))


def caught(make: Make, fault: Fault, scheduler: dict[str, Any]) -> None:
    """Assert that the gates pass up to the fault's own, which names the fault's cause."""
    verdicts = list(run(cluster(make, fault.name), stage("gang", scheduler=scheduler)).values())
    assert all(verdict.is_pass for verdict in verdicts[:-1]), verdicts
    last = verdicts[-1]
    assert last.gate == fault.gate, last
    assert re.search(fault.cause, last.reason), last
    if fault.name in UNDECIDED:
        assert not last.is_pass
        assert UNDECIDED[fault.name] in last.reason
    else:
        assert last.status is Status.FAIL, last


def test_a_moment_of_binding_is_found_when_nobody_is_bound_any_more(make: Make) -> None:
    user = cluster(make, "gang_binds_for_a_moment")
    verdict = run(user, stage("gang", scheduler=VOLCANO))["oversize"]
    assert verdict.final
    assert all(not pod["spec"].get("nodeName") for pod in user.pods("bringup-check"))


def test_a_gang_larger_than_the_cluster_can_queue_waits_without_pods(make: Make) -> None:
    user = cluster(make)
    for name in NODES[1:]:
        user.api.merge(api_kinds.NODES, api_kinds.Ref("", name), {"spec": {"unschedulable": True}})
    made = stage("gang", scheduler=VOLCANO)
    kept = [step for step in made.steps if step.name != "nodes"]
    verdicts = run(user, type(made)(**{**vars(made), "steps": tuple(kept)}))
    assert verdicts["oversize"].is_pass, verdicts["oversize"]
    assert "Unschedulable (Pending): queue resource quota insufficient" in verdicts["oversize"].reason


ANY_SCHEDULER = ("gang_second_scheduler", "gang_queue_limited", "gang_members_refused", "gang_members_without_cuda")


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("name", ANY_SCHEDULER)
@pytest.mark.parametrize("scheduler", [KAI, KUEUE], ids=["kai", "kueue"])
def test_the_other_schedulers_show_these_faults_too(make: Make, scheduler: dict[str, Any], name: str) -> None:
    caught(make, find_fault(name), scheduler)


def test_kai_reports_a_refused_binding_by_event_alone(make: Make) -> None:
    verdict = run(cluster(make, "gang_bind_refused"), stage("gang", scheduler=KAI))["functional"]
    assert "event about Pod gang-fit-" in verdict.reason
    assert "BindingError failed to bind pod" in verdict.reason
    assert "let the policy or webhook that the message names" in verdict.next_step


SHARED: dict[str, Any] = {"mode": "time_slicing", "replicas": 4}


def test_members_take_one_share_each_where_kubelets_refuse_several(make: Make) -> None:
    user = cluster(make)
    for name in NODES:
        amounts = {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "32"}
        user.api.merge(
            api_kinds.NODES, api_kinds.Ref("", name), {"status": {"capacity": amounts, "allocatable": amounts}}, "status"
        )
    user.simulator.settle()
    verdicts = run(user, stage("gang", scheduler=VOLCANO, sharing=SHARED))
    assert [verdict.reason for verdict in verdicts.values() if not verdict.is_pass] == []
    assert "ran a CUDA kernel on 1 each" in verdicts["functional"].reason


PRODUCT = "nvidia.com/gpu.product"
FLAVORS: dict[str, dict[str, Any]] = {
    "older": {"nodeLabels": {PRODUCT: "NVIDIA-A100"}, "nodeTaints": [{"key": "old", "value": "yes", "effect": "NoSchedule"}]},
    "mig": {"nodeLabels": {PRODUCT: "NVIDIA-H200-MIG-1g.18gb"}, "tolerations": [{"key": "cut", "operator": "Exists"}]},
    "whole": {"nodeLabels": {PRODUCT: "NVIDIA-H200"}},
}
OLD = {"key": "old", "operator": "Exists"}
IN_ORDER: dict[str, tuple[int, dict[str, Any], str, str]] = {
    "first-tolerated": (2, {}, "mig", ""),
    "first": (2, {"tolerations": [OLD]}, "older", ""),
    "first-with-quota": (8, {"tolerations": [OLD]}, "whole", ""),
    "selected": (2, {"nodeSelector": {PRODUCT: "NVIDIA-H200", "rack": "a"}}, "whole", ""),
    "too-large": (9, {"tolerations": [OLD]}, "", r"flavor older.* \(4\), .*flavor mig.* \(4\), .*flavor whole.* \(8\)$"),
    "elsewhere": (1, {"nodeSelector": {PRODUCT: "NVIDIA-B200"}}, "", "flavor whole doesn't match node affinity$"),
}
"""Job → its GPUs, fields of its pods, and the flavor that it gets or why it gets none."""


def test_kueue_takes_the_first_flavor_that_fits(make: Make) -> None:
    user = cluster(make)
    made = stage("gang", scheduler=KUEUE)
    run(user, type(made)(**{**vars(made), "steps": made.steps[:4]}))
    kueue, meta = "kueue.x-k8s.io/v1beta2", {"name": "mixed", "namespace": "team-a"}
    amounts = {"older": 4, "mig": 4, "whole": 8}
    quotas = [{"name": name, "resources": [{"name": "nvidia.com/gpu", "nominalQuota": amounts[name]}]} for name in FLAVORS]
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": quotas}]
    kube = Kube.from_file(user.kubeconfig)
    for name, flavor in FLAVORS.items():
        kube.apply({"apiVersion": kueue, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": flavor})
    queue = {"namespaceSelector": {}, "resourceGroups": groups}
    kube.apply({"apiVersion": kueue, "kind": "ClusterQueue", "metadata": {"name": "mixed"}, "spec": queue})
    kube.apply({"apiVersion": kueue, "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": "mixed"}})
    for name, (gpus, fields, _, _) in IN_ORDER.items():
        container = {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container], **fields}}
        place = meta | {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "mixed"}}
        kube.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": place, "spec": {"suspend": True, "template": template}})
    user.simulator.settle()
    jobs = {
        job["metadata"]["name"]: job["spec"] for job in user.world.objects(api_kinds.JOBS) if job["metadata"]["name"] in IN_ORDER
    }
    placed = {
        name: job["template"]["spec"].get("nodeSelector", {}).get(PRODUCT) for name, job in jobs.items() if not job["suspend"]
    }
    assert placed == {name: FLAVORS[flavor]["nodeLabels"][PRODUCT] for name, (_, _, flavor, _) in IN_ORDER.items() if flavor}
    assert jobs["first-tolerated"]["template"]["spec"]["tolerations"] == FLAVORS["mig"]["tolerations"]
    reasons = {
        workload["metadata"]["name"]: condition["message"]
        for workload in user.world.objects(gang_kueue.WORKLOADS)
        for condition in workload.get("status", {}).get("conditions", ())
        if condition["status"] == "False"
    }
    for name, (_, _, _, why) in IN_ORDER.items():
        if why:
            (reason,) = (text for workload, text in reasons.items() if workload.startswith(f"job-{name}-"))
            assert re.search(why, reason), reason
