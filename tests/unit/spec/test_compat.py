"""Every rule with a spec that it passes and specs that it refuses, through the catalog's own releases."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from workflows import catalog, spec
from workflows.spec import compat
from workflows.stage_names import STAGES

BASE: dict[str, Any] = {
    "apiVersion": "bringup/v1",
    "kind": "Cluster",
    "name": "compat",
    "owner": "o",
    "revision": "1",
    "hosts": {"sv": {"role": "server", "ranges": "sv1"}, "gpu": {"role": "agent", "ranges": "gpu[1-2]", "gpu": True}},
    "os": {"distribution": "sles", "version": "15.7"},
    "accelerator": {"product": "H200"},
    "fabric": {"kind": "infiniband"},
    "scheduler": {"gang": "volcano"},
    "slurm": {"kind": "slinky"},
    "validation": {"nccl": {"inter_node_floor_gb_s": 300}},
}
POOL = {"ip_pool": {"subnet": "192.168.0.0/16"}}
NO_MTU: tuple[dict[str, Any], ...] = (
    {"kind": "none", "mtu": 9000},
    {"kind": "infiniband", "mtu": 4092, "driver": "operator"},
    {"kind": "roce", "mtu": 9000, "driver": "operator", "mode": "host_device", **POOL},
    {"kind": "infiniband", "mtu": 4092, "driver": "operator", "mode": "ipoib", "interfaces": ["ibs1"], **POOL},
)
"""Sections `fabric` whose MTU no stage sets."""
OWN_MTU = {"kind": "roce", "mtu": 9000, "driver": "operator", "mode": "macvlan", "interfaces": ["f0"], **POOL}
"""Section `fabric` whose MTU stage network_operator sets for pods."""
ATTACHED = {"kind": "roce", "mode": "sriov", "resource_name": "fast_nic", **POOL}
IDLE_FABRIC: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rails", {"kind": "none", "rails": ["mlx5_0"]}),
    ("ip_pool", {"kind": "none", **POOL}),
    ("ip_pool", {"kind": "infiniband", **POOL}),
    ("multus", {"kind": "infiniband", "multus": "operator"}),
    ("virtual_functions", {"kind": "infiniband", "mode": "host_device", "virtual_functions": 4, **POOL}),
    ("resource_name", ATTACHED | {"resource_name": "fast-nic"}),
    ("interfaces", ATTACHED | {"interfaces": ["f0", "f1"]}),
    ("interfaces", {"kind": "roce", "interfaces": ["f0", "f0"]}),
    ("device_ids", ATTACHED | {"device_ids": ["1021", "1021"]}),
    ("rails", {"kind": "roce", "rails": ["mlx5_0", "mlx5_1"]}),
)
"""Keys of the section fabric that nothing reads, or that no machine can fulfil, with the section."""
MIXED_FABRIC: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rails", {"kind": "infiniband", "nics_per_node": 1, "rails": ["mlx5_0", "ibp24s0"]}),
    ("interfaces", ATTACHED | {"nics_per_node": 1, "interfaces": ["ens1", "enp24s0"]}),
)
"""Names of devices and interfaces where machines of two vendors call the same NIC differently; each machine has one of them."""
UNDOING: tuple[tuple[str, Any], ...] = (
    ("gpu_operator.values.gfd.enabled", False),
    ("gpu_operator.values.clusterPolicy.deployCR", False),
    ("gpu_operator.values.gpuCluster.deployCR", True),
    ("gpu_operator.values.platform.openshift", True),
    ("gpu_operator.values.sandboxWorkloads.defaultWorkload", "vm-passthrough"),
    ("gpu_operator.values.mig.strategy", "both"),
    ("gpu_operator.values.driver.kernelModuleType", "nouveau"),
    ("gpu_operator.values.driver.version", "595.91.07"),
    ("slurm.values.nodesets.gpu.enabled", False),
    ("slurm.values.nodesets.gpu.scalingMode", "StatefulSet"),
    ("slurm.values.loginsets.slinky.replicas", 3),
    ("slurm.values.controller.persistence.enabled", False),
)
"""Values that undo what the spec says elsewhere, or that no cluster of RKE2 can run with."""
UNREACHABLE = (
    ("nccl.all_gather_floor_gb_s", 801),
    ("nccl.alltoall_floor_gb_s", 101),
    ("gpu_floors.gemm_tflops", 1979),
    ("gpu_floors.host_gb_s", 100),
    ("gpu_floors.peer_gb_s", 3600),
    ("gpu_floors.adapters_gb_s", 3200),
)
"""Floors above the peaks of two machines with 8 × H200 and 8 ports of 400 Gbit/s, as by a wrong unit or a figure with sparsity."""
REACHABLE = (
    ("nccl.all_gather_floor_gb_s", 340),
    ("nccl.alltoall_floor_gb_s", 79.1),
    ("gpu_floors.gemm_tflops", 700),
    ("gpu_floors.host_gb_s", 48),
    ("gpu_floors.peer_gb_s", 335),
    ("gpu_floors.adapters_gb_s", 350),
)
ONE_SMALL_MACHINE = {
    "hosts": BASE["hosts"]
    | {"small": {"role": "agent", "ranges": "l1", "gpu": True, "accelerator": {"product": "L40S", "per_node": 1}}}
}
"""Hosts with one more machine, whose only GPU NCCL joins with no other."""
FOREIGN_TAINTS = (
    ("dedicated=gpu:NoSchedule", "dedicated=ml:NoSchedule"),
    ("node.kubernetes.io/unschedulable:NoSchedule",),
    ("sunk.coreweave.com/lock=true:NoExecute",),
)
FOREIGN_LABELS = (
    ("bringup/group", "other"),
    ("kubernetes.io/hostname", "gpu"),
    ("nvidia.com/gpu.product", "NVIDIA-H200"),
    ("nvidia.com/mig.config", "all-1g.18gb"),
    ("nvidia.com/gpu.deploy.operands", "false"),
    ("nvidia.com/gpu.deploy.driver", "false"),
    ("kubernetes.io/os", "windows"),
    ("nvidia.com/gpu.workload.config", "vm-passthrough"),
)
OWN_FLAGS = (
    ("node-labels", "site/pool=a"),
    ("register-with-taints", "a=b:NoSchedule"),
    ("register-node", "false"),
    ("hostname-override", "gpu1"),
    ("node-ip", "10.10.1.1"),
    ("root-dir", "/data/kubelet"),
)
WRONG_FLAGS = (("topolgy-manager-policy", "none"), ("network-plugin", "cni"), ("read-only-port", "off"), ("sync-frequency", "30"))
GO_WORDS = (("fail-swap-on", "0"), ("protect-kernel-defaults", "True"), ("sync-frequency", "-1s"), ("port", "+10250"))
"""Flags with values that Go's packages strconv and time read."""
WRONG_FIELDS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("error", "maxPod", {"maxPod": 200}),
    ("error", "kubeReserved.cpu", {"kubeReserved": {"cpu": 2}}),
    ("error", "failSwapOn", {"failSwapOn": "false"}),
    ("error", "shutdownGracePeriod", {"shutdownGracePeriod": 30}),
    ("error", "shutdownGracePeriod", {"shutdownGracePeriod": "30"}),
    ("error", "clusterDomain", {"clusterDomain": ["cluster.local"]}),
    ("warning", "gpuSharing", {"gpuSharing": True}),
)
"""Fields of KubeletConfiguration that a real kubelet 1.34.4 ignored or did not start with."""
KUEUE = {"gang": "none", "quota": "kueue", "queues": [{"name": "q", "namespace": "a", "gpus": 8}]}
TRAEFIK = {"ingress_controller": "traefik"}
FLOATING_ADDRESS = {"registration_address": "10.10.0.10", "virtual_address": {"interface": "eth0"}}
SITE_IMAGE = {"check_image": "r.example.org/busybox:1.37.0"}
LOGIN = {"username": "u", "password": {"env": "PULL"}}
MIRROR = {"endpoints": ["https://m.example.org"]}
DIGEST = "sha256:" + "0" * 64
GATES = Path(__file__).parents[2] / "gates"
AIRGAP = {"registry": "r.example.org", "charts": "oci://r.example.org/charts"}
BY_ARGO_CD = {"mode": "argo_cd", "argo_cd": {"repo": "https://git.example.org/a.git", "revision": "v1", "project": "p"}}
SUNK = {
    "kind": "sunk",
    "repo": "oci://r.example.org/sunk",
    "version": "7.3.0",
}


def load(**sections: Any) -> spec.ClusterSpec:
    written = {key: value for key, value in (BASE | sections).items() if value is not None}
    return spec.load(json.dumps(written) + "\n")


def pinned(component: str, version: str) -> dict[str, Any]:
    return {component: {"version": version}}


def valued(component: str, **values: Any) -> dict[str, Any]:
    return {component: {"values": values}}


def dialled(address: str) -> dict[str, Any]:
    """The hosts, of which SSH dials the server by this address."""
    return BASE["hosts"] | {"sv": BASE["hosts"]["sv"] | {"addresses": {"start": address}}}


def dotted(names: str) -> dict[str, Any]:
    """The hosts, with these names of GPU machines."""
    return BASE["hosts"] | {"gpu": BASE["hosts"]["gpu"] | {"ranges": names}}


