"""The model of `cluster.yaml`: all sections of one cluster, and the facts that follow from them alone.

The labels and resources are those of the GPU Operator
(https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-sharing.html).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from steps.contract.node_taints import SUNK_LOCK
from workflows.spec import floor_table
from workflows.spec.fields import ClusterName, DnsLabel, Listed, SecretRef, Section, SnakeId, Text
from workflows.spec.machines import Machine, expand_groups
from workflows.spec.sections.argocd_delivery import Delivery
from workflows.spec.sections.governance import ApprovalPoint, Override, Quorum
from workflows.spec.sections.gpus import Accelerator, GpuSharing
from workflows.spec.sections.hosts import Hosts
from workflows.spec.sections.infrastructure import Airgap, OsSettings, Rke2Settings, SshSettings, TargetCluster
from workflows.spec.sections.platform import Fabric, SchedulerSettings
from workflows.spec.sections.proxy import Proxy
from workflows.spec.sections.rke2_parts import MAX_PODS, MAX_PODS_FIELD, Image
from workflows.spec.sections.roles import SiteRole
from workflows.spec.sections.schedule import Events, Schedule
from workflows.spec.sections.services import BaseServices, Validation
from workflows.spec.sections.slurm_section import Slurm
from workflows.stage_names import STAGES, StageName


class ClusterSpec(Section):
    """The content of `cluster.yaml`."""

    api_version: Literal["bringup/v1"] = Field(alias="apiVersion", description="Version of this format.", examples=["bringup/v1"])
    kind: Literal["Cluster"] = Field(description="What the file describes.", examples=["Cluster"])
    name: ClusterName = Field(
        description="Name of the cluster: lower-case letters, digits and dashes, at most 40.", examples=["h200-16"]
    )
    owner: Text = Field(description="Person or team that is responsible for the cluster.", examples=["gpu-platform@example.org"])
    revision: Text = Field(description="Your revision of this file, shown in every report.", examples=["2026-11-21.1"])
    site: DnsLabel | None = Field(
        default=None, description="Name of the site, for criteria of catalog overlays.", examples=["lab-a"]
    )
    target: TargetCluster = Field(default=TargetCluster(), description="The cluster that the run builds.")
    hosts: Hosts = Field(description="Groups of machines.")
    ssh: SshSettings = Field(default=SshSettings(), description="SSH to the machines.")
    proxy: Proxy | None = Field(default=None, description="HTTP proxies of the machines; default: none.")
    os: OsSettings = Field(default=OsSettings(), description="The operating system that the machines run.")
    rke2: Rke2Settings = Field(default=Rke2Settings(), description="RKE2.")
    accelerator: Accelerator | None = Field(default=None, description="The GPUs; default: a cluster without GPUs.")
    fabric: Fabric = Field(default=Fabric(), description="The high-speed network.")
    sharing: GpuSharing = Field(default=GpuSharing(), description="How GPUs are shared.")
    scheduler: SchedulerSettings = Field(default=SchedulerSettings(), description="Gang scheduling and quota.")
    slurm: Slurm = Field(default=Slurm(), description="Slurm on Kubernetes.")
    base_services: BaseServices = Field(default=BaseServices(), description="Services that later stages need.")
    validation: Validation = Field(default=Validation(), description="Tests that the platform must pass to be accepted.")
    check_image: Image = Field(
        default="docker.io/library/busybox:1.37.0",
        description="Image with busybox for the checks in stages rke2, base_services and gang, with tag or digest.",
        examples=["registry.example.org:5000/library/busybox:1.37.0"],
    )
    delivery: Delivery = Field(default=Delivery(), description="Owner of chart releases.")
    quorum: Quorum = Field(default=Quorum(), description="How many nodes must pass each stage.")
    roles: Annotated[tuple[SiteRole, ...], Listed] = Field(
        default=(),
        description="Ansible roles of the site before or after a stage; they run as root on the machines. Default: none.",
    )
    approvals: Annotated[tuple[ApprovalPoint, ...], Listed] = Field(
        default=(), description="Points at which the run waits for an approval; default: none."
    )
    schedule: Schedule | None = Field(default=None, description="When Argo starts runs by itself; default: never.")
    events: Events = Field(default=(), description="Events on which Argo starts runs; default: none.")
    secrets: Mapping[SnakeId, SecretRef] = Field(
        default={},
        description="Further secrets by reference, for roles; default: none.",
        examples=[{"registry": {"env": "REGISTRY_TOKEN"}}],
    )
    overrides: Mapping[SnakeId, Override] = Field(
        default={}, description="Differences from the catalog by component; default: none."
    )
    airgap: Airgap | None = Field(default=None, description="Mirrors for a site without internet; default: a site with internet.")
    stages: Annotated[tuple[StageName, ...], Listed] | None = Field(
        default=None,
        description="Run only these stages; default: every stage that this file gives work to.",
        examples=[["os_prep", "rke2"]],
    )

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """All machines of the spec, in the order of their groups."""
        return expand_groups(self.hosts, self.accelerator.per_node if self.accelerator else 0)

    @property
    def servers(self) -> tuple[Machine, ...]:
        """Machines of the control plane."""
        return tuple(machine for machine in self.machines if machine.role == "server")

    @property
    def gpu_machines(self) -> tuple[Machine, ...]:
        """Machines with GPUs."""
        return tuple(machine for machine in self.machines if machine.gpu)

    @property
    def registration_address(self) -> str:
        """The address that agents join: the spec's, else that of the first server; empty without a server."""
        servers = self.servers
        return self.rke2.registration_address or (servers[0].address if servers else "")

    def enabled_stages(self) -> tuple[StageName, ...]:
        """Return the stages that this spec gives work to, in running order."""
        idle = {
            "gpu_operator": self.accelerator is None,
            "network_operator": self.fabric.kind == "none",
            "sharing": self.accelerator is None,  # mode none is shown as well: that GPUs are not shared
            "gang": self.scheduler.gang == "none" and self.scheduler.quota == "none",
            "slurm": self.slurm.kind == "none",
        }
        selected = STAGES if self.stages is None else self.stages
        return tuple(stage for stage in STAGES if stage in selected and not idle.get(stage, False))


GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
PRODUCT_LABEL = "nvidia.com/gpu.product"
GROUP_LABEL = "bringup/group"
"""Node label with the host group, set at registration. Slurm node sets select their nodes by this label."""
_KEEPS_AWAY = (":NoSchedule", ":NoExecute")


def max_pods(spec: ClusterSpec) -> int:
    """Return how many pods a node takes: by kubelet flag, else by configuration field, else 110 as kubelets do by default.

    Registration always states the number as a flag, which wins over a field.
    """
    rke2 = spec.rke2
    return int(rke2.kubelet_args.get(MAX_PODS) or rke2.kubelet_config.get(MAX_PODS_FIELD, 110))


def allocatable(spec: ClusterSpec, gpus: int | None = None) -> dict[str, int]:
    """Return the extended resources that a node with `gpus` GPUs (default: per_node) advertises after sharing.

    A resource that must be present with the value 0 is listed with 0. DRA advertises nothing: its devices are in ResourceSlices.
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
    """Return the names of the resources that pods can request, in order."""
    return tuple(name for name, count in allocatable(spec).items() if count)


def has_gpu_cluster(spec: ClusterSpec) -> bool:
    """Return True if the GPU Operator runs with a GPUCluster: all GPUs are DRA devices, and there is no device plugin."""
    return spec.accelerator is not None and spec.accelerator.operator_mode == "gpu_cluster"


def product_label(spec: ClusterSpec) -> str:
    """Return the value of label `nvidia.com/gpu.product` after sharing; shares without rename and MIG mode `single` change it."""
    if spec.accelerator is None:
        return ""
    label, sharing = spec.accelerator.label, spec.sharing
    if sharing.mode in ("time_slicing", "mps") and not sharing.rename:
        return f"{label}-SHARED"
    if sharing.mode == "mig" and sharing.strategy == "single":
        return f"{label}-MIG-{sharing.profile}"
    return label


def sharing_label(spec: ClusterSpec) -> tuple[str, str] | None:
    """Return key and value of the node label that turns sharing on; None if no label is needed.

    The GPU Operator is installed once with every sharing configuration, and the label chooses one, so that a second install of the
    operator never undoes the stage sharing.
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


def slinky_name(machine: str) -> str:
    """Return the name that a machine's node has in a Slurm by Slinky: its own up to the first dot."""
    return machine.partition(".")[0]


