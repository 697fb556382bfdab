"""Rules about GPUs, drivers and sharing: P04, P05, P06, P09, P10."""

from __future__ import annotations

from collections.abc import Iterator

from workflows.spec.accelerators import DRIVER_BRANCHES, numbers
from workflows.spec.cluster_spec import PRODUCT_LABEL, has_gpu_cluster, product_label
from workflows.spec.compat.rule_table import Platform, RuleFinding, rule
from workflows.spec.gpu_pools import PoolFlavor, gpu_pools, group_path, mig_strategy, quota_flavors, uses_dra

MOST_FLAVORS = 64
"""Flavors of a resource group of Kueue at most (`maxItems` in its CRD)."""
_GPU_CLUSTER_LEAST = (26, 7)
_BAD_MIXED_MIG = ((570, 124, 6), (570, 158, 1))
"""First and last driver with which mixed MIG leaves whole-GPU pods pending (NVIDIA/gpu-operator#1361)."""


@rule(
    "P04",
    "error",
    source="https://github.com/NVIDIA/gpu-operator/blob/v26.7.0/deployments/gpu-operator/templates/validations.yaml",
    later=("sharing/nodes",),
)
def dra_mode(platform: Platform) -> Iterator[RuleFinding]:
    """DRA comes with GPUCluster from GPU Operator 26.7 on, or as its own chart up to 26.3, never beside a device plugin."""
    gpu, operator = platform.spec.accelerator, platform.releases.get("gpu_operator")
    if gpu is None or operator is None:
        return
    version = numbers(operator.version)
    if gpu.operator_mode == "gpu_cluster":
        if version < _GPU_CLUSTER_LEAST:
            problem = f"GPUCluster exists from GPU Operator 26.7.0, the spec pins {operator.version}"
            yield RuleFinding("overrides.gpu_operator.version", problem, "use v26.7.0, or operator_mode: cluster_policy")
        if operator.value("clusterPolicy.deployCR") is not False:
            problem = "GPUCluster and ClusterPolicy exclude each other"
            yield RuleFinding("overrides.gpu_operator.values.clusterPolicy.deployCR", problem, "write deployCR: false")
    elif uses_dra(platform.spec) and version >= _GPU_CLUSTER_LEAST:
        problem = (
            f"{operator.version} does DRA by GPUCluster; a separate DRA driver beside ClusterPolicy is documented up to 26.3 only"
        )
        yield RuleFinding("overrides.gpu_operator.version", problem, "use operator_mode: gpu_cluster, or v26.3.3", "warning")


@rule(
    "P05",
    "error",
    source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html",
    later=("os_prep/nodes", "gpu_operator/nodes"),
)
def one_driver(platform: Platform) -> Iterator[RuleFinding]:
    """Either the machine's image or the GPU Operator installs the driver, never both."""
    gpu, operator = platform.spec.accelerator, platform.releases.get("gpu_operator")
    if gpu is None or operator is None:
        return
    installs = operator.value("driver.enabled") is not False
    if installs and gpu.driver == "host":
        problem = "the machines have a driver and the GPU Operator would install another"
        yield RuleFinding("overrides.gpu_operator.values.driver.enabled", problem, "write driver.enabled: false")
    if not installs and gpu.driver == "operator":
        problem = "nobody installs a driver: the spec leaves it to the operator, and its value turns it off"
        yield RuleFinding("overrides.gpu_operator.values.driver.enabled", problem, "remove the value")


@rule(
    "P06",
    "error",
    source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/platform-support.html",
    later=("gpu_operator/nodes",),
)
def driver_branch(platform: Platform) -> Iterator[RuleFinding]:
    """The GPU Operator carries the driver branch, and the GPU product supports the driver."""
    gpu, pools = platform.spec.accelerator, gpu_pools(platform.spec)
    if gpu is None or gpu.driver_version is None:
        return
    path, version = "accelerator.driver_version", numbers(gpu.driver_version)
    if version[0] not in DRIVER_BRANCHES:
        branches = ", ".join(map(str, DRIVER_BRANCHES))
        problem = f"{gpu.driver_version} belongs to no branch that GPU Operator 26 carries ({branches})"
        yield RuleFinding(path, problem, "use a 580 driver", "error" if gpu.driver == "operator" else "warning")
    for accelerator in {pool.accelerator.product: pool.accelerator for pool in pools}.values():
        if version < accelerator.facts.least_driver:
            least = ".".join(map(str, accelerator.facts.least_driver))
            yield RuleFinding(path, f"{accelerator.product} needs driver {least} or later", f"use {least} or later")
    strategy = mig_strategy(platform.spec)
    if strategy == "mixed" and _BAD_MIXED_MIG[0] <= version <= _BAD_MIXED_MIG[1]:
        yield RuleFinding(
            path, f"with {gpu.driver_version} and mixed MIG, pods that request whole GPUs stay pending", "use a 580 driver"
        )
    if strategy and version[0] == 535:
        problem = (
            "with a 535 driver MIG profiles come from a static list, whose device filter may skip the GPU and still report success"
        )
        yield RuleFinding(path, problem, "use a 580 driver", "warning")


