"""Rules about GPUs, drivers and sharing: P04, P05, P06, P09, P10 (`gpu_stack §9`)."""

from __future__ import annotations

from collections.abc import Iterator

from workflows.spec.compat.registry import Finding, Platform, rule
from workflows.spec.derived import PRODUCT_LABEL, advertised, product_label
from workflows.spec.products import DRIVER_BRANCHES, numbers

_GPU_CLUSTER_LEAST = (26, 7)
_BAD_MIXED_MIG = ((570, 124, 6), (570, 158, 1))
"""Drivers with which mixed MIG leaves whole-GPU pods pending (`gpu_stack §1.7`, issue #1361)."""


@rule("P04", "error", later=("sharing/nodes",))
def dra_mode(platform: Platform) -> Iterator[Finding]:
    """DRA comes with GPUCluster from 26.7, or as its own chart up to 26.3, never beside a device plugin."""
    gpu, operator = platform.spec.accelerator, platform.releases.get("gpu_operator")
    if gpu is None or operator is None:
        return
    version = numbers(operator.version)
    if gpu.operator_mode == "gpu_cluster":
        if version < _GPU_CLUSTER_LEAST:
            problem = f"GPUCluster exists from GPU Operator 26.7.0, the spec pins {operator.version}"
            yield Finding("overrides.gpu_operator.version", problem, "use v26.7.0, or operator_mode: cluster_policy")
        if operator.value("clusterPolicy.deployCR") is not False:
            problem = "GPUCluster and ClusterPolicy exclude each other"
            yield Finding("overrides.gpu_operator.values.clusterPolicy.deployCR", problem, "write deployCR: false")
    elif platform.spec.sharing.mode == "dra" and version >= _GPU_CLUSTER_LEAST:
        problem = f"{operator.version} does DRA by GPUCluster; a separate driver beside ClusterPolicy is the way up to 26.3"
        yield Finding("overrides.gpu_operator.version", problem, "use operator_mode: gpu_cluster, or v26.3.3", "warning")


@rule("P05", "error", later=("os_prep/nodes", "gpu_operator/nodes"))
def one_driver(platform: Platform) -> Iterator[Finding]:
    """The driver is the machine's or the operator's, never both."""
    gpu, operator = platform.spec.accelerator, platform.releases.get("gpu_operator")
    if gpu is None or operator is None:
        return
    installs = operator.value("driver.enabled") is not False
    if installs and gpu.driver == "host":
        problem = "the machines have a driver and the GPU Operator would install another"
        yield Finding("overrides.gpu_operator.values.driver.enabled", problem, "write driver.enabled: false")
    if not installs and gpu.driver == "operator":
        problem = "nobody installs a driver: the spec leaves it to the operator, and its value turns it off"
        yield Finding("overrides.gpu_operator.values.driver.enabled", problem, "remove the value")


@rule("P06", "error", later=("gpu_operator/nodes",))
def driver_branch(platform: Platform) -> Iterator[Finding]:
    """The driver branch fits operator and product."""
    gpu, sharing = platform.spec.accelerator, platform.spec.sharing
    if gpu is None or gpu.driver_version is None:
        return
    path, version = "accelerator.driver_version", numbers(gpu.driver_version)
    if version[0] not in DRIVER_BRANCHES:
        branches = ", ".join(map(str, DRIVER_BRANCHES))
        problem = f"{gpu.driver_version} is of no branch that GPU Operator 26 carries ({branches})"
        yield Finding(path, problem, "use a 580 driver", "error" if gpu.driver == "operator" else "warning")
    if version < gpu.facts.least_driver:
        least = ".".join(map(str, gpu.facts.least_driver))
        yield Finding(path, f"{gpu.product} needs driver {least} or later", f"use {least} or later")
    if sharing.mode == "mig" and sharing.strategy == "mixed" and _BAD_MIXED_MIG[0] <= version <= _BAD_MIXED_MIG[1]:
        yield Finding(
            path, f"with {gpu.driver_version} and mixed MIG, pods that ask for whole GPUs stay pending", "use a 580 driver"
        )
    if sharing.mode == "mig" and version[0] == 535:
        problem = "with a 535 driver MIG profiles are the static list, whose filter may skip the GPU and still report success"
        yield Finding(path, problem, "use a 580 driver", "warning")


@rule("P09", "error", later=("sharing/nodes",))
def mig_profile(platform: Platform) -> Iterator[Finding]:
    """The MIG profile is one of the product's."""
    gpu, sharing = platform.spec.accelerator, platform.spec.sharing
    if gpu is None or sharing.mode != "mig" or sharing.profile is None:
        return
    profiles = gpu.facts.mig
    if not profiles:
        yield Finding("sharing.mode", f"{gpu.product} has no MIG", "use time_slicing or mps, or no sharing")
    elif sharing.profile not in profiles:
        problem = f"{gpu.product} has no profile {sharing.profile}"
        yield Finding("sharing.profile", problem, f"choose from {', '.join(profiles)}")


@rule("P10", "error", later=("gang/control", "gang/nodes"))
def quota_covers(platform: Platform) -> Iterator[Finding]:
    """Quota covers nodes and resources as they are after sharing."""
    scheduler = platform.spec.scheduler
    if scheduler.quota == "none" or platform.spec.accelerator is None:
        return
    expected, written = product_label(platform.spec), (scheduler.flavor.node_labels or {}).get(PRODUCT_LABEL)
    if written is not None and written != expected:
        problem = f"after sharing the nodes carry {PRODUCT_LABEL}={expected}, so this flavor matches none"
        yield Finding("scheduler.flavor.node_labels", problem, f"write {PRODUCT_LABEL}: {expected}, or leave node_labels out")
    names = advertised(platform.spec)
    for name in scheduler.flavor.covered_resources:
        if name not in names and name.startswith("nvidia.com/"):
            problem = f"quota on {name} covers nothing: the nodes advertise {', '.join(names) or 'no GPU resource (DRA)'}"
            yield Finding("scheduler.flavor.covered_resources", problem, "leave it out, or name what is advertised")
    if not names:
        yield Finding("scheduler.quota", "Kueue's quota does not count DRA claims", "leave quota out", "warning")
    if scheduler.gang == "volcano":
        problem = "Kueue does not govern Volcano Jobs; only Job, MPIJob, JobSet and pods are under quota (gpu_stack §4.3)"
        yield Finding("scheduler.quota", problem, "let tenants submit Jobs, MPIJobs or JobSets", "warning")
