"""The stages base_services, gpu_operator and network_operator as data: tasks that verbs can read, small, always the same."""

import importlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.contract.canonical import canonical
from steps.contract.delivery import Publication
from steps.contract.objects.charts import value_digests
from steps.contract.task import Task, Verb, encode
from steps.runtime import check_manifests, gating
from workflows import catalog, spec
from workflows.stages import ORDER as STAGE_ORDER
from workflows.stages import base_services, gpu_operator, manifest_objects, network_operator, os_prep
from workflows.stages.stage import Site, Stage, Step

EXAMPLE = Path(__file__).parents[3] / "workflows/examples/h200-16.yaml"
STAGES = ("base_services", "gpu_operator", "network_operator")
POOL = {"subnet": "192.168.0.0/16"}
VARIANTS: dict[str, dict[str, Any]] = {
    "example": {},
    "argo_cd": {
        "delivery": {
            "mode": "argo_cd",
            "argo_cd": {"repo": "https://git.example.org/platform.git", "revision": "v1.4.0", "project": "platform"},
        }
    },
    "host_driver": {"accelerator": {"product": "H200", "driver": "host", "driver_version": "580.126.20"}},
    "driver_version": {"accelerator": {"product": "H200", "driver_version": "580.126.20"}, "slurm": {"kind": "none"}},
    "gpu_cluster": {"accelerator": {"product": "H200", "operator_mode": "gpu_cluster"}, "sharing": {"mode": "dra"}},
    "time_slicing": {"sharing": {"mode": "time_slicing", "replicas": 4}},
    "mig": {"sharing": {"mode": "mig", "profile": "1g.18gb"}},
    "ipoib": {"fabric": {"kind": "infiniband", "mode": "ipoib", "interfaces": ["ibs1"], "ip_pool": POOL}},
    "macvlan": {"fabric": {"kind": "roce", "mode": "macvlan", "interfaces": ["ens2f0"], "ip_pool": POOL}},
    "sriov": {"fabric": {"kind": "infiniband", "mode": "sriov", "ip_pool": POOL}},
    "host_device": {"fabric": {"kind": "infiniband", "mode": "host_device", "driver": "operator", "ip_pool": POOL}},
    "no_storage": {"slurm": {"kind": "none"}, "base_services": {"storage": {"provisioner": "none"}, "monitoring_crds": False}},
}


def site(**changes: Any) -> Site:
    written = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader) | changes
    cluster = spec.load(yaml.safe_dump(written))
    releases = catalog.resolve(cluster, catalog.load())
    return Site(spec=cluster, machines=cluster.machines, releases={release.id: release for release in releases})


def built(stage: str, variant: str = "example") -> Stage:
    made = importlib.import_module(f"workflows.stages.{stage}").build(site(**VARIANTS[variant]))
    assert isinstance(made, Stage)
    return made


def step(stage: str, name: str, variant: str = "example") -> Step:
    return next(one for one in built(stage, variant).steps if one.name == name)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stage", STAGES)
def test_tasks_are_small_and_readable_by_their_verbs(stage: str, variant: str) -> None:
    for one in built(stage, variant).steps:
        task = msgspec.json.decode(encode(one.task), type=Task)
        verb = importlib.import_module(f"steps.verbs.{task.verb.value}")
        arguments = msgspec.convert(task.arguments, Publication if task.verb is Verb.PUBLISH else verb.Arguments)
        if task.verb in (Verb.WAIT, Verb.JOB):
            gating.find(arguments.gate).expect(task.expectations, ("gpu001",))
            assert callable(gating.probe(arguments.gate))
        if task.verb is Verb.APPLY and arguments.gate:
            gating.find(arguments.gate).expect(arguments.gate_expectations, ("gpu001",))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stage", STAGES)
def test_same_site_same_bytes(stage: str, variant: str) -> None:
    first, second = ([encode(one.task) for one in built(stage, variant).steps] for _ in range(2))
    assert first == second


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("stage", STAGES)
def test_steps_come_after_known_steps_and_end_with_the_judge(stage: str, variant: str) -> None:
    made, known = built(stage, variant), set()
    for one in made.steps:
        assert set(one.after) <= known
        known.add(one.name)
    checks = made.steps[-1].task.arguments["checks"]
    assert made.steps[-1].name == "judge"
    assert [check["gate"] for check in checks] == list(made.gates)
    assert {check["task"] for check in checks} == {one.name for one in made.steps if one.task.verb in (Verb.WAIT, Verb.JOB)}


