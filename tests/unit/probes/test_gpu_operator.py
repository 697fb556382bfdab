"""Probe of stage gpu_operator: second instances by what they run, switched-off parts, and the log of a crashing driver."""

import base64
import gzip
from typing import Any

import msgspec
import pytest

from steps.contract.objects.charts import Release, value_digests
from steps.stages.gpu_operator import gate, probe, probe_instances
from steps.stages.gpu_operator.contract import NodesExpectation, PartKind
from steps.stages.shared import kube_objects, probe_charts, probe_workloads
from steps.stages.shared.kube_reader import Scope

PLUGINS = "/var/lib/kubelet/device-plugins"


class Cluster:
    """A cluster of recorded objects, by the path of their collection, and of logs by pod, container and `previous`."""

    def __init__(self, objects: dict[str, list[Any]], logs: dict[tuple[str, str, bool], str] | None = None) -> None:
        self.objects = objects
        self.logs = logs or {}

    def list(self, path: str, kind: type[Any], labels: str = "", fields: str = "") -> tuple[Any, ...]:
        del labels, fields
        return tuple(msgspec.convert(item, kind) for item in self.objects.get(path, ()))

    def get(self, path: str, kind: type[Any]) -> Any:
        folder, _, name = path.rpartition("/")
        return next(
            (msgspec.convert(item, kind) for item in self.objects.get(folder, ()) if item["metadata"]["name"] == name), None
        )

    def text(self, path: str) -> str | None:
        raise AssertionError(path)

    def log(self, namespace: str, pod: str, container: str = "", tail: int = 200, previous: bool = False) -> str:
        del namespace, tail
        return self.logs.get((pod, container, previous), "")

    def events(self, namespace: str, name: str) -> tuple[str, ...]:
        del namespace, name
        return ()


def workload(
    name: str, image: str, *, mounts: str = "", replicas: int = 1, container: dict[str, Any] | None = None, **meta: Any
) -> Any:
    volumes = [{"hostPath": {"path": mounts}}] if mounts else []
    pod = {"containers": [{"name": name, "image": image} | (container or {})], "volumes": volumes}
    namespace, _, own = name.partition("/")
    return {"metadata": {"name": own, "namespace": namespace} | meta, "spec": {"replicas": replicas, "template": {"spec": pod}}}


def found(*daemon_sets: Any, deployments: tuple[Any, ...] = ()) -> list[tuple[PartKind, str, str]]:
    cluster = Cluster({"/apis/apps/v1/daemonsets": list(daemon_sets), "/apis/apps/v1/deployments": list(deployments)})
    return [(entry.kind, entry.name, entry.owner) for entry in probe_instances.instances(cluster)]


OWNED = {"ownerReferences": [{"kind": "ClusterPolicy", "name": "cluster-policy", "controller": True}]}


@pytest.mark.parametrize(
    "daemon_set",
    [
        workload("kube-system/nvdp", "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"),
        workload("kube-system/gke", "gke.gcr.io/nvidia-gpu-device-plugin@sha256:00"),
        workload("hami/hami-device-plugin", "projecthami/hami:v2.7.0"),
        workload("x/shares", "registry.example.org/gpushare-device-plugin:2"),
        workload("x/vgpu", "volcanosh/volcano-vgpu-device-plugin:v1.10"),
        workload(
            "x/own-build",
            "example.org/plugin:1",
            mounts=PLUGINS,
            container={"env": [{"name": "RESOURCE", "value": "nvidia.com/gpu"}]},
        ),
        workload(
            "x/by-arguments", "example.org/plugin:1", mounts=f"{PLUGINS}/", container={"args": ["--resource=example.org/gpu-slice"]}
        ),
    ],
    ids=lambda item: item["metadata"]["name"],
)
def test_a_device_plugin_for_gpus_is_known_by_what_it_runs(daemon_set: Any) -> None:
    meta = daemon_set["metadata"]
    assert found(daemon_set) == [(PartKind.DEVICE_PLUGIN, f"{meta['namespace']}/{meta['name']}", "")]


@pytest.mark.parametrize(
    "daemon_set",
    [
        workload("gpu-operator/gfd", "nvcr.io/nvidia/k8s-device-plugin:v0.19.3", container={"command": ["gpu-feature-discovery"]}),
        workload("gpu-operator/mps", "nvcr.io/nvidia/k8s-device-plugin:v0.19.3", container={"command": ["mps-control-daemon"]}),
        workload(
            "nvidia-network-operator/sriov-device-plugin",
            "nvcr.io/nvidia/mellanox/sriov-network-device-plugin:v3.9",
            mounts=PLUGINS,
            container={"args": ["--resource-prefix=nvidia.com"]},
        ),
        workload("x/rdma", "nvcr.io/nvidia/mellanox/k8s-rdma-shared-dev-plugin:v1", mounts=PLUGINS),
        workload("x/fuse", "example.org/smarter-device-manager:v1", mounts=PLUGINS),
        workload("monitoring/exporter", "nvcr.io/nvidia/k8s/dcgm-exporter:4", mounts="/var/lib/kubelet/pod-resources"),
    ],
    ids=lambda item: item["metadata"]["name"],
)
def test_other_plugins_and_programs_of_the_same_image_are_none(daemon_set: Any) -> None:
    assert found(daemon_set) == []


