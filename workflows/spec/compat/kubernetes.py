"""Rules about the Kubernetes version: P01, P02, P03, P08, P11, P12 (`gpu_stack §9`), P17, P24; and about the kubelet: P16."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflows.spec.access import Rke2
from workflows.spec.compat.registry import Finding, Platform, outside, rule
from workflows.spec.derived import SUNK_LOCK, ingress_groups
from workflows.spec.products import has_containerd_2_1, numbers

LEAST, MOST = (1, 33, 0), (1, 36)
TRAEFIK_SINCE = (1, 36)
"""New clusters have Traefik from this minor on, ingress-nginx before (docs.rke2.io/reference/ingress_migration)."""
DRA_LEAST = (1, 34, 2)
DRA_DRIVER = (580,)
SLURM_LEAST = (25, 11)
"""Slurm that Slinky 1.2 works with (gpu_stack §7.2)."""
_SLURM_LINE = re.compile(r"\d\d\.\d\d(?![0-9])")
"""How tags of Slurm images begin: `25.11-ubuntu24.04`."""
_TOLERATION = f"add {{key: {SUNK_LOCK}, operator: Exists, effect: NoExecute}}"
_DAEMON_SETS = (
    ("gpu_operator", "daemonsets.tolerations"),
    ("gpu_operator", "node-feature-discovery.worker.tolerations"),
    ("dra_driver", "kubeletPlugin.tolerations"),
)
"""Charts that run DaemonSets on compute nodes, and the values with their tolerations; the NIC ones are NicClusterPolicy's."""

_ARGO_CD = {"3.4": ((1, 32), (1, 35)), "3.5": ((1, 33), (1, 36))}
"""Kubernetes minors that each Argo CD minor is tested with (`gpu_stack §6.1`)."""


@rule("P01", "error", later=("rke2/nodes",))
def kubernetes_range(platform: Platform) -> Iterator[Finding]:
    """Kubernetes is 1.33 to 1.36, the same on every node."""
    running = platform.kubernetes
    if running < LEAST or running[:2] > MOST:
        problem = f"{platform.spec.rke2.version} lies outside 1.33 to 1.36, which the GPU stack is validated on"
        yield Finding("rke2.version", problem, "use v1.35.7+rke2r1 (default) or v1.34.10+rke2r1 (safest)")
    yield from outside(platform, "gpu_operator")


@rule("P02", "warning", later=("network_operator/nodes",))
def network_operator_range(platform: Platform) -> Iterator[Finding]:
    """The Network Operator is documented up to Kubernetes 1.35, and for RKE2 on SLES only."""
    yield from outside(platform, "network_operator")
    if "network_operator" in platform.releases and platform.spec.os.distribution != "sles":
        problem = f"NVIDIA documents the Network Operator with RKE2 on SLES only, not on {platform.spec.os.distribution}"
        yield Finding("os.distribution", problem, "rely on this run's own network gates, or use SLES")


def _uses_dra(platform: Platform) -> bool:
    gpu = platform.spec.accelerator
    return gpu is not None and (platform.spec.sharing.mode == "dra" or gpu.operator_mode == "gpu_cluster")


@rule("P03", "error", later=("sharing/control", "sharing/nodes"))
def dra_needs(platform: Platform) -> Iterator[Finding]:
    """DRA needs Kubernetes 1.34.2, driver 580 and containerd 2.0."""
    gpu = platform.spec.accelerator
    if gpu is None or not _uses_dra(platform):
        return
    if platform.kubernetes < DRA_LEAST:
        problem = f"DRA needs Kubernetes 1.34.2, {platform.spec.rke2.version} is older"
        yield Finding("rke2.version", problem, "use v1.35.7+rke2r1, or another sharing mode")
    if gpu.driver_version is not None and numbers(gpu.driver_version) < DRA_DRIVER:
        problem = f"DRA needs driver 580 or later, the spec says {gpu.driver_version}"
        yield Finding("accelerator.driver_version", problem, 'write driver_version: "580.126.20" or later')


@rule("P08", "error", later=("gang/control",))
def schedulers_range(platform: Platform) -> Iterator[Finding]:
    """Scheduler, quota and Argo CD support the Kubernetes version."""
    yield from outside(platform, "volcano", "kai_scheduler", "kueue", "cert_manager")
    kueue = platform.releases.get("kueue")
    if kueue is not None and numbers(kueue.version) < (0, 15):
        problem = f"the queues are written as v1beta2, which Kueue {kueue.version} does not serve"
        yield Finding("overrides.kueue.version", problem, "use Kueue 0.15.0 or later")
    yield from _argo_cd_range(platform)