@pytest.mark.parametrize("stage", STAGES)
def test_every_release_has_one_owner_with_safe_settings(stage: str) -> None:
    charts = [item for item in step(stage, "apply").task.arguments["objects"] if item["kind"] == "HelmChart"]
    assert charts
    for chart in charts:
        assert chart["metadata"]["namespace"] == "kube-system"
        assert (chart["spec"]["backOffLimit"], chart["spec"]["failurePolicy"]) == (3, "abort")
        assert chart["spec"]["timeout"].endswith("s")
        assert isinstance(yaml.safe_load(chart["spec"].get("valuesContent", "{}")), dict)


@pytest.mark.parametrize("stage", STAGES)
def test_with_argo_cd_a_stage_applies_its_namespaces_and_its_root_alone(stage: str) -> None:
    made = step(stage, "apply", "argo_cd").task.arguments["objects"]
    assert {item["kind"] for item in made} == {"Namespace", "Application"}
    (root,) = [item for item in made if item["kind"] == "Application"]
    folder = stage.replace("_", "-")
    assert root["metadata"] == {
        "name": f"bringup-{folder}",
        "namespace": "argocd",
        "annotations": {"argocd.argoproj.io/sync-wave": str(STAGE_ORDER.index(stage))},
    }
    assert root["spec"]["source"] == {
        "repoURL": "https://git.example.org/platform.git",
        "path": f"apps/environments/h200-16/stages/{folder}",
        "targetRevision": "v1.4.0",
    }
    assert root["spec"]["project"] == "platform-roots"


@pytest.mark.parametrize(
    ("stage", "name"), [("base_services", "control"), ("gpu_operator", "control"), ("network_operator", "charts")]
)
def test_with_argo_cd_the_gate_knows_the_root_and_each_release(stage: str, name: str) -> None:
    task = step(stage, name, "argo_cd").task
    tree = step("base_services", "publish", "argo_cd").task.arguments["tree"]["digest"]
    root = task.expectations["root_app"]
    assert (root["name"], root["home"], root["revision"], root["tree"]) == (
        f"bringup-{stage.replace('_', '-')}",
        "argocd",
        "v1.4.0",
        tree,
    )
    assert task.arguments["root_app"] == root
    assert {(one["owner"], one["home"], one["revision"]) for one in task.expectations["releases"]} == {
        ("argo_cd", "argocd", "v1.4.0")
    }


def test_nothing_to_do_leaves_the_stage_out() -> None:
    nothing = {"storage": {"provisioner": "none"}, "cert_manager": False, "monitoring_crds": False}
    assert base_services.build(site(base_services=nothing, slurm={"kind": "none"})) is None
    assert network_operator.build(site(fabric={"kind": "none"})) is None


def test_check_jobs_run_once_on_every_node_under_test() -> None:
    nodes = ("gpu001", "gpu002", "gpu003")
    for stage, name in (("gpu_operator", "cuda-smoke"), ("network_operator", "ib-write-bw")):
        arguments = step(stage, "functional").task.arguments
        filled = check_manifests.on_nodes(arguments["objects"][-1], nodes)
        pod = filled["spec"]["template"]
        assert filled["metadata"]["name"] == name
        assert (filled["spec"]["completions"], filled["spec"]["parallelism"]) == (3, 3)
        assert pod["metadata"]["labels"][manifest_objects.CHECK_LABEL] == name
        placed = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert placed[0]["matchExpressions"][0]["values"] == list(nodes)
        assert pod["spec"]["restartPolicy"] == "Never"