SPREAD = (("a", "10.10.0.254"), ("b", "10.10.1.9"), ("c", "10.20.0.1"), ("d", "fd00:10::1"))
CNIS = ("canal", "calico", "cilium", "flannel")
ENFORCED = {"distribution": "rocky", "version": "9.5", "selinux": "enforcing"}
MIRRORED = {"baseurl": "https://mirror.example.org/el9", "gpgkey": "https://mirror.example.org/public.key"}
NARROW = {"firewall": "keep", "firewall_networks": ["10.10.0.0/16"]}
AGENT_AT = BASE["hosts"] | {"gpu": BASE["hosts"]["gpu"] | {"addresses": {"start": "10.20.0.2"}}}
TWO_ENDPOINTS = {"docker.io": {"endpoints": ["https://10.42.3.3:5000", "https://m.example.org"]}}
FLOORS = {"intra_node_floor_gb_s": 10, "inter_node_floor_gb_s": 10}


MIG = {"mode": "mig", "profile": "1g.18gb"}
SLICED = {"mode": "time_slicing", "replicas": 4}
CONFIG = {"name": "CONTAINERD_CONFIG", "value": "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"}
SOCKET = {"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd/containerd.sock"}
GPU_VALUES = "overrides.gpu_operator.values"
OTHER_SOCKET = SOCKET | {"value": "/run/containerd/containerd.sock"}
TOOLKIT_ENV = f"{GPU_VALUES}.toolkit.env"
ENDPOINT = "rke2.kubelet_args.container-runtime-endpoint"
NO_CRDS = "overrides.cert_manager.values.crds.enabled"
UNVERIFIED_CRDS = ("warning", "overrides.prometheus_operator_crds.values")
SHARED = (MIG, SLICED, SLICED | {"mode": "mps"}, {"mode": "dra"})
SCRIPTS = {kind: {"10-check.sh": "#!/bin/sh\ntrue\n"} for kind in ("prolog", "epilog")}
TRAIN = [{"name": "train", "groups": "gpu"}]
KEYS = ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIC0 ada@example.org"]
DATABASE = {"host": "mariadb.slurm.svc", "password": {"env": "SLURM_DB"}}
ONE_GPU_EACH = {"accelerator": {"product": "H200", "per_node": 1}}
ONE_GPU_MACHINE = BASE["hosts"] | {"gpu": BASE["hosts"]["gpu"] | {"ranges": "gpu1"}}
HIGHLY_AVAILABLE = {
    "hosts": BASE["hosts"] | {"sv": {"role": "server", "ranges": "sv[1-3]", "addresses": {"start": "10.10.0.11"}}},
    "rke2": {"registration_address": "10.10.0.12"},
}


def pooled(subnet: str, mode: str = "ipoib", **pool: Any) -> dict[str, Any]:
    """A fabric with an address pool for pods."""
    interfaces = {"interfaces": ["ib0"]} if mode == "ipoib" else {}
    return {"fabric": {"kind": "infiniband", "mode": mode, **interfaces, "ip_pool": {"subnet": subnet} | pool}}


def floored(**floors: float) -> dict[str, Any]:
    return {"validation": {"nccl": {"inter_node_floor_gb_s": 300} | floors}}


def queued(*gpus: int) -> dict[str, Any]:
    """Quota of one queue for each number of GPUs."""
    queues = [{"name": f"q{index}", "namespace": "a", "gpus": number} for index, number in enumerate(gpus)]
    return {"gang": "none", "quota": "kueue", "queues": queues}


def nested(path: str, value: Any) -> dict[str, Any]:
    """Overrides with a value at a dotted path."""
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


def measured(path: str, value: float) -> dict[str, Any]:
    """Section validation with one floor at a dotted path."""
    section, _, key = path.partition(".")
    nccl = {"inter_node_floor_gb_s": 300}
    return {"validation": {"nccl": nccl | {key: value}} if section == "nccl" else {"nccl": nccl, section: {key: value}}}


def marked(**fields: Any) -> dict[str, Any]:
    """Hosts whose GPU machines have labels, taints or overrides."""
    return {"hosts": BASE["hosts"] | {"gpu": BASE["hosts"]["gpu"] | fields}}


def kubelet(flag: str, value: str) -> dict[str, Any]:
    return {"rke2": {"kubelet_args": {flag: value}}}


def configured(**fields: Any) -> dict[str, Any]:
    """Fields of KubeletConfiguration."""
    return {"rke2": {"kubelet_config": fields}}


def behind(field: str, way: str) -> dict[str, Any]:
    """Hosts whose servers alone are reached through something."""
    return {**BASE["hosts"], "sv": BASE["hosts"]["sv"] | {field: way}}


def tainted(*groups: str) -> dict[str, Any]:
    """Hosts of which some groups keep away what does not tolerate their taint."""
    return {name: group | ({"taints": ["site=own:NoSchedule"]} if name in groups else {}) for name, group in BASE["hosts"].items()}


def delivered(**fields: Any) -> dict[str, Any]:
    """Delivery by Argo CD with these fields."""
    argo = {"repo": "https://g.example.org/a", "revision": "v1", "project": "p"} | fields
    return {"delivery": {"mode": "argo_cd", "argo_cd": argo}}


def found(rule: str, **sections: Any) -> list[tuple[str, str]]:
    issues = catalog.check(load(**sections), catalog.load())
    return [(issue.severity, issue.path) for issue in issues if issue.rule == rule]


def test_the_base_has_no_issue_but_charts_without_digest_and_tests_that_slurm_rules_out() -> None:
    one, *untested = catalog.check(load(), catalog.load())
    assert [(issue.rule, issue.severity, issue.path) for issue in untested] == [("P29", "warning", "slurm.kind")] * 2
    assert (one.rule, one.severity, one.path) == ("P15", "warning", "overrides")
    assert one.problem.endswith("network_operator, volcano, slurm_operator_crds, slurm_operator, slurm")


