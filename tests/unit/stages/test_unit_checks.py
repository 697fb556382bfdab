"""Proofs of sharing on machines with one GPU, with different numbers of GPUs, and with more units than pods. Costs 1 s of CPU."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from workflows import catalog, examples, spec
from workflows.spec.acceptance import unit_checks
from workflows.spec.acceptance.untested import untested
from workflows.spec.cluster_spec import ClusterSpec
from workflows.stages import gang, sharing
from workflows.stages.stage import Site, Step

FREE: dict[str, Any] = {"slurm": {"kind": "none"}}
GPU_CLUSTER = {"accelerator": {"product": "H200", "operator_mode": "gpu_cluster"}, "sharing": {"mode": "dra"}}
KUEUE = {"gang": "kai", "quota": "kueue", "queues": [{"name": "research", "namespace": "team-a", "gpus": 64}]}


def cluster(**changes: Any) -> ClusterSpec:
    """The example with changed sections."""
    text = yaml.load(examples.path("h200-16").read_text(), Loader=yaml.CSafeLoader)
    return spec.load(yaml.safe_dump(text | changes))


def steps(described: ClusterSpec, builder: Any = sharing) -> dict[str, Step]:
    """The tasks of a stage by name."""
    releases = {release.id: release for release in catalog.resolve(described, catalog.load())}
    made = builder.build(Site(spec=described, machines=described.machines, releases=releases))
    return {step.name: step for step in made.steps}


def left_out(described: ClusterSpec) -> dict[str, str]:
    """Untested parts of sharing and gang by test, each with the key that rules it out."""
    return {part.test: part.path for part in untested(described) if part.stage in ("sharing", "gang")}


def jobs(step: Step) -> dict[str, Any]:
    return {item["metadata"]["name"]: item["spec"] for item in step.task.arguments["objects"] if item["kind"] == "Job"}


def expressions(job: dict[str, Any]) -> list[dict[str, Any]]:
    """The conditions of a Job's pods on nodes, without that of the nodes under test."""
    terms = job["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return list(terms["nodeSelectorTerms"][0]["matchExpressions"][1:])


def with_odd(gpus: int) -> dict[str, Any]:
    """The example's hosts, of which one has another number of GPUs."""
    groups = yaml.load(examples.path("h200-16").read_text(), Loader=yaml.CSafeLoader)["hosts"]
    return {**groups, "gpu": groups["gpu"] | {"overrides": {"gpu007": {"gpus": gpus}}}}


def test_machines_with_one_gpu_get_a_proof_with_one_pod_and_the_rest_is_named() -> None:
    described = cluster(accelerator={"product": "H200", "per_node": 1}, **FREE)
    made = steps(described)
    assert made["functional"].task.expectations == {"mode": "none", "exclusive": True, "pair": False}
    assert list(jobs(made["functional"])) == ["sharing-first"]
    assert jobs(made["limit"])["sharing-limit"]["completions"] == 2
    assert left_out(described) == {"two pods with a GPU each": "accelerator.per_node"}


@pytest.mark.parametrize(("gpus", "others", "parts"), [(1, ["gpu007"], 1), (7, [], 0)])
def test_an_odd_machine_takes_no_proof_from_the_others(gpus: int, others: list[str], parts: int) -> None:
    described = cluster(hosts=with_odd(gpus), **FREE)
    made = steps(described)
    assert made["functional"].task.expectations.get("others", []) == others
    avoid = [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["gpu007"]}]
    assert expressions(jobs(made["functional"])["sharing-second"]) == (avoid if others else [])
    assert made["limit"].task.expectations == {"mode": "none", "units": 8}
    assert expressions(jobs(made["limit"])["sharing-limit"]) == avoid
    assert list(left_out(described)) == ["two pods with a GPU each on gpu007"] * parts


