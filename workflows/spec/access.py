"""How machines and the target cluster are reached, and what runs on them below Kubernetes workloads: SSH, OS, RKE2."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from workflows.spec import rke2_parts as parts
from workflows.spec.fields import AbsolutePath, Argument, Listed, OneOrMore, SecretRef, Section, Url, problem
from workflows.spec.hosts import Address, ApiServer, Cidr4, JumpHosts, SshPort, SshProxy, SshUser
from workflows.spec.node import Dns, Hugepages, InterfaceName, KernelParameter, Mount, Network, PciAddress, Route, User
from workflows.spec.policy_repository import PolicyRepository
from workflows.spec.proxy import User as ProxyUser
from workflows.spec.proxy import require_whole_login

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
    server: ApiServer | None = Field(
        default=None,
        description="Where the run reaches the API server, if not at port 6443 of rke2.registration_address: as through a tunnel, "
        "which you keep open while the run lasts (with the argo engine the pods must reach it). It goes into the kubeconfig that "
        "RKE2 makes during the run.",
        examples=["https://127.0.0.1:6443"],
    )
    tls_server_name: Address | None = Field(
        default=None,
        description="Name or address by which the API server's certificate is checked there; default: rke2.registration_address.",
        examples=["api.cluster.example.org"],
    )

    @model_validator(mode="after")
    def _a_name_has_a_server(self) -> "Target":
        if self.tls_server_name and not self.server:
            raise problem("tls_server_name is for target.server, which is not given", "write server: https://HOST:PORT beside it")
        return self


class Ssh(Section):
    """SSH to the machines."""

    user: SshUser = Field(default="root", description="User that logs in; any but root needs sudo.", examples=["bringup"])
    key: SecretRef | None = Field(default=None, description="Private key; default: the running SSH agent's keys.")
    port: SshPort = Field(default=22, description="Port.", examples=[22])
    jump_host: JumpHosts | None = Field(
        default=None,
        description="Host to jump through, as user@host:port; several with commas between, the nearest first.",
        examples=["ops@bastion.example.org:22"],
    )
    http_proxy: SshProxy | None = Field(
        default=None,
        description="HTTP proxy that SSH itself goes through, where this machine has no way of its own to the machines: to them, "
        "or to the first jump host. It must allow CONNECT to their SSH port.",
        examples=["http://proxy.example.org:3128"],
    )
    http_proxy_user: ProxyUser | None = Field(
        default=None, description="User, where that proxy wants a login (Basic).", examples=["bringup"]
    )
    http_proxy_password: SecretRef | None = Field(default=None, description="Its password.")
    host_key_policy: Literal["strict", "accept_new"] = Field(
        default="strict",
        description="strict: only keys in known_hosts. accept_new: a host that known_hosts does not name is believed at its first "
        "contact; its key is kept in the store of the runs (met/CLUSTER), and no other one is taken from then on.",
        examples=["strict"],
    )
    known_hosts: Argument | None = Field(
        default=None,
        description="Path of the known_hosts file, relative to the spec; default: the user's. Runs never write it.",
        examples=["./known_hosts"],
    )
    sudo_password: SecretRef | None = Field(default=None, description="Password for sudo, where sudo asks for one.")
    post_quantum: bool = Field(
        default=False,
        description="Whether SSH keeps its own order of key exchanges, the post-quantum ones first. Costs 80 ms of CPU a login "
        "where that chooses sntrup761 (OpenSSH 9.0 to 9.9). With false sntrup761 comes last: machines before 9.9 get curve25519, "
        "so that who records sessions now could read them with a quantum computer one day; from 9.9 on mlkem768 is used, which "
        "is post-quantum too.",
        examples=[True],
    )

    @model_validator(mode="after")
    def _a_login_is_whole(self) -> "Ssh":
        require_whole_login(self.http_proxy_user, self.http_proxy_password, "a proxy's login", "http_proxy_")
        return self


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
        description="Free space that folders need before RKE2 is set up, in GiB; images of the GPU stack alone take 25. Later on "
        "5 % of the disk are enough (2 GiB at least, never more than this).",
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
    kernel_parameters: Annotated[tuple[KernelParameter, ...], Listed, Field(max_length=30)] = Field(
        default=(),
        description="Further words of the kernel's command line, on GPU machines (on all where none has GPUs).",
        examples=[["intel_iommu=on"]],
    )
    hugepages: Hugepages | None = Field(default=None, description="Huge pages; default: as they are.")
    peer_to_peer: bool | None = Field(
        default=None,
        description="Whether GPUs and NICs must reach each other directly: PCIe ACS off, and iommu=pt on the kernel's command line "
        "(default: where GPU machines have a fabric, but not on GB200, which needs its maker's own settings).",
        examples=[True],
    )
    dns: Dns | None = Field(default=None, description="DNS; default: as it is.")
    users: Annotated[tuple[User, ...], Listed, Field(max_length=10)] = Field(default=(), description="Accounts on every machine.")
    interface_names: Annotated[Mapping[InterfaceName, PciAddress], Field(max_length=40)] = Field(
        default={},
        description="Names of interfaces by the PCI address of each (`lspci -D`), on GPU machines (on all where none has GPUs); "
        "default: as they are.",
        examples=[{"fab0": "0000:18:00.0"}],
    )
    routes: Annotated[tuple[Route, ...], Listed, Field(max_length=20)] = Field(
        default=(), description="Routes of the fabric, on GPU machines (on all where none has GPUs)."
    )
    mounts: Mapping[AbsolutePath, Mount] = Field(
        default={}, description="Folders that must be file systems of their own.", examples=[{"/var/lib/rancher": {}}]
    )
    apparmor: Literal["enabled", "disabled"] | None = Field(
        default=None, description="AppArmor (Debian, Ubuntu, SLES); default: as it is.", examples=["enabled"]
    )
    selinux: Literal["enforcing", "permissive"] | None = Field(
        default=None,
        description="Mode of SELinux (RHEL family); default: as it is, which must not be enforcing: RKE2's policy comes with this.",
        examples=["enforcing"],
    )
    rke2_repository: PolicyRepository = Field(
        default=PolicyRepository(), description="Where that policy (package rke2-selinux) comes from, with selinux: enforcing."
    )
    firewall: Literal["stop", "keep"] = Field(
        default="stop",
        description="Whether firewalld and ufw are stopped, as RKE2 advises, or left as they are: one that runs then lets in what "
        "the cluster needs, also after a boot. What was let in is not taken back, by a reset neither. Rules that nftables or "
        "others load stay the site's.",
        examples=["keep"],
    )
    firewall_networks: Annotated[tuple[Network, ...], Listed, Field(max_length=8)] = Field(
        default=(),
        description="Networks of the cluster's machines, from which alone a firewall that is kept lets in what machines say to "
        "each other. Default: from anywhere, VXLAN and etcd too. The API's ports (6443, 9345) are open to all in either case.",
        examples=[["10.10.0.0/16"]],
    )

    @model_validator(mode="after")
    def _one_of_each(self) -> "Os":
        names = [user.name for user in self.users]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise problem(f"users has {twice[0]} twice", "give each user once, with all keys")
        slots, routes = list(self.interface_names.values()), [route.to for route in self.routes]
        if twice := sorted({slot for slot in slots if slots.count(slot) > 1}):
            raise problem(f"interface_names has {twice[0]} twice", "give each interface one name")
        if twice := sorted({to for to in routes if routes.count(to) > 1}):
            raise problem(f"routes has {twice[0]} twice", "give each network one route")
        return self

    @model_validator(mode="after")
    def _networks_are_of_a_firewall(self) -> "Os":
        if self.firewall_networks and self.firewall == "stop":
            raise problem("firewall_networks is for a firewall that is kept", "add firewall: keep, or remove firewall_networks")
        return self

    @model_validator(mode="after")
    def _apparmor_is_said_once(self) -> "Os":
        said = [word for word in self.kernel_parameters if word.partition("=")[0] in ("apparmor", "security", "lsm")]
        if self.apparmor and said:
            raise problem(
                f"kernel_parameters has {said[0]}, and apparmor is {self.apparmor}", f"leave one out: {said[0]}, or apparmor"
            )
        return self


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
        default=None,
        description="Registry that mirrors docker.io and the others; with a path, images lie below it (HOST/PATH/rancher/…).",
        examples=["registry.example.org:5000"],
    )
    registries: Mapping[parts.RegistryName, parts.RegistryAccess] = Field(
        default={},
        description="Mirrors, logins and certificates by registry, those of a mirror by the mirror's host and port; * is every "
        "registry that is not named, be it for a login alone.",
        examples=[{"docker.io": {"endpoints": ["https://mirror.example.org:5000"]}}],
    )
    registry_fallback: bool = Field(
        default=True,
        description="Whether a registry itself is asked where its mirrors fail. With false images come from mirrors alone, which "
        "needs one for all (registry_mirror, or *): a registry without one can be used only if it is named in registries with "
        "itself as an endpoint.",
        examples=[False],
    )
    profile: Literal["none", "cis"] = Field(default="none", description="Hardening profile.", examples=["none"])
    audit: Literal["none", "metadata", "request_response"] = Field(
        default="none",
        description="What the API server's audit log holds of each request; never bodies of Secrets.",
        examples=["metadata"],
    )
    etcd_snapshots: parts.EtcdSnapshots = Field(default=parts.EtcdSnapshots(), description="When servers save etcd.")
    virtual_address: parts.VirtualAddress | None = Field(
        default=None,
        description="Have the servers hold registration_address themselves (kube-vip); default: a load balancer of yours does.",
    )
    cluster_cidr: Cidr4 = Field(default="10.42.0.0/16", description="Pod network (IPv4); /24 per node.", examples=["10.32.0.0/11"])
    service_cidr: Cidr4 = Field(default="10.43.0.0/16", description="Service network (IPv4).", examples=["10.43.0.0/16"])
    ingress_controller: Literal["none", "ingress-nginx", "traefik"] | None = Field(
        default=None,
        description="Ingress controller; default: what the release gives new clusters (traefik from v1.36, ingress-nginx before).",
        examples=["traefik"],
    )
    etcd_fsync_ms: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=10.0,
        description="Longest that 99 of 100 writes of etcd's log may take on a server's disk, in ms; etcd's FAQ advises 10.",
        examples=[10.0],
    )
    kubelet_args: parts.KubeletArgs = Field(
        default={}, description="Kubelet flags without the dashes.", examples=[{"topology-manager-policy": "best-effort"}]
    )
    kubelet_config: parts.KubeletConfig = Field(
        default={},
        description="Fields of KubeletConfiguration, for a drop-in; kubelet_args win.",
        examples=[{"reservedSystemCPUs": "0-3"}],
    )
    join_token: SecretRef | None = Field(default=None, description="Cluster token; default: made at run time and kept in home.")
    join_batch: Annotated[int, Field(ge=1, le=50)] = Field(
        default=25, description="Agents that join at once; RKE2 advises at most 50 (peers §2).", examples=[25]
    )
    upgrade_batch: Annotated[int, Field(ge=1, le=50)] = Field(
        default=10, description="Agents of a shard of 50 that are drained and upgraded at once.", examples=[10]
    )
    drain_seconds: Annotated[int, Field(ge=10, le=1080)] = Field(
        default=600,
        description="Longest time until the pods of a node are gone before its upgrade; then it keeps its release.",
        examples=[600],
    )
    source: Url | None = Field(
        default=None,
        description="Where machines download release files: SOURCE/VERSION/FILE; default: RKE2's own releases.",
        examples=["https://files.example.org/rke2"],
    )
    images: Annotated[tuple[parts.Archive, ...], Listed] = Field(
        default=(),
        description="Image archives to have on each machine before its first start; all is the one of core and canal. A file name "
        "(.tar, or with .gz, .zst, .bz2, .lz4) is one of yours in the folder artifacts, listed in sha256sum-site-amd64.txt there.",
        examples=[["core", "canal", "checks.tar"]],
    )
    artifacts: AbsolutePath | None = Field(
        default=None,
        description="Folder on each machine with the release files, for machines without internet.",
        examples=["/srv/rke2"],
    )