REFUSED: list[tuple[str, dict[str, Any], tuple[str, str]]] = [
    ("P01", {"rke2": {"version": "v1.32.9+rke2r1"}}, ("error", "rke2.version")),
    ("P01", {"rke2": {"version": "v1.37.0+rke2r1"}}, ("error", "rke2.version")),
    ("P02", {"rke2": {"version": "v1.36.3+rke2r1"}}, ("warning", "rke2.version")),
    ("P02", {"os": {"distribution": "ubuntu"}}, ("warning", "os.distribution")),
    (
        "P03",
        {"sharing": {"mode": "dra"}, "rke2": {"version": "v1.34.1+rke2r1"}},
        ("error", "rke2.version"),
    ),
    (
        "P03",
        {"sharing": {"mode": "dra"}, "accelerator": {"product": "H200", "driver": "host", "driver_version": "535.309.01"}},
        ("error", "accelerator.driver_version"),
    ),
    (
        "P04",
        {
            "sharing": {"mode": "dra"},
            "accelerator": {"product": "H200", "operator_mode": "gpu_cluster"},
            "overrides": pinned("gpu_operator", "v26.3.3"),
        },
        ("error", "overrides.gpu_operator.version"),
    ),
    (
        "P04",
        {
            "sharing": {"mode": "dra"},
            "accelerator": {"product": "H200", "operator_mode": "gpu_cluster"},
            "overrides": valued("gpu_operator", clusterPolicy={"deployCR": True}),
        },
        ("error", f"{GPU_VALUES}.clusterPolicy.deployCR"),
    ),
    (
        "P04",
        {"sharing": {"mode": "dra"}, "overrides": pinned("gpu_operator", "v26.7.0")},
        ("warning", "overrides.gpu_operator.version"),
    ),
    (
        "P05",
        {
            "accelerator": {"product": "H200", "driver": "host", "driver_version": "580.126.20"},
            "overrides": valued("gpu_operator", driver={"enabled": True}),
        },
        ("error", f"{GPU_VALUES}.driver.enabled"),
    ),
    (
        "P05",
        {"overrides": valued("gpu_operator", driver={"enabled": False})},
        ("error", f"{GPU_VALUES}.driver.enabled"),
    ),
    ("P06", {"accelerator": {"product": "H200", "driver_version": "550.54.15"}}, ("error", "accelerator.driver_version")),
    (
        "P06",
        {"accelerator": {"product": "H200", "driver": "host", "driver_version": "570.133.20"}},
        ("warning", "accelerator.driver_version"),
    ),
    (
        "P06",
        {
            "accelerator": {"product": "B200", "driver": "host", "driver_version": "570.124.06"},
            "validation": {"nccl": {"inter_node_floor_gb_s": 300, "intra_node_floor_gb_s": 700}},
        },
        ("error", "accelerator.driver_version"),
    ),
    (
        "P06",
        {
            "accelerator": {"product": "H200", "driver": "host", "driver_version": "570.133.20"},
            "sharing": {"mode": "mig", "profile": "1g.18gb", "strategy": "mixed"},
        },
        ("error", "accelerator.driver_version"),
    ),
    (
        "P06",
        {"accelerator": {"product": "H200", "driver_version": "535.309.01"}, "sharing": {"mode": "mig", "profile": "1g.18gb"}},
        ("warning", "accelerator.driver_version"),
    ),
    ("P07", {"overrides": valued("network_operator", nfd={"enabled": True})}, ("error", "overrides")),
    ("P07", {"overrides": valued("gpu_operator", nfd={"enabled": False})}, ("error", "overrides")),
    ("P07", {"overrides": valued("gpu_operator", devicePlugin={"enabled": False})}, ("error", "overrides")),
    (
        "P07",
        {"sharing": {"mode": "dra"}, "overrides": valued("gpu_operator", devicePlugin={"enabled": True})},
        ("error", "overrides"),
    ),
    (
        "P07",
        {"slurm": SUNK, "overrides": {"sunk": {"values": {"nvidia-device-plugin": {"enabled": True}}}}},
        ("error", "overrides"),
    ),
    (
        "P07",
        {"fabric": {"kind": "infiniband", "multus": "operator"}, "rke2": {"cni": ["multus", "canal"]}},
        ("error", "fabric.multus"),
    ),
    ("P07", {"fabric": {"kind": "infiniband", "multus": "rke2"}}, ("error", "fabric.multus")),
    ("P08", {"rke2": {"version": "v1.36.3+rke2r1"}}, ("error", "rke2.version")),
    ("P08", {"rke2": {"version": "v1.36.3+rke2r1"}, "scheduler": {"gang": "kai"}}, ("error", "rke2.version")),
    ("P08", {"scheduler": KUEUE, "overrides": pinned("kueue", "0.14.4")}, ("error", "overrides.kueue.version")),
    (
        "P08",
        {
            "rke2": {"version": "v1.36.3+rke2r1"},
            "scheduler": None,
            "delivery": {"mode": "argo_cd", "argo_cd": {"repo": "https://g.example.org/a", "revision": "v1", "project": "p"}},
        },
        ("error", "delivery.argo_cd.version"),
    ),
    (
        "P08",
        {
            "delivery": {
                "mode": "argo_cd",
                "argo_cd": {"repo": "https://g.example.org/a", "revision": "v1", "project": "p", "version": "2.14"},
            }
        },
        ("warning", "delivery.argo_cd.version"),
    ),
    ("P08", delivered(version="3.5"), ("error", "delivery.argo_cd.version")),
    ("P09", {"sharing": {"mode": "mig", "profile": "1g.10gb"}}, ("error", "sharing.profile")),
    (
        "P09",
        {
            "accelerator": {"product": "L40S"},
            "sharing": {"mode": "mig", "profile": "1g.10gb"},
            "validation": {"nccl": {"inter_node_floor_gb_s": 20, "intra_node_floor_gb_s": 20}},
        },
        ("error", "sharing.mode"),
    ),
    (
        "P10",
        {
            "sharing": {"mode": "mig", "profile": "1g.18gb"},
            "scheduler": KUEUE | {"flavor": {"node_labels": {"nvidia.com/gpu.product": "NVIDIA-H200"}}},
        },
        ("error", "scheduler.flavor.node_labels"),
    ),
    (
        "P10",
        {
            "sharing": {"mode": "time_slicing", "replicas": 4},
            "scheduler": KUEUE | {"flavor": {"covered_resources": ["nvidia.com/gpu"]}},
        },
        ("error", "scheduler.flavor.covered_resources"),
    ),
    ("P10", {"sharing": {"mode": "dra"}, "scheduler": KUEUE}, ("warning", "scheduler.quota")),
    (
        "P10",
        {
            "sharing": {"mode": "dra"},
            "accelerator": {"product": "H200", "operator_mode": "gpu_cluster"},
            "scheduler": KUEUE,
        },
        ("error", "scheduler.flavor.node_labels"),
    ),
    ("P10", {"scheduler": KUEUE | {"gang": "volcano"}}, ("warning", "scheduler.quota")),
    (
        "P11",
        {"rke2": {"version": "v1.33.4+rke2r1"}, "overrides": valued("gpu_operator", cdi={"nriPluginEnabled": True})},
        ("error", f"{GPU_VALUES}.cdi.nriPluginEnabled"),
    ),
    (
        "P12",
        {"slurm": SUNK, "overrides": valued("gpu_operator", daemonsets={"tolerations": []})},
        ("error", f"{GPU_VALUES}.daemonsets.tolerations"),
    ),
    ("P12", {"slurm": {"kind": "slinky", "version": "1.1.0"}}, ("warning", "slurm.version")),
    (
        "P13",
        {"delivery": {"mode": "argo_cd", "argo_cd": {"repo": "https://g.example.org/a", "revision": "HEAD", "project": "p"}}},
        ("error", "delivery.argo_cd.revision"),
    ),
    ("P13", delivered(revision="release", branch="release"), ("error", "delivery.argo_cd.revision")),
    ("P13", delivered(revision="refs/heads/release"), ("error", "delivery.argo_cd.revision")),
    ("P13", delivered(revision="0123abc"), ("error", "delivery.argo_cd.revision")),
    ("P13", {"validation": BASE["validation"] | {"image": "r.example.org:5000/nccl"}}, ("error", "validation.image")),
    ("P13", {"validation": BASE["validation"] | {"image": "r.example.org/nccl:latest"}}, ("error", "validation.image")),
    ("P13", {"check_image": "r.example.org/busybox:latest"}, ("error", "check_image")),
    (
        "P13",
        {"overrides": valued("slurm", controller={"slurmctld": {"image": {"tag": "latest"}}})},
        ("error", "overrides.slurm.values.controller.slurmctld.image.tag"),
    ),
    ("P14", {"overrides": pinned("gpu_operator", "v26.3.1")}, ("error", "overrides.gpu_operator.version")),
    ("P14", {"overrides": pinned("gpu_operator", "v25.10.1")}, ("warning", "overrides.gpu_operator.version")),
    ("P15", {"airgap": AIRGAP, "rke2": {"registry_mirror": "r.example.org"}}, ("error", "airgap.digests.gpu_operator")),
    ("P15", {"airgap": AIRGAP}, ("error", "rke2.registry_mirror")),
    ("P15", {}, ("warning", "overrides")),
    (
        "P15",
        {
            "airgap": AIRGAP | {"digests": {"volcano": DIGEST}},
            "overrides": {"volcano": {"digest": "sha256:" + "1" * 64}},
        },
        ("error", "overrides.volcano.digest"),
    ),
    (
        "P12",
        {"overrides": valued("slurm", controller={"slurmctld": {"image": {"tag": "25.05-ubuntu24.04"}}})},
        ("error", "overrides.slurm.values.controller.slurmctld.image.tag"),
    ),
    (
        "P12",
        {"slurm": SUNK, "sharing": {"mode": "dra"}, "overrides": valued("dra_driver", kubeletPlugin={"tolerations": []})},
        ("error", "overrides.dra_driver.values.kubeletPlugin.tolerations"),
    ),
    ("P15", {"airgap": AIRGAP}, ("warning", "stages")),
    ("P16", kubelet("topology-manager-policy", "single-numa-node"), ("error", "rke2.kubelet_args.topology-manager-policy")),
    (
        "P16",
        kubelet("topology-manager-policy", "single-numa-node")
        | {"accelerator": {"product": "L40S", "per_node": 4}, "validation": {"nccl": FLOORS}},
        ("warning", "rke2.kubelet_args.topology-manager-policy"),
    ),
    ("P16", kubelet("topology-manager-policy", "strict"), ("error", "rke2.kubelet_args.topology-manager-policy")),
    ("P16", kubelet("topology-manager-scope", "node"), ("error", "rke2.kubelet_args.topology-manager-scope")),
    ("P16", kubelet("cpu-manager-policy", "static"), ("error", "rke2.kubelet_args.cpu-manager-policy")),
    (
        "P16",
        {"rke2": {"kubelet_args": {"cpu-manager-policy": "static", "kube-reserved": "memory=2Gi,cpu=0"}}},
        ("error", "rke2.kubelet_args.cpu-manager-policy"),
    ),
    ("P16", kubelet("memory-manager-policy", "static"), ("error", "rke2.kubelet_args.memory-manager-policy")),
    ("P16", configured(topologyManagerPolicy="single-numa-node"), ("error", "rke2.kubelet_config.topologyManagerPolicy")),
    ("P16", configured(topologyManagerPolicy="strict"), ("error", "rke2.kubelet_config.topologyManagerPolicy")),
    ("P16", configured(topologyManagerScope=["pod"]), ("error", "rke2.kubelet_config.topologyManagerScope")),
    ("P16", configured(memoryManagerPolicy="static"), ("error", "rke2.kubelet_config.memoryManagerPolicy")),
    ("P16", configured(cpuManagerPolicy="static"), ("error", "rke2.kubelet_config.cpuManagerPolicy")),
    (
        "P16",
        configured(cpuManagerPolicy="static", kubeReserved={"memory": "2Gi", "cpu": "0"}),
        ("error", "rke2.kubelet_config.cpuManagerPolicy"),
    ),
    (
        "P16",
        {
            "rke2": {
                "kubelet_args": {"topology-manager-policy": "single-numa-node"},
                "kubelet_config": {"topologyManagerPolicy": "none"},
            }
        },
        ("error", "rke2.kubelet_args.topology-manager-policy"),
    ),
    ("P17", {"rke2": {"version": "v1.36.3+rke2r1"}}, ("warning", "rke2.ingress_controller")),
    ("P20", {"ssh": {"jump_host": "ops@b1"}}, ("warning", "target.server")),
    ("P20", {"ssh": {"http_proxy": "http://proxy:3128"}}, ("warning", "target.server")),
    ("P20", {"hosts": behind("jump_host", "b1,b2")}, ("warning", "target.server")),
    ("P20", {"hosts": behind("http_proxy", "http://proxy:3128")}, ("warning", "target.server")),
    *(("P18", {"os": {"distribution": name, "version": "9.5"}}, ("warning", "os.selinux")) for name in compat.system.ENFORCING),
    ("P18", {"os": {"distribution": "debian", "version": "12", "selinux": "enforcing"}}, ("error", "os.selinux")),
    ("P18", {"os": ENFORCED, "rke2": {"artifacts": "/srv/rke2"}}, ("warning", "os.rke2_repository")),
    (
        "P18",
        {"os": ENFORCED | {"rke2_repository": {"baseurl": MIRRORED["baseurl"]}}, "airgap": AIRGAP},
        ("warning", "os.rke2_repository"),
    ),
    ("P18", {"os": ENFORCED | {"selinux": "permissive", "rke2_repository": MIRRORED}}, ("error", "os.rke2_repository")),
    ("P18", {"os": {"rke2_repository": {"write": False}}}, ("error", "os.rke2_repository")),
    *(("P19", {"os": {"firewall": "keep"}, "rke2": {"cni": name}}, ("warning", "os.firewall")) for name in ("canal", "calico")),
    ("P18", {"os": {"distribution": "sles", "version": "15.6", "selinux": "enforcing"}}, ("error", "os.selinux")),
    *(("P21", {"os": {"firewall": "keep"}, "rke2": {"cni": name}}, ("warning", "os.firewall_networks")) for name in CNIS),
    ("P21", {"os": NARROW, "hosts": dialled("198.51.100.7")}, ("warning", "os.firewall_networks")),
    ("P22", {"hosts": dialled("fd00:10::11")}, ("warning", "hosts.sv.addresses")),
    ("P24", {"hosts": tainted("sv", "gpu")}, ("warning", "rke2.ingress_controller")),
    ("P24", {"hosts": tainted("sv"), "slurm": SUNK}, ("warning", "rke2.ingress_controller")),
    ("P23", {"rke2": {"images": ["canal"]}}, ("warning", "rke2.images")),
    ("P23", {"rke2": {"images": ["all"], "cni": ["multus", "canal"]}}, ("warning", "rke2.images")),
    ("P23", {"rke2": {"images": ["core", "canal"], "cni": "cilium"}}, ("warning", "rke2.images")),
    ("P23", {"rke2": {"images": ["all"], "ingress_controller": "traefik"}}, ("warning", "rke2.images")),
    (
        "P23",
        {"rke2": {"version": "v1.36.3+rke2r1", "images": ["all"], "ingress_controller": "ingress-nginx"}},
        ("warning", "rke2.images"),
    ),
    ("P23", {"rke2": {"images": ["all"], "registries": {"*": LOGIN}}}, ("warning", "check_image")),
    ("P23", {"rke2": {"images": ["core"], "cni": "canal", "registries": {"*": LOGIN}}}, ("warning", "rke2.images")),
    ("P23", {"rke2": {"artifacts": "/srv/rke2"}}, ("warning", "check_image")),
    ("P23", {"rke2": {"artifacts": "/srv/rke2", "images": ["core", "canal"]}}, ("warning", "check_image")),
    ("P23", {"rke2": {"artifacts": "/srv/rke2"}, "check_image": "busybox:1.37.0"}, ("warning", "check_image")),
    ("P23", {"rke2": FLOATING_ADDRESS | {"artifacts": "/srv/rke2"}} | SITE_IMAGE, ("warning", "rke2.virtual_address.image")),
    (
        "P23",
        {"rke2": FLOATING_ADDRESS | {"artifacts": "/srv/rke2", "registries": {"docker.io": MIRROR}}},
        ("warning", "rke2.virtual_address.image"),
    ),
    ("P23", {"rke2": {"images": ["all", "checks.tar"]}}, ("error", "rke2.images")),
    (
        "P18",
        {"os": {"distribution": "rhel", "version": "9.6", "selinux": "enforcing", "apparmor": "enabled"}},
        ("error", "os.apparmor"),
    ),
    ("P33", {"overrides": valued("mpi_operator", replicas=2)}, ("error", "overrides.mpi_operator.values")),
    ("P33", {"overrides": valued("gpu_operator", drivr={"enabled": True})}, ("error", f"{GPU_VALUES}.drivr")),
    (
        "P33",
        {"overrides": valued("gpu_operator", node_feature_discovery={})},
        ("error", f"{GPU_VALUES}.node_feature_discovery"),
    ),
    (
        "P33",
        {"overrides": valued("gpu_operator", gdrcopy={"enabled": "false"})},
        ("error", f"{GPU_VALUES}.gdrcopy.enabled"),
    ),
    ("P33", {"overrides": valued("gpu_operator", driver=["x"])}, ("error", f"{GPU_VALUES}.driver")),
    ("P33", {"overrides": valued("volcano", custom={"frobnicate": 2})}, ("warning", "overrides.volcano.values")),
    ("P33", {"overrides": valued("prometheus_operator_crds", crds={"annotations": {}})}, UNVERIFIED_CRDS),
    (
        "P33",
        {"overrides": {"volcano": {"version": "1.16.0", "values": {"basics": {}}}}},
        ("warning", "overrides.volcano.values.basics"),
    ),
    (
        "P33",
        {"overrides": valued("slurm", nodesets={"gpu": {"slurmd": {"resourcs": {}}}})},
        ("error", "overrides.slurm.values.nodesets.gpu.slurmd.resourcs"),
    ),
    ("P34", {"overrides": valued("gpu_operator", toolkit={"env": [CONFIG]})}, ("error", TOOLKIT_ENV)),
    (
        "P34",
        {"overrides": valued("gpu_operator", toolkit={"env": [SOCKET | {"value": "/run/containerd/c.sock"}]})},
        ("error", TOOLKIT_ENV),
    ),
    ("P34", {"overrides": valued("gpu_operator", toolkit={"env": []})}, ("error", TOOLKIT_ENV)),
    (
        "P34",
        {"overrides": valued("gpu_operator", operator={"defaultRuntime": "crio"})},
        ("error", f"{GPU_VALUES}.operator.defaultRuntime"),
    ),
    (
        "P34",
        {"overrides": valued("gpu_operator", dcgm={"enabled": False})},
        ("error", f"{GPU_VALUES}.dcgm.enabled"),
    ),
    (
        "P34",
        {"sharing": MIG, "overrides": valued("gpu_operator", mig={"strategy": "mixed"})},
        ("error", f"{GPU_VALUES}.mig.strategy"),
    ),
    (
        "P34",
        {"sharing": SLICED, "overrides": valued("gpu_operator", devicePlugin={"config": {"default": "shared"}})},
        ("error", f"{GPU_VALUES}.devicePlugin.config.default"),
    ),
    (
        "P34",
        {"overrides": valued("local_path_provisioner", storageClass={"name": "fast"})},
        ("error", "overrides.local_path_provisioner.values.storageClass.name"),
    ),
    (
        "P34",
        {"overrides": valued("cert_manager", crds={"enabled": False})},
        ("error", NO_CRDS),
    ),
    (
        "P34",
        {"overrides": valued("slurm", controller={"extraConf": "MinJobAge=60"})},
        ("error", "overrides.slurm.values.controller.extraConf"),
    ),
    (
        "P34",
        {"overrides": valued("slurm", nodesets={"gpu": {"extraConf": "Weight=2"}})},
        ("error", "overrides.slurm.values.nodesets.gpu.extraConf"),
    ),
    (
        "P34",
        {"overrides": valued("slurm", configFiles={"cgroup.conf": "ConstrainCores=no\n# IgnoreSystemd=yes\n"})},
        ("error", "overrides.slurm.values.configFiles"),
    ),
    ("P34", kubelet("container-runtime-endpoint", "unix:///run/containerd/c.sock"), ("error", ENDPOINT)),
    ("P34", configured(clusterDNS=["10.43.0.11"]), ("error", "rke2.kubelet_config.clusterDNS")),
    ("P34", configured(staticPodPath="/etc/pods"), ("error", "rke2.kubelet_config.staticPodPath")),
    ("P12", {"slurm": SUNK | {"version": "8.3.0"}}, ("error", "slurm.version")),
    ("P25", {"rke2": {"cluster_cidr": "10.10.0.0/16"}, "hosts": dialled("10.10.0.11")}, ("error", "hosts.sv.addresses")),
    ("P25", {"rke2": {"registration_address": "10.43.7.7"}}, ("error", "rke2.registration_address")),
    ("P25", {"rke2": {"registration_address": "127.0.0.1"}}, ("error", "rke2.registration_address")),
    ("P25", {"os": {"dns": {"servers": ["10.43.0.53"]}}}, ("error", "os.dns.servers")),
    ("P25", {"os": {"dns": {"servers": ["127.0.0.53"]}}}, ("error", "os.dns.servers")),
    ("P25", {"os": {"time_servers": ["10.42.9.1"]}}, ("error", "os.time_servers")),
    ("P25", {"os": {"routes": [{"to": "10.42.128.0/17", "device": "fab0"}]}}, ("error", "os.routes[0].to")),
    ("P25", {"os": {"routes": [{"to": "10.99.0.0/16", "via": "10.43.0.1"}]}}, ("error", "os.routes[0].via")),
    ("P25", {"os": {"firewall": "keep", "firewall_networks": ["10.42.0.0/24"]}}, ("error", "os.firewall_networks")),
    ("P25", {"os": {"firewall": "keep", "firewall_networks": ["10.0.0.0/8"]}}, ("warning", "os.firewall_networks")),
    ("P25", {"proxy": {"http": "http://10.42.1.1:3128"}}, ("error", "proxy.http")),
    ("P25", {"ssh": {"jump_host": "ops@bastion,ops@10.43.0.9:2222"}}, ("error", "ssh.jump_host")),
    ("P25", {"rke2": {"registry_mirror": "10.42.3.3:5000/mirror"}}, ("error", "rke2.registry_mirror")),
    ("P25", {"rke2": {"cluster_cidr": "169.254.0.0/16"}}, ("error", "rke2.cluster_cidr")),
    ("P25", pooled("10.42.0.0/15"), ("error", "fabric.ip_pool.subnet")),
    ("P25", pooled("10.10.0.0/16") | {"hosts": dialled("10.10.0.11")}, ("error", "hosts.sv.addresses")),
    ("P25", HIGHLY_AVAILABLE, ("warning", "rke2.registration_address")),
    ("P25", {"rke2": {"registration_address": "10.20.0.2"}, "hosts": AGENT_AT}, ("error", "rke2.registration_address")),
    ("P25", {"rke2": {"registries": TWO_ENDPOINTS}}, ("error", "rke2.registries.docker.io.endpoints")),
    ("P26", pooled("192.168.0.0/27"), ("error", "fabric.ip_pool.subnet")),
    ("P26", pooled("192.168.0.0/16", mode="host_device", per_node_block=4), ("error", "fabric.ip_pool.per_node_block")),
    ("P26", pooled("192.168.0.0/16", gateway="192.168.255.255"), ("error", "fabric.ip_pool.gateway")),
    ("P26", {"rke2": {"cluster_cidr": "96.0.0.0/7"}}, ("error", "rke2.cluster_cidr")),
    ("P26", {"rke2": {"service_cidr": "172.0.0.0/8"}}, ("error", "rke2.service_cidr")),
    ("P26", {"rke2": {"service_cidr": "10.43.0.0/29"}}, ("error", "rke2.service_cidr")),
    ("P26", kubelet("max-pods", "500"), ("error", "rke2.kubelet_args.max-pods")),
    ("P27", {"os": {"distribution": "ubuntu", "version": "18.04"}}, ("error", "os.version")),
    ("P27", {"os": {"distribution": "ubuntu", "version": "24.10"}}, ("warning", "os.version")),
    ("P27", {"os": {"distribution": "debian"}}, ("error", "os.version")),
    ("P27", {"os": {"distribution": "rocky", "version": "7.9"}}, ("error", "os.version")),
    ("P27", {"rke2": {"version": "v1.35.99+rke2r1"}}, ("warning", "rke2.version")),
    ("P27", {"rke2": {"version": "v1.35.7-rc2+rke2r1"}}, ("warning", "rke2.version")),
    ("P28", floored(intra_node_floor_gb_s=901), ("error", "validation.nccl.intra_node_floor_gb_s")),
    ("P28", floored(inter_node_floor_gb_s=2800), ("error", "validation.nccl.inter_node_floor_gb_s")),
    ("P28", floored(inter_node_floor_gb_s=401), ("warning", "validation.nccl.inter_node_floor_gb_s")),
    ("P28", {"sharing": MIG}, ("error", "validation.nccl.inter_node_floor_gb_s")),
    (
        "P28",
        {"fabric": None, "validation": {"nccl": {"inter_node_floor_gb_s": 901}}},
        ("error", "validation.nccl.inter_node_floor_gb_s"),
    ),
    (
        "P28",
        {"accelerator": {"product": "H200", "per_node": 1}, "validation": {"nccl": FLOORS}},
        ("error", "validation.nccl.intra_node_floor_gb_s"),
    ),
    ("P28", {"fabric": None, "validation": {"ib_write_bw_floor_gbit_s": 300}}, ("error", "validation.ib_write_bw_floor_gbit_s")),
    ("P29", {"sharing": MIG}, ("warning", "sharing.mode")),
    ("P29", {"hosts": ONE_GPU_MACHINE}, ("warning", "hosts")),
    ("P29", {"accelerator": {"product": "H200", "per_node": 1}}, ("warning", "accelerator.per_node")),
    ("P29", {"slurm": SUNK}, ("warning", "slurm.kind")),
    ("P29", {"sharing": {"mode": "dra"}, "slurm": None}, ("warning", "sharing.mode")),
    ("P29", {"sharing": SLICED | {"replicas": 40}, "slurm": None}, ("warning", "sharing.replicas")),
    *(
        ("P30", {"sharing": sharing}, ("error", "slurm.kind"))
        for sharing in (MIG, SLICED, SLICED | {"mode": "mps"}, {"mode": "dra"})
    ),
    ("P31", {"scheduler": queued(17)}, ("error", "scheduler.queues")),
    ("P31", {"scheduler": queued(9, 8)}, ("error", "scheduler.queues")),
    ("P31", {"scheduler": queued(0, 0)}, ("error", "scheduler.queues")),
    ("P31", {"scheduler": queued(65), "sharing": SLICED, "slurm": None}, ("error", "scheduler.queues")),
    ("P32", {"slurm": {"kind": "none", "partitions": TRAIN}}, ("error", "slurm.partitions")),
    ("P32", {"slurm": {"partitions": TRAIN}}, ("error", "slurm.partitions")),
    ("P32", {"slurm": {"kind": "none", "accounting": DATABASE}}, ("error", "slurm.accounting")),
    (
        "P32",
        {"slurm": {"kind": "slinky", "login": {"replicas": 0, "authorized_keys": KEYS}}},
        ("error", "slurm.login.authorized_keys"),
    ),
    ("P32", {"slurm": SUNK | {"license": {"env": "SUNK_LICENSE"}}}, ("error", "slurm.license")),
    ("P32", {"slurm": SUNK | {"accounting": DATABASE}}, ("error", "slurm.accounting")),
    ("P32", {"slurm": SUNK | {"login": {"authorized_keys": KEYS}}}, ("error", "slurm.login.authorized_keys")),
    ("P32", {"slurm": SUNK | {"partitions": [*TRAIN, TRAIN[0] | {"name": "b"}]}}, ("error", "slurm.partitions[1].groups")),
    ("P32", {"slurm": SUNK | {"partitions": [{"name": "a", "groups": ["gpu", "sv"]}]}}, ("error", "slurm.partitions[0].groups")),
    ("P32", {"slurm": SUNK | {"partitions": [TRAIN[0] | {"name": "a_b"}]}}, ("error", "slurm.partitions[0].name")),
    ("P32", {"slurm": {"kind": "slinky", "qos": [{"name": "a"}]}}, ("error", "slurm.qos")),
    ("P32", {"slurm": {"kind": "slinky", "topology": "tree"}}, ("error", "slurm.topology")),
    ("P32", {"slurm": {"kind": "slinky", "pyxis": "privileged"}}, ("error", "slurm.pyxis")),
    ("P32", {"slurm": SUNK | {"job_metrics": True}}, ("error", "slurm.job_metrics")),
    ("P32", {"slurm": {"kind": "slinky", "credentials": {"file": "./docker.json"}}}, ("error", "slurm.credentials")),
    (
        "P32",
        {"slurm": SUNK | {"repo": "https://c.example.org", "credentials": {"file": "./docker.json"}}},
        ("error", "slurm.credentials"),
    ),
    ("P32", {"slurm": SUNK | {"tokens": [{"user": "slurm"}]}}, ("error", "slurm.tokens")),
    (
        "P37",
        {"slurm": SUNK | {"home": {"server": "nfs.storage.svc.cluster.local", "path": "/a"}}},
        ("warning", "slurm.home.server"),
    ),
    ("P32", {"slurm": SUNK | {"layout": "wrapper"}}, ("error", "slurm.layout")),
    ("P32", {"slurm": {"kind": "slinky", "layout": "wrapper"}}, ("error", "slurm.layout")),
    ("P43", {"hosts": dotted("10.20.0.[1-2]")}, ("error", "hosts")),
    ("P43", {"hosts": dotted("a.rack[1-2].example.org")}, ("error", "hosts")),
    ("P32", {"slurm": {"kind": "slinky", **SCRIPTS}}, ("error", "slurm.epilog.10-check.sh")),
    ("P32", {"slurm": {"kind": "slinky", "config_files": {"a.conf": "b"}}}, ("error", "slurm.config_files")),
    ("P38", {"slurm": SUNK | {"layout": "wrapper"}, "delivery": BY_ARGO_CD}, ("warning", "slurm.layout")),
    *(("P39", {"fabric": fabric}, ("warning", "fabric.mtu")) for fabric in NO_MTU),
    ("P39", {"fabric": {"kind": "infiniband", "mtu": 4092}, "stages": ["rke2", "network_operator"]}, ("warning", "fabric.mtu")),
    ("P36", {"hosts": tainted("sv", "gpu")}, ("error", "hosts")),
    (
        "P36",
        {"hosts": tainted("gpu"), "overrides": valued("gpu_operator", daemonsets={"tolerations": []})},
        ("error", f"{GPU_VALUES}.daemonsets.tolerations"),
    ),
    *(("P40", {"fabric": fabric}, ("error", f"fabric.{key}")) for key, fabric in IDLE_FABRIC),
    *(("P40", {"fabric": fabric}, ("warning", f"fabric.{key}")) for key, fabric in MIXED_FABRIC),
    ("P40", {"fabric": ATTACHED | {"rails": ["mlx5_0", "mlx5_1"], "nics_per_node": 2}}, ("warning", "fabric.interfaces")),
    *(("P34", kubelet(flag, value), ("error", f"rke2.kubelet_args.{flag}")) for flag, value in OWN_FLAGS),
    ("P34", configured(registerNode=False), ("error", "rke2.kubelet_config.registerNode")),
    (
        "P34",
        kubelet("register-with-taints", "node.cilium.io/agent-not-ready=true:NoExecute") | {"hosts": tainted("gpu")},
        ("error", "rke2.kubelet_args.register-with-taints"),
    ),
    (
        "P34",
        {"overrides": valued("gpu_operator", driver={"version": DIGEST})},
        ("error", f"{GPU_VALUES}.driver.version"),
    ),
    *(("P41", kubelet(flag, value), ("error", f"rke2.kubelet_args.{flag}")) for flag, value in WRONG_FLAGS),
    (
        "P41",
        {"rke2": {"version": "v1.36.3+rke2r1", "kubelet_args": {"quite-another": "1"}}},
        ("warning", "rke2.kubelet_args.quite-another"),
    ),
    (
        "P41",  # a newer minor may have fields that resemble those of others
        {"rke2": {"version": "v1.36.3+rke2r1", "kubelet_config": {"imageMinimumGCAges": "2m"}}},
        ("warning", "rke2.kubelet_config.imageMinimumGCAges"),
    ),
    *(("P41", configured(**fields), (severity, f"rke2.kubelet_config.{path}")) for severity, path, fields in WRONG_FIELDS),
    *(("P34", {"overrides": nested(path, value)}, ("error", f"overrides.{path}")) for path, value in UNDOING),
    (
        "P34",
        {
            "accelerator": {"product": "H200", "driver_version": "580.126.20"},
            "overrides": nested("gpu_operator.values.driver", {"version": "595", "usePrecompiled": True}),
        },
        ("error", f"{GPU_VALUES}.driver.version"),
    ),
    *(("P28", measured(path, value), ("error", f"validation.{path}")) for path, value in UNREACHABLE),
    ("P28", measured("gpu_floors.adapters_gb_s", 10) | {"fabric": None}, ("error", "validation.gpu_floors.adapters_gb_s")),
    ("P28", measured("gpu_floors.gemm_tflops", 700) | ONE_SMALL_MACHINE, ("error", "validation.gpu_floors.gemm_tflops")),
    ("P28", measured("gpu_floors.gemm_tflops", 10) | {"sharing": MIG}, ("error", "validation.gpu_floors.gemm_tflops")),
    ("P28", measured("gpu_floors.peer_gb_s", 10) | ONE_GPU_EACH, ("error", "validation.gpu_floors.peer_gb_s")),
    (
        "P28",
        {"hosts": ONE_GPU_MACHINE, "validation": {"nccl": {"alltoall_floor_gb_s": 10}}},
        ("error", "validation.nccl.alltoall_floor_gb_s"),
    ),
    *(("P42", marked(taints=[*taints]), ("error", "hosts.gpu.taints")) for taints in FOREIGN_TAINTS),
    *(("P42", marked(labels={key: value}), ("error", f"hosts.gpu.labels.{key}")) for key, value in FOREIGN_LABELS),
    (
        "P42",
        marked(overrides={"gpu1": {"labels": {"bringup/group": "other"}}}),
        ("error", "hosts.gpu.overrides.gpu1.labels.bringup/group"),
    ),
]

ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("P01", {"rke2": {"version": "v1.33.13+rke2r2"}}),
    ("P02", {"rke2": {"version": "v1.35.7+rke2r1"}}),
    ("P02", {"fabric": None, "os": {"distribution": "ubuntu"}}),
    ("P03", {"sharing": {"mode": "dra"}, "rke2": {"version": "v1.34.2+rke2r1"}}),
    ("P04", {"sharing": {"mode": "dra"}}),
    ("P04", {"sharing": {"mode": "dra"}, "accelerator": {"product": "H200", "operator_mode": "gpu_cluster"}}),
    ("P05", {"accelerator": {"product": "H200", "driver": "host", "driver_version": "580.126.20"}}),
    ("P06", {"accelerator": {"product": "H200", "driver_version": "595.91.07"}}),
    ("P07", {"fabric": {"kind": "infiniband", "multus": "rke2"}, "rke2": {"cni": ["multus", "canal"]}}),
    ("P07", {"sharing": {"mode": "dra"}}),
    ("P07", {"slurm": SUNK}),
    ("P08", {"scheduler": KUEUE}),
    ("P08", delivered(version="3.4.4")),
    ("P08", delivered(version="3.5", install=False)),
    ("P08", delivered(version="3.5") | {"overrides": pinned("argo_cd", "11.0.0")}),
    ("P09", {"sharing": {"mode": "mig", "profile": "1g.18gb"}}),
    (
        "P10",
        {
            "sharing": {"mode": "mig", "profile": "1g.18gb"},
            "scheduler": KUEUE | {"flavor": {"node_labels": {"nvidia.com/gpu.product": "NVIDIA-H200-MIG-1g.18gb"}}},
        },
    ),
    ("P10", {"sharing": {"mode": "time_slicing", "replicas": 4}, "scheduler": KUEUE}),
    ("P11", {"rke2": {"version": "v1.33.5+rke2r1"}, "overrides": valued("gpu_operator", cdi={"nriPluginEnabled": True})}),
    ("P12", {"slurm": SUNK}),
    ("P12", {"slurm": SUNK, "sharing": {"mode": "dra"}}),
    ("P12", {"overrides": valued("slurm", controller={"slurmctld": {"image": {"tag": "25.11-ubuntu24.04"}}})}),
    ("P13", {"validation": BASE["validation"] | {"image": f"r.example.org/nccl@{DIGEST}"}}),
    ("P13", {"check_image": f"r.example.org/busybox@{DIGEST}"}),
    ("P13", delivered(revision="0" * 40)),
    ("P13", delivered(revision="20261121")),
    ("P14", {"overrides": pinned("gpu_operator", "v26.3.3")}),
    (
        "P15",
        {
            "slurm": None,
            "validation": None,
            "stages": ["os_prep", "rke2", "base_services"],
            "approvals": None,
            "rke2": {"registry_mirror": "r.example.org"},
            "airgap": AIRGAP
            | {"digests": dict.fromkeys(("cert_manager", "local_path_provisioner", "prometheus_operator_crds"), DIGEST)},
        },
    ),
    ("P16", kubelet("topology-manager-policy", "restricted")),
    ("P16", kubelet("topology-manager-policy", "single-numa-node") | {"accelerator": {"product": "L40S", "per_node": 1}}),
    ("P16", kubelet("topology-manager-policy", "single-numa-node") | {"sharing": {"mode": "dra"}}),
    ("P16", {"rke2": {"kubelet_args": {"cpu-manager-policy": "static", "kube-reserved": "memory=2Gi,cpu=500m"}}}),
    ("P16", configured(topologyManagerPolicy="restricted", topologyManagerScope="pod", memoryManagerPolicy="None")),
    ("P16", configured(cpuManagerPolicy="static", reservedSystemCPUs="0-3")),
    ("P16", configured(cpuManagerPolicy="static", systemReserved={"cpu": "500m"})),
    ("P16", {"rke2": {"kubelet_args": {"cpu-manager-policy": "static"}, "kubelet_config": {"kubeReserved": {"cpu": "2"}}}}),
    (
        "P16",
        {
            "rke2": {
                "kubelet_args": {"topology-manager-policy": "none"},
                "kubelet_config": {"topologyManagerPolicy": "single-numa-node"},
            }
        },
    ),
    ("P17", {"rke2": {"version": "v1.36.3+rke2r1", "ingress_controller": "ingress-nginx"}}),
    ("P17", {"rke2": {"version": "v1.35.7+rke2r1"}}),
    ("P18", {"os": {"distribution": "rocky", "version": "9.5", "selinux": "enforcing"}}),
    ("P18", {"os": {"distribution": "rhel", "version": "10.0", "selinux": "permissive"}}),
    ("P18", {"os": ENFORCED | {"rke2_repository": MIRRORED}, "rke2": {"artifacts": "/srv/rke2"}}),
    ("P18", {"os": ENFORCED | {"rke2_repository": {"write": False}}, "rke2": {"artifacts": "/srv/rke2"}}),
    ("P20", {}),
    ("P20", {"ssh": {"jump_host": "ops@b1"}, "target": {"server": "https://127.0.0.1:6443"}}),
    ("P20", {"ssh": {"jump_host": "ops@b1"}, "stages": ["os_prep"]}),
    ("P18", {"os": {"distribution": "debian", "version": "12"}}),
    ("P18", {"os": {"distribution": "debian", "version": "12", "selinux": "permissive"}}),
    ("P19", {"os": {"firewall": "stop"}}),
    ("P21", {"os": NARROW, "hosts": dialled("10.10.0.11")}),
    ("P21", {"os": NARROW}),
    ("P21", {"os": {"firewall": "stop"}}),
    ("P22", {"hosts": dialled("10.10.0.11")}),
    ("P22", {"hosts": BASE["hosts"]}),
    ("P24", {"hosts": tainted("sv")}),
    ("P24", {"slurm": SUNK}),
    ("P24", {"hosts": tainted("sv", "gpu"), "rke2": {"ingress_controller": "none"}}),
    ("P23", {}),
    ("P23", {"rke2": {"cni": ["multus", "cilium"], "artifacts": "/srv/rke2"}} | SITE_IMAGE),
    ("P23", {"rke2": {"images": ["all"]}} | SITE_IMAGE),
    ("P23", {"rke2": {"images": ["all"], "ingress_controller": "ingress-nginx"}} | SITE_IMAGE),
    ("P23", {"rke2": {"images": ["core", "traefik", "multus", "cilium"], "cni": ["multus", "cilium"]} | TRAEFIK} | SITE_IMAGE),
    ("P23", {"rke2": {"version": "v1.36.3+rke2r1", "images": ["all"]} | TRAEFIK} | SITE_IMAGE),
    ("P23", {"rke2": FLOATING_ADDRESS | {"artifacts": "/srv/rke2", "images": ["checks.tar.zst"]}}),
    ("P23", {"rke2": FLOATING_ADDRESS | {"artifacts": "/srv/rke2", "registry_mirror": "r.example.org"}}),
    ("P23", {"rke2": {"images": ["core"], "cni": "cilium", "registries": {"docker.io": MIRROR}}}),
    ("P23", {"rke2": {"images": ["core"], "cni": "cilium", "registry_mirror": "r.example.org"}}),
    ("P19", {"os": {"firewall": "keep"}, "rke2": {"cni": ["multus", "cilium"]}}),
    ("P33", {}),
    ("P33", {"overrides": valued("gpu_operator", driver={"rdma": {"enabled": True}}, toolkit={"version": "v1.18.0"})}),
    ("P33", {"overrides": valued("gpu_operator", gfd=None)}),
    ("P33", {"overrides": valued("slurm", nodesets={"gpu": {"slurmd": {"args": ["-v"]}}})}),
    ("P33", {"sharing": {"mode": "dra"}, "accelerator": {"product": "H200", "operator_mode": "gpu_cluster"}}),
    ("P34", {"overrides": valued("gpu_operator", toolkit={"env": [SOCKET, {"name": "X", "value": "1"}]}, dcgm={"enabled": True})}),
    ("P34", {"overrides": valued("gpu_operator", toolkit={"enabled": False, "env": []})}),
    ("P34", {"sharing": SLICED, "slurm": None}),
    ("P34", {"overrides": valued("slurm", controller={"extraConfMap": {"MinJobAge": "60"}}, nodesets={"gpu": {"extraConf": ""}})}),
    ("P34", {"overrides": valued("slurm", configFiles={"cgroup.conf": "CgroupPlugin=cgroup/v2\n ignoresystemd = Yes\n"})}),
    ("P34", {"overrides": valued("slurm", configFiles={"cgroup.conf": "CgroupPlugin=disabled\n"})}),
    ("P25", {}),
    ("P25", {"os": {"routes": [{"to": "10.0.0.0/8", "via": "10.10.0.254"}]}, "hosts": dialled("10.10.0.11")}),
    (
        "P25",
        {"os": {"routes": [{"to": "192.168.64.0/18", "via": "192.168.0.1"}]}} | pooled("192.168.0.0/16", gateway="192.168.0.1"),
    ),
    ("P25", {"rke2": {"registration_address": "10.20.0.1"}, "hosts": AGENT_AT}),
    ("P25", {"slurm": {"kind": "slinky", "accounting": DATABASE | {"host": "10.43.0.77"}}}),
    ("P25", pooled("192.168.0.0/16") | {"hosts": dialled("10.10.0.11"), "os": NARROW}),
    ("P25", {"fabric": {"kind": "none", "ip_pool": {"subnet": "10.42.0.0/16"}}}),
    ("P26", pooled("192.168.0.0/25")),
    ("P26", pooled("192.168.0.0/16", mode="host_device", per_node_block=8)),
    ("P26", kubelet("max-pods", "250")),
    ("P26", {"rke2": {"cni": "calico", "kubelet_args": {"max-pods": "500"}}}),
    ("P27", {"os": {"distribution": "rocky", "version": "9.5"}}),
    ("P27", {"os": {"distribution": "debian", "version": "13"}}),
    ("P27", {"rke2": {"version": "v1.34.10+rke2r1"}}),
    ("P28", floored(intra_node_floor_gb_s=450, inter_node_floor_gb_s=400)),
    ("P28", {"sharing": MIG, "validation": None}),
    ("P28", {"stages": ["os_prep", "rke2"]}),
    ("P28", {"fabric": None, "validation": {"nccl": {"inter_node_floor_gb_s": 12}}}),
    ("P29", {"sharing": SLICED, "slurm": None}),
    ("P30", {"sharing": MIG, "validation": None, "slurm": {"kind": "slinky", "partitions": [{"name": "cpu", "groups": "sv"}]}}),
    ("P30", {"sharing": SLICED, "slurm": None}),
    ("P31", {"scheduler": queued(8, 8)}),
    ("P31", {"scheduler": queued(64), "sharing": SLICED, "slurm": None}),
    ("P31", {"scheduler": queued(200), "sharing": {"mode": "dra"}, "slurm": None}),
    ("P32", {"slurm": {"kind": "none"}}),
    ("P32", {"slurm": {"kind": "slinky", "partitions": TRAIN, "login": {"authorized_keys": KEYS}, "accounting": DATABASE}}),
    ("P32", {"slurm": SUNK | {"partitions": TRAIN}}),
    ("P32", {"slurm": SUNK | SCRIPTS}),
    ("P43", {"hosts": dotted("n[1-2].example.org")}),
    ("P43", {"hosts": dotted("10.20.0.[1-2]"), "slurm": SUNK}),
    ("P43", {"hosts": dotted("10.20.0.[1-2]"), "slurm": None}),
    ("P32", {"slurm": SUNK | {"qos": [{"name": "a"}], "pyxis": "profiles"}}),
    ("P32", {"slurm": {"kind": "slinky", "job_metrics": True, "tokens": [{"user": "slurm"}]}}),
    ("P37", {"slurm": SUNK | {"home": {"server": "10.10.0.5", "path": "/a"}}}),
    ("P38", {"slurm": SUNK, "delivery": BY_ARGO_CD}),
    ("P39", {"fabric": {"kind": "infiniband", "mtu": 4092}}),
    ("P39", {"fabric": {"kind": "infiniband", "driver": "operator"}}),
    ("P39", {"fabric": OWN_MTU}),
    ("P34", configured(registerNode=True, clusterDomain="cluster.local")),
    ("P34", kubelet("root-dir", "/var/lib/kubelet")),
    ("P34", kubelet("register-with-taints", "node.cilium.io/agent-not-ready=true:NoExecute")),
    ("P34", configured(registerWithTaints=[{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}])),
    *(
        ("P34", {"overrides": valued("slurm", configFiles={"cgroup.conf": f"ConstrainCores=yes\n{line}\n"})})
        for line in ("IgnoreSystemd=1", "IgnoreSystemdOnFailure=yes", "CgroupPlugin=cgroup/v1")
    ),
    (
        "P34",
        {
            "accelerator": {"product": "H200", "driver_version": "580.126.20"},
            "overrides": valued("gpu_operator", driver={"version": DIGEST}),
        },
    ),
    ("P34", {"overrides": valued("gpu_operator", mig={"strategy": "mixed"}, sandboxWorkloads={"enabled": True})}),
    ("P34", {"overrides": valued("gpu_operator", driver={"version": "595", "usePrecompiled": True})}),
    (
        "P34",
        {
            "accelerator": {"product": "H200", "driver_version": "580.126.20"},
            "overrides": valued("gpu_operator", driver={"version": "580.126.20"}),
        },
    ),
    (
        "P34",
        {
            "overrides": valued(
                "slurm",
                clusterName="kept",  # the name under which a database has the jobs
                controller={"extraConfMap": {"SlurmctldTimeout": "60"}},
                loginsets={"slinky": {"replicas": 1}},
            )
        },
    ),
    ("P40", {"fabric": {"kind": "none", "mode": "rdma_shared", "nics_per_node": 8}}),
    ("P40", {"fabric": {"kind": "infiniband", "interfaces": ["ibs1", "ibs2"]}}),
    ("P40", {"fabric": {"kind": "infiniband", "virtual_functions": 8}}),
    ("P40", {"fabric": OWN_MTU | {"interfaces": ["f0", "f1"], "multus": "operator"}}),
    ("P40", {"fabric": ATTACHED | {"rails": ["mlx5_0"], "interfaces": ["f0"], "nics_per_node": 1, "virtual_functions": 4}}),
    ("P37", {"slurm": {"kind": "slinky", "home": {"storage_class": "cephfs", "size": "1Ti"}}}),
    ("P36", {"hosts": tainted("gpu")}),
    ("P36", {"hosts": tainted("sv")}),
    ("P36", {"hosts": tainted("gpu"), "overrides": valued("gpu_operator", daemonsets={"tolerations": [{"operator": "Exists"}]})}),
    *(("P41", kubelet(flag, value)) for flag, value in GO_WORDS),
    ("P41", configured(apiVersion="kubelet.config.k8s.io/v1beta1", kind="KubeletConfiguration", syncFrequency=".5m")),
    ("P41", {"rke2": {"kubelet_args": {"v": "4", "feature-gates": "KubeletPodResources=true", "sync-frequency": "1m30s"}}}),
    (
        "P41",
        configured(
            evictionHard={"memory.available": "5%"},
            reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}],
            shutdownGracePeriod="30s",
            featureGates={"KubeletPodResources": True},
            logging={"verbosity": 3},
        ),
    ),
    *(("P28", measured(path, value)) for path, value in REACHABLE),
    ("P28", measured("gpu_floors.peer_gb_s", 300) | {"stages": ["os_prep", "rke2"]}),
    *(
        ("P28", measured(path, value) | ONE_SMALL_MACHINE)
        for path, value in REACHABLE
        if path not in ("gpu_floors.gemm_tflops", "gpu_floors.host_gb_s")
    ),
    ("P28", measured("nccl.intra_node_floor_gb_s", 400) | ONE_SMALL_MACHINE),
    (
        "P28",
        {
            "accelerator": {"product": "GB200", "per_node": 4},
            "validation": {
                "nccl": {"inter_node_floor_gb_s": 700, "intra_node_floor_gb_s": 600, "all_gather_floor_gb_s": 700},
                "gpu_floors": {"host_gb_s": 300, "gemm_tflops": 1800},
            },
        },
    ),
    ("P42", marked(taints=["a=b:NoSchedule", "a=b:NoExecute", "node.cilium.io/agent-not-ready=true:NoExecute"])),
    ("P42", marked(labels={"node.kubernetes.io/instance-type": "hgx", "topology.kubernetes.io/zone": "a", "nvidia.com/site": "b"})),
    ("P42", marked(labels={"nvidia.com/mig.config": "all-disabled", "nvidia.com/gpu.deploy.driver": "true"})),
    ("P42", marked(labels={"nvidia.com/mig.config": "all-1g.18gb"}) | {"sharing": MIG}),
    ("P42", marked(taints=["node.kubernetes.io/dedicated=gpu:NoSchedule"], labels={"kubernetes.io/os": "linux"})),
    ("P42", marked(labels={"nvidia.com/gpu.deploy.node-status-exporter": "false"})),
    (
        "P42",
        marked(labels={"nvidia.com/gpu.deploy.driver": "pre-installed"})
        | {"accelerator": {"product": "H200", "driver": "host", "driver_version": "580.126.20"}},
    ),
    (
        "P42",
        marked(labels={"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/mig.config": "all-1g.18gb"}) | {"stages": ["rke2"]},
    ),
]


