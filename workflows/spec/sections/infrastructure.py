"""The infrastructure sections of a spec: target cluster, SSH access, operating system and RKE2."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from workflows.spec.fields import AbsolutePath, Argument, Digest, Listed, OneOrMore, SecretRef, Section, SnakeId, Url, problem
from workflows.spec.sections import rke2_parts
from workflows.spec.sections.hosts import Address, ApiServer, Cidr4, JumpHosts, SshPort, SshProxy, SshUser
from workflows.spec.sections.node import (
    Dns,
    Hugepages,
    InterfaceName,
    KernelParameter,
    Network,
    PciAddress,
    PolicyRepository,
    RequiredMount,
    Route,
    UserAccount,
)
from workflows.spec.sections.proxy import User as ProxyUser
from workflows.spec.sections.proxy import require_whole_login
from workflows.spec.sections.rke2_parts import EtcdSnapshots, VirtualAddress

Registry = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._/-]+)?$", max_length=300)]
"""A registry host with optional port and path, without a scheme."""


class TargetCluster(Section):
    """Section `target` of a spec: the cluster that the bring-up builds, and how its API server is reached."""

    uid: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")] | None = Field(
        default=None,
        description="UID of the target's kube-system namespace, once known; a run against another cluster stops before it writes.",
        examples=["0b9ac1f0-3a0c-4f0a-9d53-1df3bb8d7f4e"],
    )
    kubeconfig: SecretRef | None = Field(
        default=None, description="Kubeconfig of the target; default: the one that RKE2 creates during the run."
    )
    server: ApiServer | None = Field(
        default=None,
        description="URL of the API server for the run; default: port 6443 of rke2.registration_address. It may lead through a "
        "tunnel that stays open during the run; with the argo engine, pods must reach it. The kubeconfig that RKE2 creates gets "
        "this URL.",
        examples=["https://127.0.0.1:6443"],
    )
    tls_server_name: Address | None = Field(
        default=None,
        description="Name or address that the certificate of target.server must have; default: rke2.registration_address.",
        examples=["api.cluster.example.org"],
    )

    @model_validator(mode="after")
    def _a_name_has_a_server(self) -> "TargetCluster":
        if self.tls_server_name and not self.server:
            raise problem("tls_server_name is for target.server, which is not given", "write server: https://HOST:PORT beside it")
        return self


class SshSettings(Section):
    """Section `ssh` of a spec: how the machines are reached by SSH."""

    user: SshUser = Field(default="root", description="User that logs in; any but root needs sudo.", examples=["bringup"])
    key: SecretRef | None = Field(default=None, description="Private key; default: the running SSH agent's keys.")
    port: SshPort = Field(default=22, description="Port.", examples=[22])
    jump_host: JumpHosts | None = Field(
        default=None,
        description="Jump host as user@host:port; several with commas between them, the nearest first.",
        examples=["ops@bastion.example.org:22"],
    )
    http_proxy: SshProxy | None = Field(
        default=None,
        description="HTTP proxy for SSH connections to the machines, or to the first jump host before them. It must allow "
        "CONNECT to their SSH port. Default: none.",
        examples=["http://proxy.example.org:3128"],
    )
    http_proxy_user: ProxyUser | None = Field(
        default=None, description="User of http_proxy, if the proxy asks for a login (Basic).", examples=["bringup"]
    )
    http_proxy_password: SecretRef | None = Field(default=None, description="Password of http_proxy_user.")
    host_key_policy: Literal["strict", "accept_new"] = Field(
        default="strict",
        description="strict: only keys in known_hosts are accepted. accept_new: the first key of an unknown host is accepted and "
        "kept in the store of runs (met/CLUSTER); from then on no other key is accepted.",
        examples=["strict"],
    )
    known_hosts: Argument | None = Field(
        default=None,
        description="Path of the known_hosts file, relative to the spec; default: the user's. Runs never write it.",
        examples=["./known_hosts"],
    )
    sudo_password: SecretRef | None = Field(default=None, description="Password for sudo, if sudo asks for one.")
    post_quantum: bool = Field(
        default=False,
        description="Whether SSH keeps its default order of key exchanges, with post-quantum ones first. With OpenSSH 9.0 to 9.8 "
        "that means sntrup761, which costs 80 ms of CPU per login. With false, sntrup761 comes last: machines before OpenSSH 9.9 "
        "use curve25519, so recorded sessions could be read by a future quantum computer; from 9.9 on the post-quantum mlkem768 "
        "is used.",
        examples=[True],
    )

    @model_validator(mode="after")
    def _a_login_is_whole(self) -> "SshSettings":
        require_whole_login(self.http_proxy_user, self.http_proxy_password, "a proxy's login", "http_proxy_")
        return self


class OsSettings(Section):
    """Section `os` of a spec: the operating system that is installed on the machines, and what a site wants of it."""

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
        description="Free space in GiB that folders need before RKE2 is installed; images of the GPU stack take 25. After that 5 "
        "% of the disk is enough (at least 2 GiB, never more than this value).",
        examples=[{"/var/lib/rancher": 200}],
    )
    tolerate: Annotated[tuple[Argument, ...], Listed] = Field(
        default=(),
        description="Items of the node profile (shell patterns) that these machines may lack.",
        examples=[["time service"]],
    )
    time_servers: Annotated[tuple[Address, ...], Listed] = Field(
        default=(), description="NTP servers; default: those of the distribution.", examples=[["ntp.example.org"]]
    )
    reboot: bool = Field(default=True, description="Whether OS preparation may reboot a machine that needs it.", examples=[True])
    kernel_parameters: Annotated[tuple[KernelParameter, ...], Listed, Field(max_length=30)] = Field(
        default=(),
        description="Further words of the kernel command line on GPU machines, or on all machines if none has GPUs.",
        examples=[["intel_iommu=on"]],
    )
    hugepages: Hugepages | None = Field(default=None, description="Huge pages; default: unchanged.")
    peer_to_peer: bool | None = Field(
        default=None,
        description="Whether GPUs and NICs must reach each other directly, with PCIe ACS off and iommu=pt on the kernel command "
        "line. Default: true if GPU machines have a fabric, except on GB200, which needs the settings of its maker.",
        examples=[True],
    )
    dns: Dns | None = Field(default=None, description="DNS servers and search domains; default: unchanged.")
    users: Annotated[tuple[UserAccount, ...], Listed, Field(max_length=10)] = Field(
        default=(), description="Accounts of persons on every machine; default: none added."
    )
    interface_names: Annotated[Mapping[InterfaceName, PciAddress], Field(max_length=40)] = Field(
        default={},
        description="Interface name → PCI address (`lspci -D`) on GPU machines, or on all machines if none has GPUs; default: "
        "unchanged.",
        examples=[{"fab0": "0000:18:00.0"}],
    )
    routes: Annotated[tuple[Route, ...], Listed, Field(max_length=20)] = Field(
        default=(), description="Routes of the fabric on GPU machines, or on all machines if none has GPUs; default: none added."
    )
    mounts: Mapping[AbsolutePath, RequiredMount] = Field(
        default={},
        description="Folders that must be file systems of their own; default: none.",
        examples=[{"/var/lib/rancher": {}}],
    )
    apparmor: Literal["enabled", "disabled"] | None = Field(
        default=None, description="State of AppArmor (Debian, Ubuntu, SLES); default: unchanged.", examples=["enabled"]
    )
    selinux: Literal["enforcing", "permissive"] | None = Field(
        default=None,
        description="Mode of SELinux (RHEL family). Required on enforcing machines, since it installs RKE2's policy; default: "
        "unchanged.",
        examples=["enforcing"],
    )
    rke2_repository: PolicyRepository = Field(
        default=PolicyRepository(),
        description="Repository of RKE2's SELinux policy (package rke2-selinux), used with selinux: enforcing.",
    )
    firewall: Literal["stop", "keep"] = Field(
        default="stop",
        description="stop: firewalld and ufw are stopped, as RKE2 advises. keep: they keep their state, and a running one opens "
        "the ports that the cluster needs, also after a boot. Opened ports stay open, even after a reset. Rules of nftables and "
        "others remain the responsibility of the site.",
        examples=["keep"],
    )
    firewall_networks: Annotated[tuple[Network, ...], Listed, Field(max_length=8)] = Field(
        default=(),
        description="Networks of the machines: with firewall: keep, ports between machines open to these networks only. Default: "
        "open to all, VXLAN and etcd included. The API ports 6443 and 9345 are open to all in either case.",
        examples=[["10.10.0.0/16"]],
    )

    @model_validator(mode="after")
    def _one_of_each(self) -> "OsSettings":
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
    def _networks_are_of_a_firewall(self) -> "OsSettings":
        if self.firewall_networks and self.firewall == "stop":
            raise problem("firewall_networks is for a firewall that is kept", "add firewall: keep, or remove firewall_networks")
        return self

    @model_validator(mode="after")
    def _apparmor_is_said_once(self) -> "OsSettings":
        words = [word for word in self.kernel_parameters if word.partition("=")[0] in ("apparmor", "security", "lsm")]
        if self.apparmor and words:
            raise problem(
                f"kernel_parameters has {words[0]}, and apparmor is {self.apparmor}", f"leave one out: {words[0]}, or apparmor"
            )
        return self


class Rke2Settings(Section):
    """Section `rke2` of a spec: the RKE2 release and its configuration."""

    version: Annotated[str, StringConstraints(pattern=r"^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)[0-9]+)?\+rke2r[0-9]+$")] = Field(
        default="v1.35.7+rke2r1",
        description="RKE2 release with its revision, as the kubelet reports it.",
        examples=["v1.35.7+rke2r1"],
    )
    cni: Annotated[tuple[Literal["multus", "canal", "calico", "cilium", "flannel"], ...], OneOrMore] = Field(
        default=("canal",), description="CNI plugins; multus comes first if it is used.", examples=[["multus", "canal"]]
    )
    registration_address: Address | None = Field(
        default=None,
        description="Address in front of all servers, which agents join (port 9345); required with 3 or 5 servers.",
        examples=["10.10.0.10"],
    )
    tls_san: Annotated[tuple[Address, ...], Listed] = Field(
        default=(),
        description="Further names and addresses in the API server's certificate.",
        examples=[["api.cluster.example.org"]],
    )
    registry_mirror: Registry | None = Field(
        default=None,
        description="Registry that mirrors all others. With a path, images are below it (HOST/PATH/rancher/…).",
        examples=["registry.example.org:5000"],
    )
    registries: Mapping[rke2_parts.RegistryName, rke2_parts.RegistryAccess] = Field(
        default={},
        description="Mirrors, logins and certificates by registry. The login of a mirror has an entry named after the mirror's "
        "host and port. * stands for every registry without an entry of its own.",
        examples=[{"docker.io": {"endpoints": ["https://mirror.example.org:5000"]}}],
    )
    registry_fallback: bool = Field(
        default=True,
        description="Whether the registry itself is used if its mirrors fail. With false, images come from mirrors only, which "
        "needs a mirror for every registry (registry_mirror, or *). A registry that is used directly then needs an entry in "
        "registries with itself as an endpoint.",
        examples=[False],
    )
    profile: Literal["none", "cis"] = Field(default="none", description="Hardening profile.", examples=["none"])
    audit: Literal["none", "metadata", "request_response"] = Field(
        default="none",
        description="Detail of the API server's audit log; it never contains bodies of Secrets.",
        examples=["metadata"],
    )
    etcd_snapshots: EtcdSnapshots = Field(default=EtcdSnapshots(), description="Schedule and number of etcd snapshots.")
    virtual_address: VirtualAddress | None = Field(
        default=None,
        description="kube-vip on the servers, which then hold registration_address; default: a load balancer of the site holds it.",
    )
    cluster_cidr: Cidr4 = Field(
        default="10.42.0.0/16", description="Pod network (IPv4), with a /24 for each node.", examples=["10.32.0.0/11"]
    )
    service_cidr: Cidr4 = Field(default="10.43.0.0/16", description="Service network (IPv4).", examples=["10.43.0.0/16"])
    ingress_controller: Literal["none", "ingress-nginx", "traefik"] | None = Field(
        default=None,
        description="Ingress controller; default: that of new clusters of the release (traefik from v1.36 on, ingress-nginx "
        "before).",
        examples=["traefik"],
    )
    etcd_fsync_ms: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=10.0,
        description="Limit in ms for the 99th percentile of etcd's WAL fsync on a server's disk; etcd's FAQ advises 10.",
        examples=[10.0],
    )
    kubelet_args: rke2_parts.KubeletArgs = Field(
        default={}, description="Kubelet flags without the leading dashes.", examples=[{"topology-manager-policy": "best-effort"}]
    )
    kubelet_config: rke2_parts.KubeletConfig = Field(
        default={},
        description="Fields of KubeletConfiguration, written as a drop-in; kubelet_args take precedence.",
        examples=[{"reservedSystemCPUs": "0-3"}],
    )
    join_token: SecretRef | None = Field(
        default=None, description="Cluster token; default: created during the run and kept in the home cluster."
    )
    join_batch: Annotated[int, Field(ge=1, le=50)] = Field(
        default=25, description="Agents that join at the same time; RKE2 advises at most 50.", examples=[25]
    )
    upgrade_batch: Annotated[int, Field(ge=1, le=50)] = Field(
        default=10, description="Agents of a shard of 50 that are drained and upgraded at the same time.", examples=[10]
    )
    drain_seconds: Annotated[int, Field(ge=10, le=1080)] = Field(
        default=600,
        description="Longest time in seconds to drain a node before its upgrade; after that the node keeps its release.",
        examples=[600],
    )
    source: Url | None = Field(
        default=None,
        description="Base URL of release files (SOURCE/VERSION/FILE); default: the GitHub releases of RKE2.",
        examples=["https://files.example.org/rke2"],
    )
    images: Annotated[tuple[rke2_parts.Archive, ...], Listed] = Field(
        default=(),
        description="Image archives that each machine gets before its first start. core, canal and others are those of the "
        "release; all stands for core and canal. A file name (.tar, also with .gz, .zst, .bz2 or .lz4) is an archive of the site "
        "in the folder artifacts, with its checksum in sha256sum-site-amd64.txt there.",
        examples=[["core", "canal", "checks.tar"]],
    )
    artifacts: AbsolutePath | None = Field(
        default=None,
        description="Folder on each machine with the release files, for machines without internet; default: files are downloaded.",
        examples=["/srv/rke2"],
    )


class Airgap(Section):
    """Section `airgap` of a spec: mirrors of images and charts for a site without internet."""

    registry: Registry = Field(description="Registry that holds every image.", examples=["registry.example.org:5000"])
    charts: Url = Field(description="Repository that holds every chart.", examples=["oci://registry.example.org:5000/charts"])
    digests: Mapping[SnakeId, Digest] = Field(
        default={},
        description="Chart digest by component; every chart needs one here or in overrides.",
        examples=[{"gpu_operator": "sha256:" + "0" * 64}],
    )

    @model_validator(mode="before")
    @classmethod
    def _no_ca(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "ca" in data:
            raise problem(
                "nothing that pulls charts or images from the mirror reads ca",
                "remove it, and have a CA that hosts and pods trust sign the mirror's certificate; where Argo CD delivers, "
                "the charts' server may be given in overrides: {argo_cd: {values: {configs: {tls: {certificates: {HOST: PEM}}}}}}",
            )
        return data
