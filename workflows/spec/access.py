"""How machines and the target cluster are reached, and what runs on them below Kubernetes workloads: SSH, OS, RKE2."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from workflows.spec.fields import AbsolutePath, Argument, Listed, OneOrMore, SecretRef, Section
from workflows.spec.hosts import Address, Cidr, SshPort, SshUser

Registry = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._/-]+)?$", max_length=300)]
"""A registry host with port and path, without scheme."""


class Target(Section):
    """The cluster that the bring-up builds (design §4)."""

    uid: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")] | None = Field(
        default=None,
        description="UID of the target's kube-system namespace, once known; a run against another cluster stops before it writes.",
        examples=["0b9ac1f0-3a0c-4f0a-9d53-1df3bb8d7f4e"],
    )
    kubeconfig: SecretRef | None = Field(
        default=None, description="Kubeconfig of the target; default: the one RKE2 makes during the run."
    )


class Ssh(Section):
    """SSH to the machines."""

    user: SshUser = Field(default="root", description="User that logs in; any but root needs sudo.", examples=["bringup"])
    key: SecretRef | None = Field(default=None, description="Private key; default: the running SSH agent's keys.")
    port: SshPort = Field(default=22, description="Port.", examples=[22])
    jump_host: Annotated[str, StringConstraints(pattern=r"^([a-z_][a-z0-9_-]*@)?[A-Za-z0-9.-]+(:[0-9]{1,5})?$")] | None = Field(
        default=None, description="Host to jump through, as user@host:port.", examples=["ops@bastion.example.org:22"]
    )
    host_key_policy: Literal["strict", "accept_new"] = Field(
        default="strict",
        description="strict: only keys in known_hosts; accept_new: record unknown keys, refuse changed ones.",
        examples=["strict"],
    )
    known_hosts: Argument | None = Field(
        default=None,
        description="Path of the known_hosts file, relative to the spec; default: the user's.",
        examples=["./known_hosts"],
    )
    sudo_password: SecretRef | None = Field(default=None, description="Password for sudo, where sudo asks for one.")


class Os(Section):
    """The operating system that the machines run already."""

    distribution: Literal["ubuntu", "debian", "rhel", "rocky", "almalinux", "sles"] = Field(
        default="ubuntu", description="Expected distribution (ID in /etc/os-release).", examples=["ubuntu"]
    )
    version: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,2}(\.[0-9]{1,2})?$")] = Field(
        default="24.04", description="Expected VERSION_ID, in quotes.", examples=["24.04"]
    )
    kernel: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?[A-Za-z0-9._+-]*$")] | None = Field(
        default=None, description="Expected start of `uname -r`; default: any.", examples=["6.8.0"]
    )
    free_disk_gib: Mapping[AbsolutePath, Annotated[int, Field(ge=1, le=1_000_000)]] = Field(
        default={"/var/lib/rancher": 40},
        description="Free space that folders need, in GiB; images of the GPU stack alone take 25.",
        examples=[{"/var/lib/rancher": 200}],
    )
    tolerate: Annotated[tuple[Argument, ...], Listed] = Field(
        default=(),
        description="Items of the node profile (shell patterns) that these machines may lack.",
        examples=[["time service"]],
    )
    time_servers: Annotated[tuple[Address, ...], Listed] = Field(
        default=(), description="NTP servers; default: the distribution's.", examples=[["ntp.example.org"]]
    )
    reboot: bool = Field(default=True, description="Whether OS prep may reboot a machine that needs it.", examples=[True])


class Rke2(Section):
    """RKE2."""

    version: Annotated[str, StringConstraints(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)[0-9]+)?\+rke2r[0-9]+$")] = Field(
        default="v1.35.7+rke2r1",
        description="Release with its RKE2 revision, as the kubelet prints it.",
        examples=["v1.35.7+rke2r1"],
    )
    cni: Annotated[tuple[Literal["multus", "canal", "calico", "cilium", "flannel"], ...], OneOrMore] = Field(
        default=("canal",), description="CNI plugins; multus stands first where used.", examples=[["multus", "canal"]]
    )
    registration_address: Address | None = Field(
        default=None,
        description="Address in front of all servers that agents join (port 9345); required with 3 or 5 servers.",
        examples=["10.10.0.10"],
    )
    tls_san: Annotated[tuple[Address, ...], Listed] = Field(
        default=(), description="Further names in the API certificate.", examples=[["api.cluster.example.org"]]
    )
    registry_mirror: Registry | None = Field(
        default=None, description="Registry that mirrors docker.io and the others.", examples=["registry.example.org:5000"]
    )
    profile: Literal["none", "cis"] = Field(default="none", description="Hardening profile.", examples=["none"])
    cluster_cidr: Cidr = Field(default="10.42.0.0/16", description="Pod network; /24 of it per node.", examples=["10.32.0.0/11"])
    service_cidr: Cidr = Field(default="10.43.0.0/16", description="Service network.", examples=["10.43.0.0/16"])
    kubelet_args: Mapping[
        Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{1,60}$")],
        Annotated[str, StringConstraints(pattern=r"^[^\n\x00]{1,300}$")],
    ] = Field(default={}, description="Kubelet flags without the dashes.", examples=[{"topology-manager-policy": "best-effort"}])
    join_token: SecretRef | None = Field(default=None, description="Cluster token; default: made at run time and kept in home.")
    join_batch: Annotated[int, Field(ge=1, le=50)] = Field(
        default=25, description="Agents that join at once; RKE2 advises at most 50 (peers §2).", examples=[25]
    )
    artifacts: AbsolutePath | None = Field(
        default=None,
        description="Folder on each machine with the release files, for machines without internet.",
        examples=["/srv/rke2"],
    )