@pytest.mark.parametrize(("rule", "sections", "expected"), REFUSED)
def test_a_rule_finds(rule: str, sections: dict[str, Any], expected: tuple[str, str]) -> None:
    assert expected in found(rule, **sections)


@pytest.mark.parametrize(("rule", "sections"), ACCEPTED)
def test_a_rule_passes(rule: str, sections: dict[str, Any]) -> None:
    assert found(rule, **sections) == []


def test_what_selinux_needs_names_where_it_comes_from() -> None:
    """RKE2's policy is in no distribution: who reads the sentence alone learns of its repository, and of mirrors."""

    def words(**os: object) -> list[str]:
        issues = catalog.check(load(os={**ENFORCED, **os}, rke2={"artifacts": "/srv/rke2"}), catalog.load())
        return [f"{one.problem} {one.fix}" for one in issues if one.rule == "P18"]

    (without,), (offline,) = words(selinux=None), words()
    assert "rpm.rancher.io (os.rke2_repository: a mirror)" in without
    assert "without baseurl and gpgkey of a mirror" in offline
    assert "{write: false} where your own repositories have it" in offline


def test_every_rule_of_the_reference_is_there_and_tested_both_ways() -> None:
    wanted = set(compat.RULES)
    assert all(re.fullmatch(r"P\d\d", rule) for rule in wanted)
    assert {rule for rule, *_ in REFUSED} == wanted
    assert {rule for rule, _ in ACCEPTED} == wanted