@rule(
    "P09",
    "error",
    source="https://github.com/NVIDIA/gpu-operator/blob/v26.3.3/assets/state-mig-manager/0400_configmap.yaml",
    later=("sharing/nodes",),
)
def mig_profile(platform: Platform) -> Iterator[RuleFinding]:
    """The GPU product has the MIG profile."""
    for pool in gpu_pools(platform.spec):
        gpu, sharing = pool.accelerator, pool.sharing
        if sharing.mode != "mig" or sharing.profile is None:
            continue
        profiles = gpu.facts.mig
        if not profiles:
            path = group_path(platform.spec, pool, "sharing.mode")
            yield RuleFinding(path, f"{gpu.product} has no MIG", "use time_slicing or mps, or no sharing")
        elif sharing.profile not in profiles:
            path = group_path(platform.spec, pool, "sharing.profile")
            yield RuleFinding(path, f"{gpu.product} has no profile {sharing.profile}", f"choose from {', '.join(profiles)}")


@rule("P10", "error", source="https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/", later=("gang/control", "gang/nodes"))
def quota_covers(platform: Platform) -> Iterator[RuleFinding]:
    """Kueue's quota covers the node labels and resources that exist after GPU sharing is on."""
    scheduler = platform.spec.scheduler
    if scheduler.quota == "none" or platform.spec.accelerator is None:
        return
    path, flavors = "scheduler.flavor.node_labels", quota_flavors(platform.spec)
    written = (scheduler.flavor.node_labels or {}).get(PRODUCT_LABEL)
    if not flavors:
        pools = gpu_pools(platform.spec)
        problem = "these labels select no GPU group, or groups that differ in product or sharing: "
        problem += "; ".join(f"{pool.shown} carry {PRODUCT_LABEL}={product_label(pool.spec)}" for pool in pools)
        if pools:
            step = (
                f"leave node_labels out, or name a label of one of them, as in {{bringup/group: {pools[0].name.replace('_', '-')}}}"
            )
            yield RuleFinding(path, problem, step)
        return
    expected = product_label(flavors[0].pools[0].spec)
    if written is not None and written != expected:
        problem = f"after sharing the nodes carry {PRODUCT_LABEL}={expected}, so this flavor matches none"
        yield RuleFinding(path, problem, f"write {PRODUCT_LABEL}: {expected}, or leave node_labels out")
    # GPUCluster runs no GPU feature discovery, which writes this label
    if has_gpu_cluster(platform.spec) and (scheduler.flavor.node_labels is None or written is not None):
        problem = f"with GPUCluster no node carries {PRODUCT_LABEL}, so this flavor matches none"
        yield RuleFinding(path, problem, "name a label of the GPU nodes, as in bringup/group: gpu")
    names = tuple(dict.fromkeys(name for flavor in flavors for name in flavor.resources))
    for name in scheduler.flavor.covered_resources:
        if name not in names and name.startswith("nvidia.com/"):
            problem = f"quota on {name} covers nothing: the nodes advertise {', '.join(names) or 'no GPU resource (DRA)'}"
            yield RuleFinding("scheduler.flavor.covered_resources", problem, "leave it out, or name what is advertised")
    counted = [group for flavor in flavors for group in flavor.groups]
    others = [name for pool in gpu_pools(platform.spec) for name in pool.groups if name not in counted]
    if others:
        shown = flavors[0].pools[0].shown
        problem = f"the flavor is for {shown}, so nothing counts who uses the GPUs of {', '.join(others)}"
        yield RuleFinding(path, problem, "accept it, or leave node_labels out and give quotas by group", "warning")
    if not names:
        yield RuleFinding("scheduler.quota", "Kueue's quota does not count DRA claims", "leave quota out", "warning")
    if scheduler.gang == "volcano":
        problem = "Kueue does not govern Volcano Jobs; only Job, MPIJob, JobSet and pods are under quota"
        yield RuleFinding("scheduler.quota", problem, "let tenants submit Jobs, MPIJobs or JobSets", "warning")
    yield from _quotas_by_group(platform, flavors)


def _quotas_by_group(platform: Platform, flavors: tuple[PoolFlavor, ...]) -> Iterator[RuleFinding]:
    """Yield the quotas of queues that do not say which flavor they are for, or that name groups which no flavor counts."""
    groups = [group for flavor in flavors for group in flavor.groups]
    if len(flavors) > MOST_FLAVORS:
        problem = f"{len(flavors)} products after sharing, each a flavor, and a queue of Kueue has at most {MOST_FLAVORS}"
        yield RuleFinding("scheduler.flavor", problem, "name the labels of one group in scheduler.flavor.node_labels")
    for index, queue in enumerate(platform.spec.scheduler.queues):
        path = f"scheduler.queues[{index}]"
        if queue.gpus_by_group is None and len(flavors) > 1:
            shown = "; ".join(f"{flavor.name} of group {', '.join(flavor.groups)}" for flavor in flavors)
            problem = (
                f"GPU groups differ in product after sharing, each with a flavor ({shown}), and gpus does not say which it is for"
            )
            step = f"write gpus_by_group: {{{flavors[0].groups[0]}: {queue.gpus}}}, or the label of one group in node_labels"
            yield RuleFinding(f"{path}.gpus", problem, step)
        for name in queue.gpus_by_group or ():
            if name not in groups:
                problem = f"no flavor counts the GPUs of a group {name}"
                yield RuleFinding(f"{path}.gpus_by_group.{name}", problem, f"choose from {', '.join(groups)}")
