"""Rules about the Kubernetes version (P01, P02, P03, P08, P11, P12, P17, P24) and about the kubelet (P16)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from steps.contract.node_taints import SUNK_LOCK
from workflows.spec.accelerators import has_containerd_2_1, numbers
from workflows.spec.cluster_spec import has_gpu_cluster, ingress_groups
from workflows.spec.compat.rule_table import Platform, RuleFinding, releases_outside_range, rule
from workflows.spec.gpu_pools import gpu_pools, uses_dra
from workflows.spec.sections.infrastructure import Rke2Settings

LEAST, MOST = (1, 33, 0), (1, 36)
TRAEFIK_SINCE = (1, 36)
"""First Kubernetes minor whose new RKE2 clusters get Traefik; older ones get ingress-nginx.

Source: https://docs.rke2.io/reference/ingress_migration
"""
DRA_LEAST = (1, 34, 2)
DRA_DRIVER = (580,)
SLURM_LEAST = (25, 11)
"""Oldest Slurm that Slinky 1.2 works with (https://github.com/SlinkyProject/slurm-operator)."""
SUNK_END = (8,)
"""First release of SUNK whose charts the catalog's values do not fit (https://docs.coreweave.com/products/sunk)."""
_SLURM_LINE = re.compile(r"\d\d\.\d\d(?![0-9])")
"""The start of an image tag of Slurm: `25.11-ubuntu24.04`."""
_TOLERATION = f"add {{key: {SUNK_LOCK}, operator: Exists, effect: NoExecute}}"
_DAEMON_SETS = (
    ("gpu_operator", "daemonsets.tolerations"),
    ("gpu_operator", "node-feature-discovery.worker.tolerations"),
    ("dra_driver", "kubeletPlugin.tolerations"),
)
"""Charts with DaemonSets on compute nodes, and the Helm values that hold their tolerations.

DaemonSets for NICs get their tolerations from NicClusterPolicy.
"""

_ARGO_CD = {"3.4": ((1, 32), (1, 35)), "3.5": ((1, 33), (1, 36))}
"""First and last Kubernetes minor that each Argo CD minor is tested with.

Source: https://argo-cd.readthedocs.io/en/stable/operator-manual/installation/
"""


@rule(
    "P01",
    "error",
    source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/platform-support.html",
    later=("rke2/nodes",),
)
def kubernetes_range(platform: Platform) -> Iterator[RuleFinding]:
    """Kubernetes is 1.33 to 1.36, and the same version on every node."""
    running = platform.kubernetes
    if running < LEAST or running[:2] > MOST:
        problem = f"{platform.spec.rke2.version} lies outside 1.33 to 1.36, which the GPU stack is validated on"
        yield RuleFinding("rke2.version", problem, "use v1.35.7+rke2r1 (default) or v1.34.10+rke2r1 (safest)")
    yield from releases_outside_range(platform, "gpu_operator")


@rule(
    "P02",
    "warning",
    source="https://github.com/Mellanox/network-operator-docs/blob/main/docs/platform-support.rst",
    later=("network_operator/nodes",),
)
def network_operator_range(platform: Platform) -> Iterator[RuleFinding]:
    """The Network Operator is documented up to Kubernetes 1.35, and for RKE2 on SLES only."""
    yield from releases_outside_range(platform, "network_operator")
    if "network_operator" in platform.releases and platform.spec.os.distribution != "sles":
        problem = f"NVIDIA documents the Network Operator with RKE2 on SLES only, not on {platform.spec.os.distribution}"
        yield RuleFinding(
            "os.distribution", problem, "use SLES, or go on: the gates of stage network_operator check each node of this run"
        )


def _uses_dra(platform: Platform) -> bool:
    spec = platform.spec
    return spec.accelerator is not None and (uses_dra(spec) or has_gpu_cluster(spec))


@rule(
    "P03",
    "error",
    source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/dra-intro-install.html",
    later=("sharing/control", "sharing/nodes"),
)
def dra_needs(platform: Platform) -> Iterator[RuleFinding]:
    """DRA needs Kubernetes 1.34.2, driver 580 and containerd 2.0, or later versions of them."""
    gpu = platform.spec.accelerator
    if gpu is None or not _uses_dra(platform):
        return
    if platform.kubernetes < DRA_LEAST:
        problem = f"DRA needs Kubernetes 1.34.2, {platform.spec.rke2.version} is older"
        yield RuleFinding("rke2.version", problem, "use v1.35.7+rke2r1, or another sharing mode")
    if gpu.driver_version is not None and numbers(gpu.driver_version) < DRA_DRIVER:
        problem = f"DRA needs driver 580 or later, the spec says {gpu.driver_version}"
        yield RuleFinding("accelerator.driver_version", problem, 'write driver_version: "580.126.20" or later')


@rule("P08", "error", source="https://github.com/volcano-sh/volcano#kubernetes-compatibility", later=("gang/control",))
def schedulers_range(platform: Platform) -> Iterator[RuleFinding]:
    """Gang scheduler, Kueue, cert-manager and Argo CD support the Kubernetes version of the spec."""
    yield from releases_outside_range(platform, "volcano", "kai_scheduler", "kueue", "cert_manager")
    kueue = platform.releases.get("kueue")
    if kueue is not None and numbers(kueue.version) < (0, 15):
        problem = f"the queues are written as v1beta2, which Kueue {kueue.version} does not serve"
        yield RuleFinding("overrides.kueue.version", problem, "use Kueue 0.15.0 or later")
    yield from _argo_cd_range(platform)


def _argo_cd_range(platform: Platform) -> Iterator[RuleFinding]:
    argo_cd = platform.spec.delivery.argo_cd
    if argo_cd is None:
        return
    known = _ARGO_CD.get(".".join(argo_cd.version.split(".")[:2]))
    running = platform.kubernetes[:2]
    if known is None:
        problem = f"no tested Kubernetes versions are known for Argo CD {argo_cd.version}"
        yield RuleFinding("delivery.argo_cd.version", problem, "use 3.4 or 3.5", "warning")
    elif not known[0] <= running <= known[1]:
        low, high = (".".join(map(str, end)) for end in known)
        problem = f"Argo CD {argo_cd.version} is tested with Kubernetes {low} to {high}"
        yield RuleFinding("delivery.argo_cd.version", problem, "use 3.5 for Kubernetes 1.36, 3.4 for 1.32")
    yield from _argo_cd_chart(platform, argo_cd.version)


def _argo_cd_chart(platform: Platform, version: str) -> Iterator[RuleFinding]:
    """Yield a finding if the pinned chart installs another Argo CD version than the spec names, which a gate expects."""
    chart = platform.releases.get("argo_cd")
    if chart is None or not chart.app_version or f"{chart.app_version}.".startswith(f"{version}."):
        return
    problem = f"chart argo-cd {chart.version} installs Argo CD {chart.app_version}, the spec says {version}"
    fix = f'write version: "{".".join(chart.app_version.split(".")[:2])}", overrides.argo_cd.version, or install: false'
    yield RuleFinding("delivery.argo_cd.version", problem, fix)


_POLICIES = {
    "topology-manager-policy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topology-manager-scope": ("container", "pod"),
    "cpu-manager-policy": ("none", "static"),
    "memory-manager-policy": ("None", "Static"),
}
"""Values that a kubelet accepts for each policy. With any other value the kubelet does not start."""
_RESERVED = ("reserved-cpus", "kube-reserved", "system-reserved")
_WHOLE_NODE = ("slurm", "gang", "validation")
"""Stages whose pods request all GPUs of a node."""


@rule("P16", "error", source="https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/")
def whole_node_pods_fit(platform: Platform) -> Iterator[RuleFinding]:
    """The kubelet's topology policy admits a pod that requests all GPUs of a node."""
    rke2 = platform.spec.rke2
    for flag, known in _POLICIES.items():
        path, value = _of_kubelet(rke2, flag)
        if value is not None and value not in known:
            problem = f"{value} is not a value of this setting, and a kubelet does not start with it"
            yield RuleFinding(path, problem, f"use one of {', '.join(known)}")
    path, value = _of_kubelet(rke2, "cpu-manager-policy")
    if value == "static" and not any(_reserves(flag, _of_kubelet(rke2, flag)[1]) for flag in _RESERVED):
        problem = "a kubelet does not start with the static policy while no CPU is reserved"
        first = _RESERVED[0] if path.startswith("rke2.kubelet_args") else _field(_RESERVED[0])
        yield RuleFinding(path, problem, f'add {first}: "0-1", or the CPUs of your choice')
    yield from _across_numa(platform)


def _of_kubelet(rke2: Rke2Settings, flag: str) -> tuple[str, Any]:
    """Return path and value of a kubelet setting in the spec; the value is None if it is not set. A flag wins over a field."""
    if flag in rke2.kubelet_args:
        return f"rke2.kubelet_args.{flag}", rke2.kubelet_args[flag]
    return f"rke2.kubelet_config.{_field(flag)}", rke2.kubelet_config.get(_field(flag))


def _field(flag: str) -> str:
    """Return the field of KubeletConfiguration that corresponds to a flag."""
    first, *others = flag.split("-")
    return "reservedSystemCPUs" if flag == "reserved-cpus" else first + "".join(map(str.capitalize, others))


def _reserves(flag: str, value: Any) -> bool:
    """Return True if a kubelet setting reserves CPUs for the system.

    `value` is a list of CPUs, a mapping with `cpu`, or the text of a flag such as `cpu=500m,memory=1Gi`.
    """
    if isinstance(value, Mapping):
        return re.search("[1-9]", str(value.get("cpu", ""))) is not None
    return bool(value) and (flag == "reserved-cpus" or re.search(r"(^|,)cpu=[^,]*[1-9]", str(value)) is not None)


def _across_numa(platform: Platform) -> Iterator[RuleFinding]:
    # The Topology Manager aligns devices of device plugins only, never those of DRA. A spec does not say how many NUMA nodes a
    # machine has; boards with eight GPUs, and GB200, have two.
    spec = platform.spec
    gpu = max((pool.accelerator for pool in gpu_pools(spec)), key=lambda accelerator: accelerator.per_node, default=None)
    asking = [stage for stage in spec.enabled_stages() if stage in _WHOLE_NODE]
    path, policy = _of_kubelet(spec.rke2, "topology-manager-policy")
    if policy != "single-numa-node" or gpu is None or gpu.per_node < 2 or not asking or _uses_dra(platform):
        return
    surely = gpu.per_node >= 8 or gpu.product == "GB200"
    where = "they are on two NUMA nodes" if surely else "unless one NUMA node has them all"
    problem = f"single-numa-node rejects the pods of {', '.join(asking)}, which ask for all {gpu.per_node} GPUs ({where})"
    fix = "use restricted or best-effort: pods with fewer GPUs are still aligned"
    yield RuleFinding(path, problem, fix, None if surely else "warning")


@rule("P17", "warning", source="https://docs.rke2.io/reference/ingress_migration", later=("rke2/control",))
def ingress_is_named(platform: Platform) -> Iterator[RuleFinding]:
    """From Kubernetes 1.36 on a spec names its ingress controller, because new and upgraded clusters differ in the default."""
    if platform.kubernetes >= TRAEFIK_SINCE and platform.spec.rke2.ingress_controller is None:
        problem = (
            "from v1.36 on new clusters get Traefik, while upgraded ones keep ingress-nginx: without this key Traefik is expected, "
            "and an upgrade from an older minor refuses to begin"
        )
        yield RuleFinding("rke2.ingress_controller", problem, "write ingress_controller: traefik, ingress-nginx or none")


@rule("P24", "warning", source="https://docs.coreweave.com/products/sunk")
def ingress_has_machines(platform: Platform) -> Iterator[RuleFinding]:
    """The ingress controller needs machines without taints and SUNK's lock: its pods run nowhere else, and no gate checks it."""
    spec = platform.spec
    if spec.rke2.ingress_controller == "none" or ingress_groups(spec):
        return
    problem = "taints or SUNK's lock keep the ingress pods off every machine, so no gate checks whether ingress works"
    yield RuleFinding(
        "rke2.ingress_controller", problem, "write ingress_controller: none, or keep a group without taints and Slurm"
    )


@rule("P11", "error", source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/platform-support.html")
def nri_needs_containerd(platform: Platform) -> Iterator[RuleFinding]:
    """NRI needs containerd 2.1 or later, which depends on the RKE2 release."""
    operator = platform.releases.get("gpu_operator")
    if operator is not None and operator.value("cdi.nriPluginEnabled") and not has_containerd_2_1(platform.spec.rke2.version):
        problem = f"{platform.spec.rke2.version} ships a containerd older than 2.1, without the NRI that the GPU Operator needs"
        yield RuleFinding(
            "overrides.gpu_operator.values.cdi.nriPluginEnabled", problem, "use v1.34.1+rke2r1 or later, or remove it"
        )


@rule("P12", "error", source="https://github.com/SlinkyProject/slurm-operator")
def slurm_needs(platform: Platform) -> Iterator[RuleFinding]:
    """DaemonSets tolerate SUNK's lock taint; Slinky is 1.2.1 or later on Kubernetes 1.29 or later, with Slurm 25.11 or later."""
    yield from releases_outside_range(platform, "slurm_operator_crds", "slurm_operator", "slurm", "sunk", "sunk_slurm")
    yield from _lock_is_tolerated(platform)
    sunk = platform.releases.get("sunk")
    if sunk is not None and numbers(sunk.version) >= SUNK_END:
        problem = f"SUNK {sunk.version} has another architecture and other values than SUNK 7, for which these are written"
        yield RuleFinding("slurm.version", problem, "use a chart of SUNK 7, as in 7.3.0")
    operator = platform.releases.get("slurm_operator")
    if operator is not None and numbers(operator.version) < (1, 2, 1):
        problem = f"a rolling update of Slinky {operator.version} can drain a node set to zero (fixed in 1.2.1)"
        yield RuleFinding("slurm.version", problem, "use 1.2.1 or later", "warning")
    if operator is not None and numbers(operator.version) >= (1, 2) and "slurm" in platform.releases:
        for path, tag in _image_tags(platform.releases["slurm"].values, "overrides.slurm.values"):
            if _SLURM_LINE.match(tag) and numbers(tag) < SLURM_LEAST:
                problem = f"Slinky {operator.version} needs Slurm 25.11 or later, this image is {tag}"
                yield RuleFinding(path, problem, "leave it out (26.05), or use a tag of 25.11 or later")


def _image_tags(values: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Yield path and text of every `image.tag` in Helm values."""
    for key, value in values.items():
        here = f"{path}.{key}"
        if isinstance(value, Mapping):
            if key == "image" and "tag" in value:
                yield f"{here}.tag", str(value["tag"])
            yield from _image_tags(value, here)


def _lock_is_tolerated(platform: Platform) -> Iterator[RuleFinding]:
    if platform.spec.slurm.kind != "sunk":
        return
    for name, path in _DAEMON_SETS:
        release = platform.releases.get(name)
        if release is not None and not _tolerates(release.value(path)):
            problem = f"SUNK's lock taint would evict these DaemonSets: {path} lacks the toleration {SUNK_LOCK}"
            yield RuleFinding(f"overrides.{name}.values.{path}", problem, _TOLERATION)
    network = platform.releases.get("network_operator")
    for item in network.objects if network else ():
        if item.get("kind") == "NicClusterPolicy" and not _tolerates(item.get("spec", {}).get("tolerations")):
            problem = f"SUNK's lock taint would evict the NIC DaemonSets: NicClusterPolicy lacks the toleration {SUNK_LOCK}"
            yield RuleFinding("catalog.network_operator.objects", problem, _TOLERATION)


def _tolerates(tolerations: Any) -> bool:
    listed = [toleration for toleration in tolerations or () if isinstance(toleration, Mapping)]
    return any(entry.get("key") in (SUNK_LOCK, None) and entry.get("effect") in ("NoExecute", None) for entry in listed)