def test_every_rule_says_what_it_wants_and_where_it_is_from() -> None:
    for one in compat.RULES.values():
        assert one.sentence.endswith(".")
        assert one.source.startswith("https://")
        assert all("/" in gate and gate.split("/")[0] in STAGES for gate in one.later)


LATER = {
    "P01": {"rke2/nodes": "nodes_revision_behind"},
    "P02": {"network_operator/nodes": "nodes_not_advertised"},
    "P03": {"sharing/control": "control_dra_not_served", "sharing/nodes": "nodes_dra_old_driver"},
    "P04": {"sharing/nodes": "nodes_dra_twice"},
    "P05": {"os_prep/nodes": "driver_on_host_and_in_operator", "gpu_operator/nodes": "nodes_driver_preinstalled"},
    "P06": {"gpu_operator/nodes": "nodes_old_driver"},
    "P07": {"gpu_operator/control": "control_two_nfd", "network_operator/control": "control_two_multus"},
    "P08": {"gang/control": "control_scheduler_crashes"},
    "P09": {"sharing/nodes": "nodes_mig_false_success"},
    "P10": {"gang/control": "control_quota_covers_nothing", "gang/nodes": "nodes_flavor_after_sharing"},
    "P17": {"rke2/control": "control_other_ingress"},
    "P18": {"os_prep/nodes": "selinux_not_in_plan"},
    "P19": {"rke2/functional": "functional_overlay_broken"},
    "P31": {"gang/control": "control_quota_sum_above_the_fleet"},
}
"""By rule and gate, the case in which the gate refuses what the rule is about."""