def test_ring_pods_are_told_how_many_they_are() -> None:
    arguments = step("network_operator", "functional").task.arguments
    container = check_manifests.on_nodes(arguments["objects"][-1], ("a", "b"))["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "COUNT", "value": "2"} in container["env"]
    assert container["command"][:2] == ["/bin/sh", "-c"]
    assert len(container["command"]) == 3


def placement(nodes: tuple[str, ...], others: tuple[str, ...] | None) -> dict[str, object]:
    """By what the pods of a check on these nodes are placed."""
    arguments = step("network_operator", "functional").task.arguments
    filled = check_manifests.on_nodes(arguments["objects"][-1], nodes, others)
    affinity = filled["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    found: dict[str, object] = term["matchExpressions"][0]
    return found


def test_check_pods_name_whichever_nodes_are_fewer() -> None:
    key = "kubernetes.io/hostname"
    assert placement(("a", "b"), None) == {"key": key, "operator": "In", "values": ["a", "b"]}
    assert placement(("a", "b"), ("c", "d")) == {"key": key, "operator": "In", "values": ["a", "b"]}
    assert placement(("a", "b"), ("c",)) == {"key": key, "operator": "NotIn", "values": ["c"]}
    assert placement(("a", "b"), ()) == {"key": key, "operator": "Exists", "values": []}


def test_gpus_are_requested_only_where_they_are_whole_and_free() -> None:
    def container(variant: str) -> dict[str, Any]:
        found: dict[str, Any] = step("gpu_operator", "functional", variant).task.arguments["objects"][-1]["spec"]["template"][
            "spec"
        ]
        return found

    assert container("driver_version")["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert container("time_slicing")["runtimeClassName"] == "nvidia"
    assert container("gpu_cluster")["resourceClaims"][0]["resourceClaimTemplateName"] == "cuda-smoke"


def test_second_run_accepts_what_sharing_left() -> None:
    wanted = step("gpu_operator", "nodes", "time_slicing").task.expectations
    assert wanted["shapes"] == [{"nvidia.com/gpu": 1}, {"nvidia.com/gpu.shared": 4, "nvidia.com/gpu": 0}]
    wanted = step("gpu_operator", "nodes", "mig").task.expectations
    assert wanted["products"] == ["NVIDIA-H200", "NVIDIA-H200-MIG-1g.18gb"]
    assert step("gpu_operator", "nodes", "gpu_cluster").task.expectations["shapes"] == []


@pytest.mark.parametrize(
    ("fabric", "mtus"),
    [
        ({"mtu": 9000}, {"rail_mtu": 9000}),
        # nothing on the machines is set with the operator's driver: the site's own MTU stands
        ({"mtu": 9000, "driver": "operator"}, {}),
        ({"mtu": 9000, "interfaces": ["ens2f0"]}, {}),
        ({"mode": "macvlan", "interfaces": ["ens2f0"], "mtu": 9000}, {"mtu": 9000}),
        ({"mode": "macvlan", "interfaces": ["ens2f0"], "mtu": 9000, "driver": "operator"}, {"mtu": 9000, "larger_ports": True}),
        ({"mode": "macvlan", "interfaces": ["ens2f0"], "driver": "operator"}, {}),
        ({"mode": "host_device", "mtu": 9000}, {"mtu": 9000, "rail_mtu": 9000}),
        ({"mode": "host_device", "mtu": 9000, "driver": "operator"}, {}),
        ({"mode": "sriov"}, {"larger_ports": True}),
        ({"mode": "sriov", "mtu": 9000}, {"mtu": 9000, "rail_mtu": 9000}),
        ({"mode": "sriov", "mtu": 9000, "interfaces": ["ens2f0"]}, {"mtu": 9000, "larger_ports": True}),
        ({"mode": "sriov", "mtu": 9000, "driver": "operator"}, {"mtu": 9000, "larger_ports": True}),
    ],
)
def test_the_bandwidth_check_expects_an_mtu_where_a_step_sets_it(fabric: dict[str, Any], mtus: dict[str, Any]) -> None:
    made = network_operator.build(site(fabric={"kind": "roce", "ip_pool": POOL} | fabric))
    assert made is not None
    want = next(one for one in made.steps if one.name == "functional").task.expectations
    assert {key: want[key] for key in ("mtu", "rail_mtu", "larger_ports") if key in want} == mtus


def test_operator_driver_is_an_operand_and_host_driver_is_not() -> None:
    assert "nvidia-driver-daemonset" in step("gpu_operator", "control").task.expectations["operands"]
    assert "nvidia-driver-daemonset" not in step("gpu_operator", "control", "host_driver").task.expectations["operands"]
    assert step("gpu_operator", "nodes", "host_driver").task.expectations["driver"] == "580.126.20"


def test_every_part_that_the_values_switch_on_is_expected() -> None:
    operands = step("gpu_operator", "control").task.expectations["operands"]
    assert {"nvidia-dcgm", "nvidia-mig-manager", "gpu-feature-discovery"} <= set(operands)
    dra = step("gpu_operator", "control", "gpu_cluster").task.expectations
    assert dra["operands"] == ["nvidia-gpu-driver-", "nvidia-dra-driver-kubelet-plugin", "nvidia-dcgm-dra", "nvidia-dra-validator"]
    assert dra["exporter"] == "nvidia-dcgm-exporter-dra"
    less = {"gpu_operator": {"values": {"dcgmExporter": {"enabled": False}, "dcgm": {"enabled": False}}}}
    made = gpu_operator.build(
        site(
            overrides=less,
            accelerator={"product": "L40S"},
            validation={"nccl": {"inter_node_floor_gb_s": 9, "intra_node_floor_gb_s": 9}},
        )
    )
    assert made is not None
    steps = {one.name: one.task for one in made.steps}
    assert steps["control"].expectations["exporter"] == ""
    assert not {"nvidia-dcgm", "nvidia-mig-manager"} & set(steps["control"].expectations["operands"])
    unused = {"dcgm", "dcgm-dra", "dcgm-exporter", "dcgm-exporter-dra", "mig-manager", "node-status-exporter"}
    assert set(steps["nodes"].expectations["unused"]) == unused
    assert steps["functional"].expectations["exporter"] is False


def test_gates_know_a_host_driver_and_the_resources_of_the_fabric() -> None:
    for name in ("control", "nodes"):
        assert step("gpu_operator", name, "host_driver").task.expectations["host_driver"] is True
        assert "host_driver" not in step("gpu_operator", name).task.expectations
    assert "driver" in step("gpu_operator", "nodes", "host_driver").task.expectations["unused"]
    assert step("gpu_operator", "nodes", "sriov").task.expectations["resources"] == ["nvidia.com/rdma_shared_device_a"]


def test_facts_that_may_differ_reach_every_gate_that_compares_them() -> None:
    written = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader)["validation"]
    allowed = site(validation=written | {"may_differ": [{"fact": "vbios", "reason": "two batches"}]})
    made = [gpu_operator.build(allowed), os_prep.build(allowed)]
    tasks = {(one.task.stage, one.name): one.task for stage in made if stage for one in stage.steps}
    for place in (("gpu_operator", "nodes"), ("gpu_operator", "functional"), ("os_prep", "play")):
        assert tasks[place].expectations["may_differ"] == {"vbios": "two batches"}


def test_the_check_asks_the_exporter_of_its_own_node() -> None:
    pod = step("gpu_operator", "functional").task.arguments["objects"][-1]["spec"]["template"]["spec"]
    env = {entry["name"]: entry.get("value") for entry in pod["containers"][0]["env"]}
    assert env["EXPORTER"] == "nvidia-dcgm-exporter.gpu-operator.svc:9400"
    chart = next(item for item in step("gpu_operator", "apply").task.arguments["objects"] if item["kind"] == "HelmChart")
    values = yaml.safe_load(chart["spec"]["valuesContent"])
    assert values["dcgmExporter"]["service"] == {"internalTrafficPolicy": "Local"}


def test_a_release_is_expected_with_digests_of_its_values() -> None:
    (release,) = step("gpu_operator", "control").task.expectations["releases"]
    chart = next(item for item in step("gpu_operator", "apply").task.arguments["objects"] if item["kind"] == "HelmChart")
    assert release["values"] == value_digests(yaml.safe_load(chart["spec"]["valuesContent"]))
    (release,) = step("gpu_operator", "control", "argo_cd").task.expectations["releases"]
    assert "values" not in release


def test_flapping_operator_versions_get_a_stability_window() -> None:
    assert step("gpu_operator", "control").task.arguments["stable_seconds"] == 60
    assert step("gpu_operator", "control", "gpu_cluster").task.arguments["stable_seconds"] == 20
    assert gpu_operator.FLAPPING_BEFORE == (26, 7)


@pytest.mark.parametrize(
    ("variant", "states", "networks", "count"),
    [
        ("example", {"state-RDMA-device-plugin"}, None, 1),
        (
            "ipoib",
            {
                "state-RDMA-device-plugin",
                "state-nv-ipam-cni",
                "state-container-networking-plugins",
                "state-ipoib-cni",
                "state-multus-cni",
            },
            ["IPoIBNetwork/fabric"],
            1,
        ),
        (
            "host_device",
            {
                "state-OFED",
                "state-SRIOV-device-plugin",
                "state-nv-ipam-cni",
                "state-container-networking-plugins",
                "state-multus-cni",
            },
            ["HostDeviceNetwork/fabric"],
            8,
        ),
        ("sriov", {"state-nv-ipam-cni", "state-container-networking-plugins", "state-multus-cni"}, ["SriovIBNetwork/fabric"], 64),
    ],
)
def test_required_states_follow_the_policy(variant: str, states: set[str], networks: list[str] | None, count: int) -> None:
    wanted = step("network_operator", "control", variant).task.expectations
    assert set(wanted["states"]) == states
    assert wanted.get("networks") == networks
    assert step("network_operator", "nodes", variant).task.expectations["count"] == count


def test_no_rights_with_wildcards_on_core_groups() -> None:
    for stage in STAGES:
        for one in built(stage).steps:
            for rule in one.rules:
                assert "*" not in rule.groups
                assert "*" not in rule.verbs
                assert "*" not in rule.resources or "" not in rule.groups


def test_canonical_objects_hold_no_shared_text_markers() -> None:
    """Only the two markers that verb `job` replaces stand in check objects."""
    for stage in STAGES:
        text = canonical(step(stage, "functional").task.arguments).decode()
        assert "{{" not in text