@pytest.mark.parametrize(("replicas", "pods", "each"), [(8, 64, 1), (16, 64, 2), (13, 52, 2), (32, 64, 4), (33, 0, 0)])
def test_many_shares_are_filled_by_pods_with_several_containers(replicas: int, pods: int, each: int) -> None:
    described = cluster(sharing={"mode": "time_slicing", "replicas": replicas}, **FREE)
    made = steps(described)
    assert ("limit" in made) is bool(pods)
    assert left_out(described) == ({} if pods else {"one GPU pod more than a node has room for": "sharing.replicas"})
    if pods:
        job = jobs(made["limit"])["sharing-limit"]
        containers = job["template"]["spec"]["containers"]
        assert (job["completions"], len(containers)) == (pods + 1, each)
        # a device plugin refuses several shares in one container
        assert {next(iter(container["resources"]["limits"].values())) for container in containers} == {1}
        assert made["limit"].task.expectations["units"] == 8 * replicas


def test_a_kubelet_that_runs_few_pods_gets_larger_ones() -> None:
    shares = {"mode": "time_slicing", "replicas": 4}
    rke2 = {"registration_address": "10.10.0.10", "kubelet_args": {"max-pods": "64"}}
    described = cluster(sharing=shares, rke2=rke2, **FREE)
    job = jobs(steps(described)["limit"])["sharing-limit"]
    assert (job["completions"], len(job["template"]["spec"]["containers"])) == (17, 2)


def test_a_large_minority_of_other_machines_is_not_listed() -> None:
    counts = {f"a{number}": 8 for number in range(500)} | {f"b{number}": 4 for number in range(400)}
    fill = unit_checks.node_fill(cluster(**FREE), counts)
    assert (fill.pods, fill.each, fill.avoided) == (8, 1, ())
    assert len(fill.allowed) == 100
    assert set(fill.allowed) < {name for name, units in counts.items() if units == 8}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({}, "slurm.kind"),
        ({"sharing": {"mode": "dra"}} | FREE, "sharing.mode"),
        (
            {"accelerator": {"product": "H200", "operator_mode": "gpu_cluster"}, "sharing": {"mode": "dra"}} | FREE,
            "accelerator.operator_mode",
        ),
    ],
    ids=["slurm", "dra", "gpu_cluster"],
)
def test_gangs_and_full_nodes_without_gpus_are_named(changes: dict[str, Any], path: str) -> None:
    full = {"one GPU pod more than a node has room for": path} if path == "slurm.kind" else {}
    assert left_out(cluster(**changes)) == {**full, "gangs of GPU pods": path}


def test_pods_with_claims_fill_a_node_and_one_more_waits() -> None:
    limit = steps(cluster(**GPU_CLUSTER, **FREE))["limit"].task
    _, template, job = limit.arguments["objects"]
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert (template["kind"], request["exactly"]) == ("ResourceClaimTemplate", {"deviceClassName": "gpu.nvidia.com"})
    pod = job["spec"]["template"]["spec"]
    assert (job["spec"]["completions"], pod["resourceClaims"][0]["resourceClaimTemplateName"]) == (9, template["metadata"]["name"])
    assert limit.expectations == {"mode": "dra", "units": 8}
    few = cluster(rke2={"registration_address": "10.10.0.10", "kubelet_args": {"max-pods": "45"}}, **GPU_CLUSTER, **FREE)
    assert left_out(few)["one GPU pod more than a node has room for"] == "rke2.kubelet_args"


def test_kueue_beside_a_gang_scheduler_gets_gangs_of_its_own() -> None:
    made = steps(cluster(scheduler=KUEUE, **FREE), gang)
    shown = [(name, step.task.expectations.get("scheduler")) for name, step in made.items()][-5:-1]
    assert shown == [("oversize", "kai"), ("functional", "kai"), ("quota_oversize", "kueue"), ("quota_functional", "kueue")]
    kinds = [item["kind"] for item in made["quota_functional"].task.arguments["objects"]]
    assert kinds == ["Namespace", "ClusterQueue", "LocalQueue", "Job"]
    assert any("clusterqueues" in rule.resources and "create" in rule.verbs for rule in made["quota_oversize"].rules)
    assert "quota_oversize" not in steps(cluster(scheduler=KUEUE | {"gang": "none"}, **FREE), gang)
    assert "quota_oversize" not in steps(cluster(scheduler={"gang": "kai"}, **FREE), gang)
