"""The stages os_prep, rke2, sharing and gang as data: tasks that verbs and gates can read, small, the same for the same site."""

from __future__ import annotations

import importlib
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.contract.task import Task, Verb, encode
from steps.runtime import gating
from workflows import catalog, spec
from workflows.spec.cluster_spec import GPU, allocatable
from workflows.spec.sections.slurm_section import Slurm
from workflows.stages import gang, os_prep, rke2, sharing
from workflows.stages.stage import Site, Stage, Step

EXAMPLE = Path(__file__).parents[3] / "workflows/examples/h200-16.yaml"
SCRIPTS = sorted((Path(__file__).parents[3] / "workflows/stages/scripts").glob("*.sh"))
STAGES = ("os_prep", "rke2", "sharing", "gang")
QUEUES = [{"name": "research", "namespace": "team-a", "gpus": 64}, {"name": "dev", "namespace": "team-b", "gpus": 64}]
GROUPS = {
    "servers": {"role": "server", "ranges": "sv[1-3]"},
    "gpu": {
        "role": "agent",
        "ranges": "gpu[0001-2000]",
        "gpu": True,
        "taints": ["nvidia.com/gpu=present:NoSchedule"],
        "overrides": {"gpu0007": {"gpus": 7, "labels": {"site/zone": "b"}}},
    },
    "cpu": {"role": "agent", "ranges": "cpu[01-10]", "labels": {"site/pool": "plain"}},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "example": {},
    "large": {
        "hosts": GROUPS,
        "rke2": {
            "registration_address": "10.10.0.10",
            "cluster_cidr": "10.0.0.0/12",
            "kubelet_args": {"topology-manager-policy": "best-effort"},
        },
    },
    "servers_only": {
        "hosts": {"all": {"role": "server", "ranges": "n1", "gpu": True}},
        "rke2": {"version": "v1.34.10+rke2r1", "cni": ["multus", "canal"]},
        "slurm": {"kind": "none"},
        "approvals": [],
    },
    "time_slicing": {"sharing": {"mode": "time_slicing", "replicas": 4}},
    "mps": {"sharing": {"mode": "mps", "replicas": 4}, "scheduler": {"gang": "kai"}},
    "mig": {"sharing": {"mode": "mig", "profile": "1g.18gb"}, "scheduler": {"gang": "kai"}},
    "mig_mixed": {"sharing": {"mode": "mig", "profile": "1g.18gb", "strategy": "mixed"}},
    "dra": {"sharing": {"mode": "dra"}},
    "gpu_cluster": {"sharing": {"mode": "dra"}, "accelerator": {"product": "H200", "operator_mode": "gpu_cluster"}},
    "host_driver": {"accelerator": {"product": "H200", "driver": "host", "driver_version": "580.126.20"}},
    "kueue": {"scheduler": {"quota": "kueue", "queues": QUEUES}},
    "both": {"scheduler": {"gang": "volcano", "quota": "kueue", "queues": QUEUES}},
    "sunk": {"slurm": {"kind": "sunk", "repo": "oci://r.example.org/sunk", "version": "7.3.0"}},
}


def site(variant: str) -> Site:
    cluster = spec.load(yaml.safe_dump(yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader) | VARIANTS[variant]))
    releases = catalog.resolve(cluster, catalog.load())
    return Site(spec=cluster, machines=cluster.machines, releases={release.id: release for release in releases})


def without_slurm(variant: str) -> Site:
    one = site(variant)
    return replace(one, spec=one.spec.model_copy(update={"slurm": Slurm()}))


def built(stage: str, variant: str = "example") -> Stage:
    made = importlib.import_module(f"workflows.stages.{stage}").build(site(variant))
    assert isinstance(made, Stage)
    return made


def step(stage: str, name: str, variant: str = "example") -> Step:
    return next(one for one in built(stage, variant).steps if one.name == name)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stage", STAGES)
