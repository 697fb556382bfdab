"""The model of `cluster.yaml`: all sections of one cluster, and the facts that follow from them alone."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from workflows.spec.argocd_delivery import Delivery
from workflows.spec.fields import STAGES, ClusterName, DnsLabel, Listed, SecretRef, Section, SnakeId, StageName, Text
from workflows.spec.governance import Airgap, ApprovalPoint, Override, Quorum
from workflows.spec.hosts import Hosts
from workflows.spec.infrastructure import OsSettings, Rke2Settings, SshSettings, TargetCluster
from workflows.spec.machines import Machine, expand_groups
from workflows.spec.platform import Accelerator, Fabric, GpuSharing, SchedulerSettings
from workflows.spec.proxy import Proxy
from workflows.spec.rke2_parts import Image
from workflows.spec.roles import SiteRole
from workflows.spec.schedule import Events, Schedule
from workflows.spec.services import BaseServices, Slurm, Validation


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
        """All machines, in the order of their groups."""
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
        """The address that agents join: the one of the spec, else that of the first server."""
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
        wanted = STAGES if self.stages is None else self.stages
        return tuple(stage for stage in STAGES if stage in wanted and not idle.get(stage, False))
