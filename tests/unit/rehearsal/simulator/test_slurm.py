"""The slurm stage on the simulated cluster: its own tasks, probes and gates, healthy and under each fault."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.unit.rehearsal.simulator.harness import Make, User
from tests.unit.rehearsal.simulator.stage_runner import HOSTS_ON_LEAVES, NODES, run, stage
from workflows.rehearsal.faults import slurm as faults
from workflows.rehearsal.faults.fault_registry import Fault
from workflows.rehearsal.simulator.api import api_kinds
from workflows.rehearsal.simulator.charts.argo_cd_target import Rendered
from workflows.rehearsal.simulator.charts.chart_installers import ChartError, ChartRelease
from workflows.rehearsal.simulator.stages.slurm import slurm_sunk
from workflows.rehearsal.simulator.stages.slurm.slurm import ACCOUNTINGS, NODE_SETS
from workflows.stages.stage import Stage

SLURM: dict[str, Any] = {"slurm": {"kind": "slinky", "login": {"replicas": 1}}, "approvals": []}


def cluster(make: Make, *active: str) -> User:
    """RKE2 with three nodes of eight GPUs, labelled and advertised as the stages before leave them."""
    user = make(agents=3, servers=1, faults=[(name, ()) for name in active])
    user.bring_up()
    user.api.merge(api_kinds.NODES, api_kinds.Ref("", "cp00"), {"metadata": {"labels": {"bringup/group": "servers"}}})
    for name in NODES:
        at, resources = api_kinds.Ref("", name), {"nvidia.com/gpu": "8", "rdma/rdma_shared_device_a": "63"}
        user.api.merge(api_kinds.NODES, at, {"metadata": {"labels": {"bringup/group": "gpu"}}})
        user.api.merge(api_kinds.NODES, at, {"status": {"capacity": resources, "allocatable": resources}}, "status")
    user.simulator.settle()
    return user


def made() -> Stage:
    return stage("slurm", **SLURM)


ONE_FLAVOUR = ("slurm.kind=slinky", "slurm.kind=sunk", "slurm.login.test_user=alice", "slurm.accounting.port=3306")
"""Needs of faults that only one of the operators can have."""
SUNK_NEEDS = ("slurm.kind=sunk", "slurm.login.test_user=alice")
SCRIPTS = {"prolog": {"10-check.sh": "#!/bin/sh\ntrue\n"}, "epilog": {"10-clean.sh": "#!/bin/sh\ntrue\n"}}
HOME = {"server": "10.10.0.5", "path": "/export/home"}
TRAIN = {"name": "train", "groups": "gpu", "default": True, "oversubscribe": "FORCE:2"}


def accounted() -> Stage:
    """Slinky with all that a site may ask for: accounting, topology, a shared home, prolog and epilog."""
    further = {
        "accounting": {"host": "mariadb.slurm.svc", "password": {"file": "./db_password"}},
        "topology": "tree",
        "partitions": [TRAIN],
        "home": HOME,
        **SCRIPTS,
    }
    return stage("slurm", hosts=HOSTS_ON_LEAVES, slurm={"kind": "slinky", **further}, approvals=[])


def sunk(version: str = "7.3.0", partition: dict[str, Any] = TRAIN) -> Stage:
    slurm = {
        "kind": "sunk",
        "repo": "oci://r.example.org/sunk",
        "version": version,
        "login": {"test_user": "alice"},
        "topology": "tree",
        "home": HOME,
        "partitions": [partition],
        **SCRIPTS,
    }
    return stage("slurm", hosts=HOSTS_ON_LEAVES, slurm=slurm, approvals=[])


@pytest.mark.parametrize("rule", ["FORCE:2", "FORCE:1"])
def test_a_healthy_cluster_passes_every_gate_of_sunk(make: Make, rule: str) -> None:
    """With FORCE:1 no check of sharing runs, and the epilog is tested all the same."""
    verdicts = run(cluster(make), sunk(partition=TRAIN | {"oversubscribe": rule}))
    assert [name in verdicts["scheduling"].reason for name in ("shared", "exclusive", "epilog")] == [rule == "FORCE:2", False, True]
    assert {name: verdict.reason for name, verdict in verdicts.items() if not verdict.is_pass} == {}
    assert set(verdicts) == {"charts", "control", "nodes", "placement", "functional", "scheduling", "drain", "pods"}
    assert "3 pods of scheduler sunk ran on gpu" in verdicts["pods"].reason


def test_a_healthy_cluster_passes_every_gate(make: Make) -> None:
    user = cluster(make)
    verdicts = run(user, made())
    assert set(verdicts) == {"charts", "control", "nodes", "placement", "functional", "scheduling", "drain"}
    assert [verdict.reason for verdict in verdicts.values() if not verdict.is_pass] == []
    assert "3 of 3 nodes: ran a job with 8 GPUs" in verdicts["functional"].reason
    assert user.pods("slurm", "bringup/check=srun") == []


def test_a_healthy_cluster_with_accounting_passes_every_gate(make: Make) -> None:
    user = cluster(make)
    verdicts = run(user, accounted())
    assert [verdict.reason for verdict in verdicts.values() if not verdict.is_pass] == []
    assert len(user.api.list(ACCOUNTINGS) or ()) == 1


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("fault", faults.FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_its_gate_and_by_none_before(make: Make, fault: Fault) -> None:
    planned = sunk if fault.needs in SUNK_NEEDS else accounted if fault.needs else made
    verdicts = list(run(cluster(make, fault.name), planned()).values())
    assert all(verdict.is_pass for verdict in verdicts[:-1])
    assert verdicts[-1].gate == fault.gate, verdicts[-1]
    assert not verdicts[-1].is_pass
    assert re.search(fault.cause, verdicts[-1].reason), verdicts[-1].reason


@pytest.mark.sampled_rows(2)
@pytest.mark.parametrize("fault", [it for it in faults.FAULTS if it.needs not in ONE_FLAVOUR], ids=lambda fault: fault.name)
def test_sunk_has_the_faults_of_slurm_itself_too(make: Make, fault: Fault) -> None:
    planned = sunk() if fault.needs else sunk(partition={"name": "train", "groups": "gpu", "default": True})
    verdicts = list(run(cluster(make, fault.name), planned).values())
    assert all(verdict.is_pass for verdict in verdicts[:-1])
    assert (verdicts[-1].gate, verdicts[-1].is_pass) == (fault.gate, False), verdicts[-1]
    assert re.search(fault.cause, verdicts[-1].reason), verdicts[-1].reason


CGROUP_ALONE = {"configFiles": {"cgroup.conf": "ConstrainCores=yes\n"}}
NO_PLUGIN = {"controller": {"extraConfMap": {"TaskPlugin": "task/affinity"}}}
NO_TYPES = {"controller": {"extraConfMap": {"GresTypes": ""}}}


@pytest.mark.parametrize(
    ("values", "gate", "cause"),
    [
        (CGROUP_ALONE, "control", "cannot connect to dbus system daemon"),
        (NO_PLUGIN, "scheduling", "a job with one GPU saw 8 devices (CUDA_VISIBLE_DEVICES 0), although cgroup.conf has"),
        (NO_TYPES, "functional", "Slurm's Gres is empty; expected 8 GPUs"),
    ],
    ids=["cgroup.conf without IgnoreSystemd", "no plugin for cgroups", "no GresTypes"],
)
def test_slurm_needs_what_the_plan_writes_into_its_files(make: Make, values: dict[str, Any], gate: str, cause: str) -> None:
    """The simulated chart does what the real one does with these values, so that a healthy rehearsal proves them."""
    verdict = list(run(cluster(make), stage("slurm", **SLURM, overrides={"slurm": {"values": values}})).values())[-1]
    assert (verdict.gate, verdict.is_pass) == (f"slurm/{gate}", False)
    assert cause in verdict.reason


def test_the_sentence_names_node_and_reason(make: Make) -> None:
    verdict = run(cluster(make, "slurm_gres_lower_than_configured"), made())["control"]
    assert "gpu000 idle+drain+invalid_reg: gres/gpu count reported lower than configured (7 < 8)" in verdict.reason
    refused = run(cluster(make, "slurm_key_differs"), made())["functional"]
    assert [row.node for row in refused.nodes if row.status.value == "fail"] == ["gpu000", "gpu001"]
    assert "Invalid job credential on node gpu000" in refused.reason


def test_a_cordoned_node_is_drained_and_no_longer_wanted(make: Make) -> None:
    user = cluster(make)
    run(user, made())
    user.api.merge(api_kinds.NODES, api_kinds.Ref("", "gpu002"), {"spec": {"unschedulable": True}})
    user.simulator.settle()
    user.simulator.advance(60)
    found = user.api.get(NODE_SETS, "slurm-worker-gpu", "slurm")
    assert found is not None
    assert found["status"] == found["status"] | {"desired": 2, "replicas": 3, "slurmIdle": 3, "slurmDrain": 1}


def test_a_second_look_writes_nothing(make: Make) -> None:
    user = cluster(make)
    run(user, made())
    user.simulator.advance(120)
    before = [pod["metadata"]["resourceVersion"] for pod in user.pods("slurm")]
    user.world.wake()
    user.simulator.advance(120)
    assert [pod["metadata"]["resourceVersion"] for pod in user.pods("slurm")] == before


OFF = {"podMonitor": {"enabled": False}, "vmPodScrape": {"enabled": False}}
FITTING: dict[str, Any] = {
    "moco": {"enabled": False},
    "login": {"service": {"type": "ClusterIP", "externalTrafficPolicy": ""}, "loginController": OFF, "directoryCache": OFF},
}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"slurm": FITTING}, "VMPodScrape"),
        (FITTING | {"moco": {"enabled": True}}, "MySQLCluster"),
        (FITTING | {"login": FITTING["login"] | {"service": {"type": "ClusterIP"}}}, "externalTrafficPolicy"),
    ],
    ids=["values below a key of wrapper charts", "database without its operator", "traffic policy of an internal Service"],
)
def test_sunks_chart_refuses_what_only_coreweave_has(make: Make, values: dict[str, Any], message: str) -> None:
    chart = {"metadata": {"name": "slurm", "namespace": "kube-system"}, "spec": {"repo": "https://r.example.org", "chart": "slurm"}}
    with pytest.raises(ChartError, match=message):
        slurm_sunk.install_cluster(ChartRelease(make().world, chart, values))


def test_an_upgrade_replaces_the_secret_job_whose_template_is_immutable(make: Make) -> None:
    user, whole = cluster(make), sunk()
    names = [step.name for step in whole.steps]
    run(user, replace(whole, steps=whole.steps[: names.index("control") + 1]))
    newer = sunk(version="7.4.0")
    configure = newer.steps[names.index("configure")]
    left = replace(configure, task=msgspec.structs.replace(configure.task, arguments=_without_removal(configure.task.arguments)))
    operator, control = newer.steps[: names.index("configure")], newer.steps[names.index("control")]
    refused = run(user, replace(newer, steps=(*operator, left, control)))["control"]
    assert 'cannot patch "slurm-secret-job" with kind Job' in refused.reason
    newest = sunk(version="7.5.0")
    assert run(user, replace(newest, steps=newest.steps[: names.index("control") + 1]))["control"].is_pass


def _without_removal(arguments: dict[str, Any]) -> dict[str, Any]:
    assert arguments["replaced_jobs"] == {"namespace": "tenant-slurm", "prefix": "slurm-secret-job"}
    return {key: value for key, value in arguments.items() if key != "replaced_jobs"}


@pytest.mark.parametrize("respected", [True, False])
def test_argo_cd_leaves_a_job_whose_template_it_ignores(make: Make, respected: bool) -> None:
    world = make().world
    template = {"metadata": {"labels": {"app": "keys"}}, "spec": {"restartPolicy": "Never", "containers": [{"name": "keys"}]}}
    chart = {"metadata": {"name": "slurm", "namespace": "argocd"}, "spec": {"targetNamespace": "default"}}
    rule = {"group": "batch", "kind": "Job", "jqPathExpressions": [".spec.template"]}
    app = {"ignoreDifferences": [rule], "syncPolicy": {"syncOptions": ["RespectIgnoreDifferences=true"] * respected}}
    images = iter(("keys:7.3.0", "keys:7.4.0"))

    def put() -> None:
        container = {"name": "keys", "image": next(images)}
        spec = {"template": template | {"spec": {"restartPolicy": "Never", "containers": [container]}}}
        Rendered(world, chart, {}, app).put(api_kinds.JOBS, {"metadata": {"name": "keys"}, "spec": spec})

    put()
    if respected:
        put()
    else:
        with pytest.raises(ChartError, match="field is immutable"):
            put()