def test_tasks_are_small_and_readable_by_verbs_and_gates(stage: str, variant: str) -> None:
    for one in built(stage, variant).steps:
        task = msgspec.json.decode(encode(one.task), type=Task)
        verb = importlib.import_module(f"steps.verbs.{task.verb.value}")
        arguments = msgspec.convert(task.arguments, verb.Arguments)
        if task.verb is Verb.APPLY:
            gating.find(arguments.gate).expect(arguments.gate_expectations, ("gpu001",))
        elif task.verb is not Verb.JUDGE:
            gating.find(arguments.gate).expect(task.expectations, ("gpu001",))
        if task.verb is Verb.PLAY:
            assert callable(gating.reader(arguments.gate))
        elif task.verb in (Verb.WAIT, Verb.JOB):
            assert callable(gating.probe(arguments.gate))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_pure_ordered_and_ends_with_its_judge(stage: str, variant: str) -> None:
    made, again = built(stage, variant), built(stage, variant)
    assert [encode(one.task) for one in made.steps] == [encode(one.task) for one in again.steps]
    known: set[str] = set()
    for one in made.steps:
        assert set(one.after) <= known
        known.add(one.name)
    judge = made.steps[-1]
    checks = judge.task.arguments["checks"]
    assert judge.name == "judge"
    assert {check["task"] for check in checks} == {one.name for one in made.steps if one.task.verb not in (Verb.APPLY, Verb.JUDGE)}
    assert tuple(dict.fromkeys(check["gate"] for check in checks)) == made.gates
    assert made.rollback
    assert made.title


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_one_that_a_shell_can_read(script: Path) -> None:
    assert subprocess.run(["/bin/sh", "-n", str(script)], capture_output=True, check=False).returncode == 0


# ---- os_prep and rke2 --------------------------------------------------------------------------------------------------------


def test_machines_are_prepared_in_shards_and_servers_must_all_pass() -> None:
    play, judge = step("os_prep", "play"), step("os_prep", "judge").task.arguments
    assert (play.fan_out, play.task.arguments["select"], play.task.arguments["fanned"]) == ("shards", "all", True)
    assert (judge["members"], judge["required"], judge["needed"], judge["cordon"]) == ("agent", "server", 15, False)


def test_the_driver_belongs_to_the_host_or_to_the_operator() -> None:
    assert step("os_prep", "play").task.expectations["driver_on_host"] is False
    assert step("os_prep", "play", "host_driver").task.expectations["driver_on_host"] is True


def test_servers_come_first_and_hand_their_secrets_to_the_agents() -> None:
    servers, agents = step("rke2", "servers").task, step("rke2", "agents")
    assert servers.arguments["kubeconfig_from"] == "kubeconfig"
    assert servers.arguments["keep"] == {"token": "join_token"}
    assert agents.task.arguments["secret_variables"] == {"rke2_token": "join_token"}
    assert (agents.after, agents.fan_out) == (("servers",), "agents")
    assert not any("token" in str(value) for value in agents.task.arguments["variables"].values())


def test_a_cluster_of_servers_alone_has_no_task_for_agents() -> None:
    made = built("rke2", "servers_only")
    judge = made.steps[-1].task.arguments
    assert [one.name for one in made.steps] == ["servers", "control", "nodes", "host_network", "functional", "judge"]
    assert (judge["members"], judge["needed"]) == ("server", 1)
    workloads = step("rke2", "control", "servers_only").task.expectations["workloads"]
    assert workloads == [
        rke2.DNS,
        "DaemonSet rke2-multus",
        "DaemonSet rke2-canal",
        "DaemonSet rke2-ingress-nginx-controller",
    ]


def test_labels_and_taints_go_by_group_and_only_odd_hosts_are_named() -> None:
    variables = step("rke2", "agents", "large").task.arguments["variables"]
    assert variables["rke2_node_labels"]["cpu"] == ["bringup/group=cpu", "site/pool=plain"]
    assert variables["rke2_node_taints"] == {"gpu": ["nvidia.com/gpu=present:NoSchedule"]}
    assert variables["rke2_host_labels"] == {"gpu0007": ["site/zone=b"]}
    assert variables["rke2_kubelet_args"] == {"max-pods": "110", "topology-manager-policy": "best-effort"}
    nodes = step("rke2", "nodes", "large").task
    assert nodes.arguments["labels"] == ["bringup/group", "site/pool", "site/zone"]
    assert nodes.expectations["groups"]["gpu"] == {
        "hosts": "gpu[0001-2000]",
        "labels": {"bringup/group": "gpu"},
        "taints": ["nvidia.com/gpu=present:NoSchedule"],
    }
    assert nodes.expectations["host_labels"] == {"gpu0007": {"site/zone": "b"}}