def _argo_cd_range(platform: Platform) -> Iterator[Finding]:
    argo_cd = platform.spec.delivery.argo_cd
    if argo_cd is None:
        return
    known = _ARGO_CD.get(".".join(argo_cd.version.split(".")[:2]))
    running = platform.kubernetes[:2]
    if known is None:
        problem = f"no tested Kubernetes versions are known for Argo CD {argo_cd.version}"
        yield Finding("delivery.argo_cd.version", problem, "use 3.4 or 3.5", "warning")
    elif not known[0] <= running <= known[1]:
        low, high = (".".join(map(str, end)) for end in known)
        problem = f"Argo CD {argo_cd.version} is tested with Kubernetes {low} to {high}"
        yield Finding("delivery.argo_cd.version", problem, "use 3.5 for Kubernetes 1.36, 3.4 for 1.32")
    yield from _argo_cd_chart(platform, argo_cd.version)


def _argo_cd_chart(platform: Platform, wanted: str) -> Iterator[Finding]:
    """Where the chart is installed, it holds the version that the gate will look for."""
    chart = platform.releases.get("argo_cd")
    if chart is None or not chart.app_version or f"{chart.app_version}.".startswith(f"{wanted}."):
        return
    problem = f"chart argo-cd {chart.version} installs Argo CD {chart.app_version}, the spec says {wanted}"
    fix = f'write version: "{".".join(chart.app_version.split(".")[:2])}", overrides.argo_cd.version, or install: false'
    yield Finding("delivery.argo_cd.version", problem, fix)


_POLICIES = {
    "topology-manager-policy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topology-manager-scope": ("container", "pod"),
    "cpu-manager-policy": ("none", "static"),
    "memory-manager-policy": ("None", "Static"),
}
"""Values that a kubelet takes; with another one it does not start."""
_RESERVED = ("reserved-cpus", "kube-reserved", "system-reserved")
_WHOLE_NODE = ("slurm", "gang", "validation")
"""Stages whose pods ask for all GPUs of a node."""


@rule("P16", "error", source="gpu_stack §8.6")
def whole_node_pods_fit(platform: Platform) -> Iterator[Finding]:
    """The kubelet's topology policy lets a pod in that asks for all GPUs of a node."""
    rke2 = platform.spec.rke2
    for flag, known in _POLICIES.items():
        path, value = _of_kubelet(rke2, flag)
        if value is not None and value not in known:
            problem = f"{value} is no value that this setting takes, and a kubelet does not start with it"
            yield Finding(path, problem, f"use one of {', '.join(known)}")
    path, value = _of_kubelet(rke2, "cpu-manager-policy")
    if value == "static" and not any(_reserves(flag, _of_kubelet(rke2, flag)[1]) for flag in _RESERVED):
        problem = "a kubelet does not start with the static policy while no CPU is reserved"
        first = _RESERVED[0] if path.startswith("rke2.kubelet_args") else _field(_RESERVED[0])
        yield Finding(path, problem, f'add {first}: "0-1", or the CPUs of your choice')
    yield from _across_numa(platform)


def _of_kubelet(rke2: Rke2, flag: str) -> tuple[str, Any]:
    """Where a setting of the kubelet is written and its value, None where it is not: a flag wins over KubeletConfiguration."""
    if flag in rke2.kubelet_args:
        return f"rke2.kubelet_args.{flag}", rke2.kubelet_args[flag]
    return f"rke2.kubelet_config.{_field(flag)}", rke2.kubelet_config.get(_field(flag))


def _field(flag: str) -> str:
    """The name of a flag's setting in KubeletConfiguration."""
    first, *others = flag.split("-")
    return "reservedSystemCPUs" if flag == "reserved-cpus" else first + "".join(map(str.capitalize, others))


def _reserves(flag: str, value: Any) -> bool:
    """Whether CPUs are kept for the system: a list of them, or a quantity, which a flag has among others as `cpu=500m`."""
    if isinstance(value, Mapping):
        return re.search("[1-9]", str(value.get("cpu", ""))) is not None
    return bool(value) and (flag == "reserved-cpus" or re.search(r"(^|,)cpu=[^,]*[1-9]", str(value)) is not None)


def _across_numa(platform: Platform) -> Iterator[Finding]:
    """Only devices of a device plugin take part: those of DRA are not aligned. Which machines have one NUMA node, no spec says;
    boards with eight GPUs, and GB200, have two."""
    spec, gpu = platform.spec, platform.spec.accelerator
    asking = [stage for stage in spec.enabled_stages() if stage in _WHOLE_NODE]
    path, policy = _of_kubelet(spec.rke2, "topology-manager-policy")
    if policy != "single-numa-node" or gpu is None or gpu.per_node < 2 or not asking or _uses_dra(platform):
        return
    surely = gpu.per_node >= 8 or gpu.product == "GB200"
    where = "they are on two NUMA nodes" if surely else "unless one NUMA node has them all"
    problem = f"single-numa-node rejects the pods of {', '.join(asking)}, which ask for all {gpu.per_node} GPUs ({where})"
    fix = "use restricted or best-effort: pods with fewer GPUs are still aligned"
    yield Finding(path, problem, fix, None if surely else "warning")