def test_owners_tell_ours_from_somebody_elses() -> None:
    ours = workload("gpu-operator/nvidia-device-plugin-daemonset", "mirror.example.org/renamed:1", **OWNED)
    release = {"annotations": {"meta.helm.sh/release-name": "gpu-operator"}}
    operators = (
        workload("gpu-operator/gpu-operator", "mirror.example.org/renamed:1", **release),
        workload("other/operator", "nvcr.io/nvidia/gpu-operator:v25.3.4", labels={"app.kubernetes.io/instance": "second"}),
        workload("old/gpu-operator", "nvcr.io/nvidia/gpu-operator:v24.9.0", replicas=0),
        workload("x/validator", "nvcr.io/nvidia/cloud-native/gpu-operator-validator:v24.9.0"),
    )
    assert found(ours, deployments=operators) == [
        (PartKind.OPERATOR, "gpu-operator/gpu-operator", "gpu-operator/gpu-operator"),
        (PartKind.OPERATOR, "other/operator", "other/second"),
        (PartKind.DEVICE_PLUGIN, "gpu-operator/nvidia-device-plugin-daemonset", "ClusterPolicy cluster-policy"),
    ]


@pytest.mark.parametrize(
    ("name", "image", "command", "expected"),
    [
        ("x/labels", "registry.k8s.io/nfd/node-feature-discovery:v0.17.0-full", ["nfd-worker"], True),
        ("x/labels", "quay.io/openshift/ose-node-feature-discovery-rhel9@sha256:00", [], True),
        ("x/nfd-topology-updater", "registry.k8s.io/nfd/node-feature-discovery:v0.17.0", [], False),
        ("x/topology", "registry.k8s.io/nfd/node-feature-discovery:v0.17.0", ["nfd-topology-updater"], False),
        ("x/nfd-worker", "mirror.example.org/renamed:1", [], True),
        ("x/other", "example.org/other:1", [], False),
    ],
)
def test_workers_of_node_feature_discovery_are_known_by_their_image(
    name: str, image: str, command: list[str], expected: bool
) -> None:
    raw = msgspec.convert(workload(name, image, container={"command": command}), kube_objects.DeployedWorkload)
    assert probe_workloads.is_nfd_worker(raw) is expected


def test_parts_and_operands_that_are_switched_off_are_named() -> None:
    spec = {
        "driver": {"enabled": True, "version": "580.126.20"},
        "dcgmExporter": {"enabled": False},
        "gfd": {},
        "other": {"enabled": False},
    }
    gpu = {"feature.node.kubernetes.io/pci-10de.present": "true", "nvidia.com/gpu.deploy.driver": "true"}
    nodes = [
        {"metadata": {"name": "cp01", "labels": {"nvidia.com/gpu.deploy.dcgm": "false"}}},
        {"metadata": {"name": "gpu002", "labels": gpu | {"nvidia.com/gpu.deploy.dcgm-exporter": "paused-for-mig-change"}}},
        {"metadata": {"name": "gpu001", "labels": gpu | {"nvidia.com/gpu.deploy.dcgm-exporter": "false"}}},
    ]
    policy = {"metadata": {"name": "cluster-policy"}, "spec": spec}
    seen = probe.control(Cluster({"/apis/nvidia.com/v1/clusterpolicies": [policy], "/api/v1/nodes": nodes}), Scope())
    assert (seen.cluster_policies[0].driver, seen.cluster_policies[0].disabled) == ("580.126.20", ("dcgmExporter",))
    assert seen.off == {"dcgm-exporter": ("gpu001=false", "gpu002=paused-for-mig-change")}
    assert seen.gpu_nodes == ("gpu001", "gpu002")


def test_the_log_of_a_crashing_driver_is_that_of_before_its_restart() -> None:
    status = {
        "name": "nvidia-driver-ctr",
        "ready": False,
        "restartCount": 6,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s"}},
    }
    pod = {"metadata": {"name": "nvidia-driver-daemonset-x"}, "spec": {"nodeName": "gpu001"}}
    pod["status"] = {"phase": "Running", "containerStatuses": [status]}
    daemon = workload("gpu-operator/nvidia-driver-daemonset", "driver:580") | {"status": {"desiredNumberScheduled": 1}}
    objects = {
        "/apis/apps/v1/namespaces/gpu-operator/daemonsets": [daemon],
        "/api/v1/namespaces/gpu-operator/pods": [pod],
    }
    last, now = ("nvidia-driver-daemonset-x", "nvidia-driver-ctr", True), ("nvidia-driver-daemonset-x", "nvidia-driver-ctr", False)
    both = probe.control(Cluster(objects, {last: "Could not resolve Linux kernel version\n", now: "starting\n"}), Scope())
    assert both.driver_log == "Could not resolve Linux kernel version\n"
    assert probe.control(Cluster(objects, {now: "starting\n"}), Scope()).driver_log == "starting\n"