@pytest.mark.parametrize("rule", sorted(compat.RULES))
def test_a_gate_that_a_rule_leaves_the_rest_to_has_a_case_that_it_refuses(rule: str) -> None:
    assert set(compat.RULES[rule].later) == set(LATER.get(rule, {}))
    for gate, name in LATER.get(rule, {}).items():
        case = json.loads((GATES / gate.partition("/")[0] / f"{name}.json").read_text())
        assert case["gate"] == gate
        assert case["verdict"] in ("fail", "inconclusive")


def test_errors_stop_a_plan_and_warnings_do_not() -> None:
    known = catalog.load()
    issues = catalog.require(load(os={"distribution": "ubuntu"}), known)
    assert [issue.rule for issue in issues] == ["P02", "P15", "P29", "P29"]
    with pytest.raises(spec.SpecErrors, match=r"P09: H200 has no profile 1g\.10gb \(see https://github\.com/NVIDIA/gpu-operator/"):
        catalog.require(load(sharing={"mode": "mig", "profile": "1g.10gb"}), known)


def test_an_issue_prints_rule_fix_source_and_later_gates() -> None:
    (one,) = [issue for issue in catalog.check(load(os={"distribution": "ubuntu"}), catalog.load()) if issue.rule == "P02"]
    assert one.block().splitlines() == [
        "warning P02 os.distribution",
        "  NVIDIA documents the Network Operator with RKE2 on SLES only, not on ubuntu",
        "  fix    use SLES, or go on: the gates of stage network_operator check each node of this run",
        f"  source {compat.RULES['P02'].source}",
        "  gates  checked again by network_operator/nodes",
    ]