def slurm_groups(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the host groups that run Slurm: those named by partitions, else every GPU group, else every agent group."""
    named = {group for partition in spec.slurm.partitions for group in partition.groups}
    gpu = {name for name, group in spec.hosts.items() if group.gpu}
    agents = {name for name, group in spec.hosts.items() if group.role == "agent"}
    return tuple(name for name in spec.hosts if name in (named or gpu or agents))


def own_taints(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the keys of taints that the planned platform itself sets on healthy nodes.

    Only SUNK sets one. Operators that change drivers or virtual functions cordon a node instead, and Slinky drains it in Slurm.
    """
    return (SUNK_LOCK,) if spec.slurm.kind == "sunk" else ()


def gpu_groups(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the host groups whose machines have GPUs."""
    return tuple(name for name, group in spec.hosts.items() if group.gpu)


def keeping_taints(spec: ClusterSpec, groups: Iterable[str]) -> tuple[str, ...]:
    """Return the taints of host groups that keep pods away which do not tolerate them, each once."""
    return tuple(dict.fromkeys(taint for name in groups for taint in spec.hosts[name].taints if taint.endswith(_KEEPS_AWAY)))


def ingress_groups(spec: ClusterSpec) -> tuple[str, ...]:
    """Return the host groups whose machines run an ingress controller: those without taints, because its pods tolerate none."""
    kept_away = {name for name, group in spec.hosts.items() if any(taint.endswith(_KEEPS_AWAY) for taint in group.taints)}
    kept_away |= set(slurm_groups(spec) if own_taints(spec) else ())
    return tuple(name for name in spec.hosts if name not in kept_away)


def node_labels(spec: ClusterSpec, group: str) -> dict[str, str]:
    """Return the labels that nodes of a group get at registration: those of the spec, and `bringup/group` with the group's name."""
    return {**spec.hosts[group].labels, GROUP_LABEL: group.replace("_", "-")}


def intra_node_floor(spec: ClusterSpec) -> float | None:
    """Return the NCCL bandwidth floor inside a node in GB/s: the spec's value, else the product's published one, else None."""
    if spec.accelerator is None:
        return None
    return spec.validation.nccl.intra_node_floor_gb_s or _published(spec.accelerator, "all_reduce")


def ib_write_bw_floor(spec: ClusterSpec) -> float | None:
    """Return the ib_write_bw floor per port in Gbit/s: the spec's value, else the product's; None without GPUs or fabric.

    The product's value is capped at 90 % of the port rate, which also stands for an unknown one.
    """
    if spec.accelerator is None or spec.fabric.kind == "none":
        return None
    if spec.validation.ib_write_bw_floor_gbit_s is not None:
        return spec.validation.ib_write_bw_floor_gbit_s
    most = 0.9 * spec.fabric.rate_gbit
    return min(_published(spec.accelerator, "ib_write_bw", spec.fabric.kind) or most, most)


def collective_floor(spec: ClusterSpec, operation: str) -> float | None:
    """Return the floor of all_gather or alltoall over all GPU machines in GB/s: the spec's, else a published one, else None."""
    if spec.accelerator is None:
        return None
    own = {"all_gather": spec.validation.nccl.all_gather_floor_gb_s, "alltoall": spec.validation.nccl.alltoall_floor_gb_s}
    nodes, fabric = len(spec.gpu_machines), spec.fabric.kind
    return own[operation] or _published(spec.accelerator, operation, "" if fabric == "none" else fabric, nodes)


def gpu_floors(spec: ClusterSpec) -> dict[str, float]:
    """Return the floors of each GPU by itself: `gemm` in TFLOPS, `host` and `between` in GB/s; without those that are unknown."""
    if spec.accelerator is None:
        return {}
    own = spec.validation.gpu_floors
    floors = {
        "gemm": own.gemm_tflops,
        "host": own.host_gb_s or _published(spec.accelerator, "host_copy"),
        "between": own.peer_gb_s or _published(spec.accelerator, "peer_copy"),
    }
    return {name: floor for name, floor in floors.items() if floor is not None}


def adapters_floor(spec: ClusterSpec) -> float | None:
    """Return the floor of NCCL inside a node over its adapters alone in GB/s: the spec's value, else a published one, else None."""
    if spec.accelerator is None or spec.fabric.kind == "none":
        return None
    return spec.validation.gpu_floors.adapters_gb_s or _published(spec.accelerator, "adapters", spec.fabric.kind)


def _published(accelerator: Accelerator, operation: str, fabric: str = "", nodes: int = 1) -> float | None:
    entry = floor_table.resolve(accelerator.facts.name, operation, nodes=nodes, fabric=fabric)
    return entry.floor if entry else None