def stored(values: dict[str, Any] | None, version: str = "v26.3.3") -> str:
    body: dict[str, Any] = {
        "chart": {"metadata": {"version": version}},
        "info": {"last_deployed": "2026-11-21T10:00:00.123456789+01:00"},
    }
    body |= {} if values is None else {"config": values}
    return base64.b64encode(base64.b64encode(gzip.compress(msgspec.json.encode(body), mtime=0))).decode()


@pytest.mark.parametrize(
    ("values", "compared"),
    [
        ({"driver": {"enabled": True, "replicas": 3.0, "gone": None}, "list": [1, {"a": 2}]}, {"driver": True, "list": True}),
        ({"driver": {"enabled": False, "replicas": 3}, "list": [1, {"a": 2}]}, {"driver": False, "list": True}),
        ({"driver": {"enabled": True, "replicas": 3}, "operator": {}}, {"driver": True, "operator": False}),
        (None, {}),
    ],
)
def test_values_of_a_release_are_compared_with_the_planned_ones(values: dict[str, Any] | None, compared: dict[str, bool]) -> None:
    release = Release(
        name="x",
        namespace="y",
        version="v1",
        values=value_digests({"driver": {"enabled": True, "replicas": 3}, "list": [1, {"a": 2}]}),
    )
    written = [{"manager": "Helm", "time": "2026-11-21T09:00:01Z"}, {"manager": "kubectl-edit", "time": "2026-11-21T09:00:02Z"}]
    meta = {"name": "sh.helm.release.v1.x.v3", "labels": {"version": "3", "status": "deployed"}, "managedFields": written}
    secret = {"metadata": meta, "data": {"release": stored(values)}}
    revision = probe_charts.revision(Cluster({"/api/v1/namespaces/y/secrets": [secret]}), "y", "owner=helm,name=x", release.values)
    assert revision is not None
    assert (revision.number, revision.values, revision.manager) == (3, compared, "kubectl-edit")
    assert revision.deployed == pytest.approx(1795251600.123456)


def test_an_unreadable_release_tells_neither_values_nor_time() -> None:
    secret = {"metadata": {"name": "sh.helm.release.v1.x.v1", "labels": {"version": "1"}}, "data": {"release": "???"}}
    revision = probe_charts.revision(Cluster({"/api/v1/namespaces/y/secrets": [secret]}), "y", "owner=helm,name=x")
    assert revision is not None
    assert (revision.values, revision.deployed) == (None, 0.0)


# ---- validators ----------------------------------------------------------------------------------------------------------------


def validators(*labelled: str, nodes: tuple[str, ...] = ("gpu001", "gpu002", "guest1")) -> dict[str, bool]:
    """Return which of two expected nodes the gate finds validated, in a cluster whose validators run on the labelled nodes."""
    label, count = "nvidia.com/gpu.deploy.operator-validator", len(labelled)
    gpu = {
        "feature.node.kubernetes.io/pci-10de.present": "true",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.deploy.driver": "true",
    }
    counts = {"desiredNumberScheduled": count, "updatedNumberScheduled": count, "numberReady": count, "observedGeneration": 1}
    pod = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    cluster = Cluster(
        {
            "/api/v1/nodes": [
                {
                    "metadata": {"name": name, "labels": gpu | ({label: "true"} if name in labelled else {})},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}], "nodeInfo": {"kernelVersion": "6.8"}},
                }
                for name in nodes
            ],
            "/apis/apps/v1/namespaces/gpu-operator/daemonsets": [
                {
                    "metadata": {"name": "nvidia-operator-validator", "namespace": "gpu-operator", "generation": 1},
                    "spec": {"template": {"spec": {"containers": []}}},
                    "status": counts,
                }
            ],
            "/api/v1/namespaces/gpu-operator/pods": [
                {"metadata": {"name": f"validator-{name}"}, "spec": {"nodeName": name}, "status": pod} for name in labelled
            ],
        }
    )
    expected = ("gpu001", "gpu002")
    seen = probe.nodes(cluster, Scope(nodes=expected, now=0.0))
    verdict = gate.nodes(seen, NodesExpectation(nodes=expected))
    return {row.node: "no validator pod on this node" not in row.seen for row in verdict.nodes}


def test_a_validator_on_another_node_stands_for_no_expected_one() -> None:
    """Nodes of somebody else's group can be as many as the expected ones without a validator."""
    assert validators("gpu001", "guest1") == {"gpu001": True, "gpu002": False}
    assert validators("gpu001", "gpu002", "guest1") == {"gpu001": True, "gpu002": True}