def test_the_warning_of_servers_behind_a_bastion_has_the_tunnel_that_is_missing() -> None:
    reached = load(ssh={"jump_host": "b0:22,ops@b1:2222"}, rke2={"registration_address": "fd00::10"}, stages=["rke2"])
    (one,) = (issue for issue in catalog.check(reached, catalog.load()) if issue.rule == "P20")
    assert one.problem.endswith("straight to https://[fd00::10]:6443")
    assert "`ssh -N -L 6443:[fd00::10]:6443 -J b0:22 ssh://ops@b1:2222`" in one.fix


def test_a_machine_that_ssh_reaches_by_another_network_is_named_with_what_would_make_it_right() -> None:
    floating = load(os=NARROW, hosts=dialled("198.51.100.7"))
    (one,) = (issue for issue in catalog.check(floating, catalog.load()) if issue.rule == "P21")
    assert one.problem.startswith("sv1 (198.51.100.7) is in none of these networks")
    assert "unless the machine also has an address in one" in one.problem
    managed = load(hosts=dialled("fd00:10::11"))
    (one,) = (issue for issue in catalog.check(managed, catalog.load()) if issue.rule == "P22")
    assert one.problem.startswith(
        "SSH dials sv1 by IPv6, but nodes use IPv4 as pods do (rke2.cluster_cidr): RKE2 takes the address of the machine's IPv4"
    )


