"""`cluster.yaml`: the whole spec of one cluster, and what follows from it without asking the world."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from workflows.spec.access import Os, Rke2, Ssh, Target
from workflows.spec.delivery import Delivery
from workflows.spec.fields import STAGES, ClusterName, DnsLabel, Listed, SecretRef, Section, SnakeId, StageName, Text
from workflows.spec.governance import Airgap, Approval, Override, Quorum
from workflows.spec.hosts import Hosts
from workflows.spec.machines import Machine, expand_groups
from workflows.spec.platform import Accelerator, Fabric, Scheduler, Sharing
from workflows.spec.proxy import Proxy
from workflows.spec.rke2_parts import Image
from workflows.spec.roles import Role
from workflows.spec.schedule import Events, Schedule
from workflows.spec.services import BaseServices, Slurm, Validation


class ClusterSpec(Section):
    """What a user writes in cluster.yaml."""

    api_version: Literal["bringup/v1"] = Field(alias="apiVersion", description="Version of this format.", examples=["bringup/v1"])
    kind: Literal["Cluster"] = Field(description="What the file describes.", examples=["Cluster"])
    name: ClusterName = Field(
        description="Name of the cluster: lower-case letters, digits and dashes, at most 40.", examples=["h200-16"]
    )
    owner: Text = Field(description="Person or team that answers for it.", examples=["gpu-platform@example.org"])
    revision: Text = Field(description="Your revision of this file; it is in every report.", examples=["2026-11-21.1"])
    site: DnsLabel | None = Field(default=None, description="Site, for catalog overlays of your own.", examples=["lab-a"])
    target: Target = Field(default=Target(), description="The cluster that is built.")
    hosts: Hosts = Field(description="Groups of machines.")
    ssh: Ssh = Field(default=Ssh(), description="SSH to the machines.")
    proxy: Proxy | None = Field(default=None, description="HTTP proxies of the machines; default: none.")
    os: Os = Field(default=Os(), description="The operating system that the machines run.")
    rke2: Rke2 = Field(default=Rke2(), description="RKE2.")
    accelerator: Accelerator | None = Field(default=None, description="The GPUs; none for a cluster without.")
    fabric: Fabric = Field(default=Fabric(), description="The high-speed network.")
    sharing: Sharing = Field(default=Sharing(), description="How GPUs are shared.")
    scheduler: Scheduler = Field(default=Scheduler(), description="Gang scheduling and quota.")
    slurm: Slurm = Field(default=Slurm(), description="Slurm on Kubernetes.")
    base_services: BaseServices = Field(default=BaseServices(), description="Services that later stages need.")
    validation: Validation = Field(default=Validation(), description="What the platform must show.")
    check_image: Image = Field(
        default="docker.io/library/busybox:1.37.0",
        description="Image with busybox, by tag or digest, of the checks in stages rke2, base_services and gang.",
        examples=["registry.example.org:5000/library/busybox:1.37.0"],
    )
    delivery: Delivery = Field(default=Delivery(), description="Who installs charts.")
    quorum: Quorum = Field(default=Quorum(), description="How many nodes must pass.")
    roles: Annotated[tuple[Role, ...], Listed] = Field(
        default=(), description="Ansible roles of your own before or after a stage; they run as root on the machines."
    )
    approvals: Annotated[tuple[Approval, ...], Listed] = Field(default=(), description="Points where a person decides.")
    schedule: Schedule | None = Field(default=None, description="When Argo runs it by itself; default: only when asked.")
    events: Events = Field(default=(), description="Events on which Argo runs it; default: none.")
    secrets: Mapping[SnakeId, SecretRef] = Field(
        default={}, description="Further secrets by reference.", examples=[{"registry": {"env": "REGISTRY_TOKEN"}}]
    )
    overrides: Mapping[SnakeId, Override] = Field(default={}, description="What differs from the catalog, by component.")
    airgap: Airgap | None = Field(default=None, description="Mirrors, for a site without internet.")
    stages: Annotated[tuple[StageName, ...], Listed] | None = Field(
        default=None,
        description="Run only these stages; default: every stage that this file gives work to.",
        examples=[["os_prep", "rke2"]],
    )

    @cached_property
    def machines(self) -> tuple[Machine, ...]:
        """Every machine, groups in order."""
        return expand_groups(self.hosts, self.accelerator.per_node if self.accelerator else 0)

    @property
    def servers(self) -> tuple[Machine, ...]:
        """The control-plane machines."""
        return tuple(machine for machine in self.machines if machine.role == "server")

    @property
    def gpu_machines(self) -> tuple[Machine, ...]:
        """The machines with GPUs."""
        return tuple(machine for machine in self.machines if machine.gpu)

    @property
    def registration_address(self) -> str:
        """Where agents join: as written, else the first server's address."""
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