@rule("P17", "warning", later=("rke2/control",), source="docs.rke2.io/reference/ingress_migration")
def ingress_is_named(platform: Platform) -> Iterator[Finding]:
    """The ingress controller is named from Kubernetes 1.36 on, where old and new clusters differ in it."""
    if platform.kubernetes >= TRAEFIK_SINCE and platform.spec.rke2.ingress_controller is None:
        problem = (
            "from v1.36 on new clusters have Traefik, and those that were upgraded keep ingress-nginx: Traefik is expected, and an "
            "upgrade from an older minor refuses to begin"
        )
        yield Finding("rke2.ingress_controller", problem, "write ingress_controller: traefik, ingress-nginx or none")


@rule("P24", "warning", source="gpu_stack §7.1")
def ingress_has_machines(platform: Platform) -> Iterator[Finding]:
    """An ingress controller has machines that neither taints nor SUNK's lock keep it from; else no gate looks at it."""
    spec = platform.spec
    if spec.rke2.ingress_controller == "none" or ingress_groups(spec):
        return
    problem = "taints, or SUNK's lock, keep its pods from every machine: no gate looks whether ingress works"
    yield Finding("rke2.ingress_controller", problem, "write ingress_controller: none, or keep a group without taints and Slurm")


@rule("P11", "error")
def nri_needs_containerd(platform: Platform) -> Iterator[Finding]:
    """NRI needs containerd 2.1, which follows from the RKE2 release."""
    operator = platform.releases.get("gpu_operator")
    if operator is not None and operator.value("cdi.nriPluginEnabled") and not has_containerd_2_1(platform.spec.rke2.version):
        problem = f"{platform.spec.rke2.version} ships a containerd before 2.1, which has no NRI for the GPU Operator"
        yield Finding("overrides.gpu_operator.values.cdi.nriPluginEnabled", problem, "use v1.34.1+rke2r1 or later, or remove it")


@rule("P12", "error")
def slurm_needs(platform: Platform) -> Iterator[Finding]:
    """DaemonSets tolerate SUNK's lock; Slinky is 1.2.1 or later on Kubernetes 1.29, and its Slurm 25.11 or later."""
    yield from outside(platform, "slurm_operator_crds", "slurm_operator", "slurm", "sunk", "sunk_slurm")
    yield from _lock_is_tolerated(platform)
    operator = platform.releases.get("slurm_operator")
    if operator is not None and numbers(operator.version) < (1, 2, 1):
        problem = f"a rolling update of Slinky {operator.version} can drain a node set to zero (fixed in 1.2.1)"
        yield Finding("slurm.version", problem, "use 1.2.1 or later", "warning")
    if operator is not None and numbers(operator.version) >= (1, 2) and "slurm" in platform.releases:
        for path, tag in _image_tags(platform.releases["slurm"].values, "overrides.slurm.values"):
            if _SLURM_LINE.match(tag) and numbers(tag) < SLURM_LEAST:
                problem = f"Slinky {operator.version} needs Slurm 25.11 or later, this image is {tag}"
                yield Finding(path, problem, "leave it out (26.05), or use a tag of 25.11 or later")


def _image_tags(values: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """Every `image.tag` of Helm values, with its path."""
    for key, value in values.items():
        here = f"{path}.{key}"
        if isinstance(value, Mapping):
            if key == "image" and "tag" in value:
                yield f"{here}.tag", str(value["tag"])
            yield from _image_tags(value, here)


def _lock_is_tolerated(platform: Platform) -> Iterator[Finding]:
    if platform.spec.slurm.kind != "sunk":
        return
    for name, path in _DAEMON_SETS:
        release = platform.releases.get(name)
        if release is not None and not _tolerates(release.value(path)):
            problem = f"SUNK's lock taint would evict these DaemonSets: {path} lacks the toleration {SUNK_LOCK}"
            yield Finding(f"overrides.{name}.values.{path}", problem, _TOLERATION)
    network = platform.releases.get("network_operator")
    policies = (one for one in (network.objects if network else ()) if one.get("kind") == "NicClusterPolicy")
    for policy in policies:
        if not _tolerates(policy.get("spec", {}).get("tolerations")):
            problem = f"SUNK's lock taint would evict the NIC DaemonSets: NicClusterPolicy lacks the toleration {SUNK_LOCK}"
            yield Finding("catalog.network_operator.objects", problem, _TOLERATION)


def _tolerates(tolerations: Any) -> bool:
    found = [one for one in tolerations or () if isinstance(one, Mapping)]
    return any(one.get("key") in (SUNK_LOCK, None) and one.get("effect") in ("NoExecute", None) for one in found)
