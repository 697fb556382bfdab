"""What the cluster must show once a spec is carried out: resources per node, product label, sharing label, floors.

Several stages and rules need the same facts, so they are worked out once, here (`gpu_stack §1.5, §3.1, §3.2`).
"""

from __future__ import annotations

from workflows.spec.cluster import ClusterSpec
from workflows.spec.rke2_parts import MAX_PODS, MAX_PODS_FIELD

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
PRODUCT_LABEL = "nvidia.com/gpu.product"
GROUP_LABEL = "bringup/group"
"""Node label with the host group, set at registration; Slurm node sets select by it."""
_KEEPS_AWAY = (":NoSchedule", ":NoExecute")
SUNK_LOCK = "sunk.coreweave.com/lock"
"""Key of the taint that SUNK puts on a node that Slurm has in use: it evicts what does not tolerate it (`gpu_stack §7.1`)."""


def max_pods(spec: ClusterSpec) -> int:
    """Return how many pods a node takes: as the spec says by flag, else by field, else the kubelet's own 110. Registration states
    it as a flag, which wins over every field."""
    rke2 = spec.rke2
    return int(rke2.kubelet_args.get(MAX_PODS) or rke2.kubelet_config.get(MAX_PODS_FIELD, 110))


def allocatable(spec: ClusterSpec, gpus: int | None = None) -> dict[str, int]:
    """Return the extended resources that a node with `gpus` GPUs (default: per_node) must advertise after sharing.

    A resource that must be present and zero is listed with 0. With DRA nothing is advertised (devices are in ResourceSlices).
    """
    if spec.accelerator is None:
        return {}
    count = spec.accelerator.per_node if gpus is None else gpus
    sharing = spec.sharing
    match sharing.mode:
        case "time_slicing" | "mps":
            shares = count * (sharing.replicas or 1)
            return {SHARED: shares, GPU: 0} if sharing.rename else {GPU: shares}
        case "mig":
            instances = count * spec.accelerator.facts.mig.get(sharing.profile or "", 0)
            return {GPU: instances} if sharing.strategy == "single" else {f"nvidia.com/mig-{sharing.profile}": instances, GPU: 0}
        case "dra":
            return {}
        case _:
            return {GPU: count}


def advertised(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the resource names that pods can request, in order."""
    return tuple(name for name, count in allocatable(spec).items() if count)


def product_label(spec: ClusterSpec) -> str:
    """Return `nvidia.com/gpu.product` as it reads after sharing: shares without rename and MIG `single` change it."""
    if spec.accelerator is None:
        return ""
    label, sharing = spec.accelerator.label, spec.sharing
    if sharing.mode in ("time_slicing", "mps") and not sharing.rename:
        return f"{label}-SHARED"
    if sharing.mode == "mig" and sharing.strategy == "single":
        return f"{label}-MIG-{sharing.profile}"
    return label


def sharing_label(spec: ClusterSpec) -> tuple[str, str] | None:
    """Return the node label that turns sharing on, or None where none is needed.

    The GPU Operator is installed once with every sharing configuration in it; the label chooses, so installing it again
    never undoes the sharing stage.
    """
    match spec.sharing.mode:
        case "time_slicing" | "mps":
            return ("nvidia.com/device-plugin.config", "shared")
        case "mig":
            return ("nvidia.com/mig.config", f"all-{spec.sharing.profile}")
        case "dra" if spec.accelerator and spec.accelerator.operator_mode == "cluster_policy":
            return ("nvidia.com/dra-kubelet-plugin", "true")
        case _:
            return None


def slurm_groups(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the host groups that run Slurm: those that partitions name, else every GPU group, else every agent group."""
    named = {group for partition in spec.slurm.partitions for group in partition.groups}
    gpu = {name for name, group in spec.hosts.items() if group.gpu}
    agents = {name for name, group in spec.hosts.items() if group.role == "agent"}
    return tuple(name for name in spec.hosts if name in (named or gpu or agents))


def own_taints(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the keys of taints that the planned platform itself puts on nodes that are well. No other operator of the catalog
    has any: those that change drivers or virtual functions cordon a node, and Slinky drains it in Slurm.
    """
    return (SUNK_LOCK,) if spec.slurm.kind == "sunk" else ()


def ingress_groups(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the host groups on whose machines an ingress controller runs: its pods tolerate no taint, of the platform neither."""
    kept_away = {name for name, group in spec.hosts.items() if any(taint.endswith(_KEEPS_AWAY) for taint in group.taints)}
    kept_away |= set(slurm_groups(spec) if own_taints(spec) else ())
    return tuple(name for name in spec.hosts if name not in kept_away)


def node_labels(spec: ClusterSpec, group: str) -> dict[str, str]:
    """Return the labels a group's nodes get at registration: its own, and its name."""
    return {**spec.hosts[group].labels, GROUP_LABEL: group.replace("_", "-")}


def intra_node_floor(spec: ClusterSpec) -> float | None:
    """Return the NCCL floor inside a node in GB/s: the spec's, else the product's published one."""
    if spec.accelerator is None:
        return None
    return spec.validation.nccl.intra_node_floor_gb_s or spec.accelerator.facts.intra_node_floor_gb_s


def ib_write_bw_floor(spec: ClusterSpec) -> float | None:
    """Return the ib_write_bw floor per port in Gbit/s: the spec's, else the product's, at most 90 % of the port rate."""
    if spec.accelerator is None or spec.fabric.kind == "none":
        return None
    if spec.validation.ib_write_bw_floor_gbit_s is not None:
        return spec.validation.ib_write_bw_floor_gbit_s
    most = 0.9 * spec.fabric.rate_gbit
    return min(spec.accelerator.facts.ib_write_bw_floor_gbit_s or most, most)