def test_what_the_quorum_forgives_may_lack_its_network_pod() -> None:
    assert step("rke2", "control").task.expectations["spare"] == 1
    assert step("rke2", "control", "servers_only").task.expectations["spare"] == 0


# ---- sharing -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "resource", "units"),
    [
        ("example", "nvidia.com/gpu", 1),
        ("time_slicing", "nvidia.com/gpu.shared", 4),
        ("mps", "nvidia.com/gpu.shared", 4),
        ("mig", "nvidia.com/gpu", 7),
        ("mig_mixed", "nvidia.com/mig-1g.18gb", 7),
    ],
)
def test_nodes_must_advertise_physical_gpus_times_units(variant: str, resource: str, units: int) -> None:
    wanted = step("sharing", "nodes", variant).task.expectations
    assert (wanted["gpus"], wanted["resource"], wanted["units"]) == (8, resource, units)
    assert allocatable(site(variant).spec)[resource] == 8 * units


def test_a_node_with_fewer_gpus_is_named() -> None:
    assert step("sharing", "nodes", "large").task.expectations["others"] == {"gpu0007": 7}


@pytest.mark.parametrize("variant", ["time_slicing", "mps", "mig", "dra"])
def test_a_node_label_turns_sharing_on_and_the_gate_asks_for_it(variant: str) -> None:
    labels = step("sharing", "apply", variant).task.arguments["node_labels"]
    assert labels.items() <= step("sharing", "nodes", variant).task.expectations["labels"].items()


def test_mode_none_changes_nothing_and_is_still_proven() -> None:
    made = built("sharing")
    assert [one.name for one in made.steps] == ["control", "nodes", "functional", "judge"]
    assert made.changes == ()
    assert step("sharing", "functional").task.expectations == {"mode": "none", "exclusive": True}


def test_only_time_slicing_that_refuses_two_is_asked_for_two() -> None:
    pods = {
        variant: [item["metadata"]["name"] for item in step("sharing", "functional", variant).task.arguments["objects"]]
        for variant in VARIANTS
    }
    assert {variant for variant, names in pods.items() if "sharing-two" in names} == {"time_slicing"}


@pytest.mark.parametrize("variant", ["dra", "gpu_cluster"])
def test_dra_pods_claim_a_device_and_request_no_resource(variant: str) -> None:
    objects = step("sharing", "functional", variant).task.arguments["objects"]
    assert [item["kind"] for item in objects] == ["Namespace", "ConfigMap", "ResourceClaimTemplate", "Job", "Job"]
    pods = [item["spec"]["template"]["spec"] for item in objects[3:]]
    assert all("limits" not in pod["containers"][0]["resources"] for pod in pods)


# ---- gang --------------------------------------------------------------------------------------------------------------------


def test_the_oversized_gang_is_one_larger_than_the_fleet() -> None:
    assert gang.gang_sizes(without_slurm("example")) == gang.Sizes(oversize=16 * 8 + 1, fit=15, units=1, resource=GPU)
    assert gang.gang_sizes(without_slurm("time_slicing")).oversize == 16 * 8 * 4 + 1
    assert gang.gang_sizes(without_slurm("servers_only")) == gang.Sizes(oversize=9, fit=2, units=1, resource=GPU)


def test_where_no_gpu_can_be_requested_members_stand_apart_on_gpu_nodes() -> None:
    """With DRA none is advertised, and Slurm's node pods hold them all on every later run."""
    for variant in ("example", "gpu_cluster"):
        machines = len(site(variant).machines)
        assert gang.gang_sizes(site(variant)) == gang.Sizes(oversize=machines + 1, fit=15, units=110, resource="pods", apart=True)
    (job,) = [item for item in step("gang", "oversize").task.arguments["objects"] if item["kind"] == "Job"]
    pod = job["spec"]["tasks"][0]["template"]["spec"]
    assert "resources" not in pod["containers"][0]
    assert pod["affinity"]["podAntiAffinity"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "bringup/group", "operator": "In", "values": ["gpu"]}]