@pytest.mark.parametrize(
    ("fabric", "stages", "cause"),
    [
        (
            OWN_MTU,
            ["os_prep", "rke2"],
            "stage network_operator, which sets it on the interfaces of pods with mode macvlan, is left out",
        ),
        (NO_MTU[1], None, "mode rdma_shared has no MTU of its own for pods"),
        (
            {"kind": "infiniband", "mtu": 4092},
            ["rke2", "network_operator"],
            "stage os_prep, which sets it on the machines, is left out",
        ),
    ],
    ids=["pods", "nobody", "machines"],
)
def test_an_mtu_that_sets_nothing_is_told_its_cause(fabric: dict[str, Any], stages: list[str] | None, cause: str) -> None:
    issues = catalog.check(load(fabric=fabric, **({"stages": stages} if stages else {})), catalog.load())
    assert [cause in issue.problem for issue in issues if issue.rule == "P39"] == [True]


@pytest.mark.parametrize(
    ("hosts", "networks"),
    [
        (dialled("10.10.0.11"), ": [10.10.0.0/24],"),
        (
            BASE["hosts"]
            | {name: {"role": "agent", "ranges": f"{name}[1-2]", "addresses": {"start": start}} for name, start in SPREAD},
            ": [10.10.0.0/23, 10.20.0.0/24, fd00:10::/64],",
        ),
        (dialled("11.0.0.7"), ": [11.0.0.7/32],"),
        (BASE["hosts"], ","),
    ],
    ids=["one network", "several", "a public address", "names"],
)
def test_a_firewall_that_is_open_to_all_is_told_the_networks_of_the_machines(hosts: dict[str, Any], networks: str) -> None:
    """Names tell no network."""
    (one,) = (issue for issue in catalog.check(load(os={"firewall": "keep"}, hosts=hosts), catalog.load()) if issue.rule == "P21")
    assert "open to all who reach the machines" in one.problem
    assert f"write firewall_networks{networks} the networks of" in one.fix