def test_beside_slurm_the_sharing_check_requests_nothing() -> None:
    for variant, requested in (("example", False), ("time_slicing", True)):
        jobs = [item for item in step("sharing", "functional", variant).task.arguments["objects"] if item["kind"] == "Job"]
        containers = [job["spec"]["template"]["spec"]["containers"][0] for job in jobs]
        assert all(("resources" in container) is requested for container in containers)
        shown = [{one["name"]: one.get("value") for one in container.get("env", ())} for container in containers]
        assert [one.get("NVIDIA_VISIBLE_DEVICES") for one in shown[:2]] == ([None, None] if requested else ["0", "1"])
        assert not any(container.get("securityContext") for container in containers)


def test_a_large_fleet_is_tested_with_whole_nodes() -> None:
    sizes = gang.gang_sizes(without_slurm("large"))
    assert sizes.units == 8
    assert sizes.oversize * sizes.units > 1999 * 8 + 7
    assert sizes.oversize <= 2001


@pytest.mark.parametrize(
    ("variant", "kinds"), [("example", ["Job"]), ("mig", ["Job"]), ("kueue", ["ClusterQueue", "LocalQueue", "Job"])]
)
def test_each_scheduler_gets_the_gang_in_its_own_form(variant: str, kinds: list[str]) -> None:
    task = step("gang", "oversize", variant).task
    objects = [item for item in task.arguments["objects"] if item["kind"] != "Namespace"]
    assert [item["kind"] for item in objects] == kinds
    job, count = objects[-1], task.expectations["count"]
    if variant == "example":
        assert (job["apiVersion"], job["spec"]["minAvailable"]) == ("batch.volcano.sh/v1alpha1", count)
    elif variant == "mig":
        assert job["metadata"]["annotations"]["kai.scheduler/batch-min-member"] == str(count)
        assert job["spec"]["template"]["spec"]["schedulerName"] == "kai-scheduler"
    else:
        assert job["spec"]["suspend"] is True
        assert objects[0]["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == count - 1


def test_nodes_that_sunk_has_locked_are_nodes_like_others() -> None:
    assert step("rke2", "nodes", "sunk").task.expectations["own_taints"] == ["sunk.coreweave.com/lock"]
    assert "own_taints" not in step("rke2", "nodes", "example").task.expectations
    for variant, expected in (("sunk", True), ("example", False)):
        job = step("gang", "functional", variant).task.arguments["objects"][-1]
        tolerated = job["spec"]["tasks"][0]["template"]["spec"]["tolerations"]
        assert ({"key": "sunk.coreweave.com/lock", "operator": "Exists"} in tolerated) is expected


def test_quota_objects_come_after_the_chart_that_brings_their_kinds() -> None:
    made = built("gang", "both")
    assert [one.name for one in made.steps] == [
        "apply",
        "charts",
        "configure",
        "control",
        "nodes",
        "oversize",
        "functional",
        "quota_oversize",
        "quota_functional",
        "judge",
    ]
    applied = [(item["kind"], item["metadata"]["name"]) for item in step("gang", "configure", "both").task.arguments["objects"]]
    assert applied[:2] == [("Namespace", "team-a"), ("Namespace", "team-b")]
    assert {kind for kind, _ in applied[2:]} == {"ResourceFlavor", "ClusterQueue", "LocalQueue"}
    queues = step("gang", "control", "both").task.expectations["queues"]
    assert "ClusterQueue research" in queues
    assert "LocalQueue team-a/research" in queues


def test_flavors_match_the_product_as_it_reads_after_sharing() -> None:
    wanted = step("gang", "nodes", "kueue").task.expectations["flavors"]
    assert list(wanted.values()) == [{"nvidia.com/gpu.product": "NVIDIA-H200"}]


def test_no_scheduler_no_stage() -> None:
    one = site("example")
    plain = one.spec.model_copy(update={"scheduler": one.spec.scheduler.model_copy(update={"gang": "none"})})
    assert gang.build(Site(spec=plain, machines=one.machines, releases={})) is None
    without = one.spec.model_copy(update={"accelerator": None})
    assert sharing.build(Site(spec=without, machines=one.machines, releases={})) is None
    assert os_prep.build(one) is not None
