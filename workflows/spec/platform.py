"""The sections that make nodes a GPU platform: accelerator, fabric, sharing, gang scheduling and quota."""

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from workflows.spec.accelerators import PRODUCTS, Product
from workflows.spec.fields import DnsLabel, LabelKey, LabelValue, Listed, OneOrMore, Section, problem
from workflows.spec.hosts import Cidr, IpAddress

ProductName = Literal["A100-40GB", "A100-80GB", "H100", "H100-NVL", "H200", "B200", "GB200", "B300", "L40S"]


class Accelerator(Section):
    """Section `accelerator` of a spec: the GPUs, and who installs their driver."""

    product: ProductName = Field(description="GPU product; the SXM variant if the name does not say otherwise.", examples=["H200"])
    per_node: Annotated[int, Field(ge=1, le=16)] = Field(default=8, description="GPUs in each GPU machine.", examples=[8])
    product_label: LabelValue | None = Field(
        default=None,
        description="Label nvidia.com/gpu.product, if it differs from that of bringup's table.",
        examples=["NVIDIA-H200"],
    )
    driver: Literal["host", "operator"] = Field(
        default="operator",
        description="Who installs the driver: the image of the machine, or the GPU Operator; never both.",
        examples=["operator"],
    )
    driver_version: Annotated[str, StringConstraints(pattern=r"^[0-9]{3}(\.[0-9]{1,3}){0,2}$")] | None = Field(
        default=None,
        description="Driver version, in quotes; required with driver: host. Default with driver: operator: that of the chart.",
        examples=["580.126.20"],
    )
    operator_mode: Literal["cluster_policy", "gpu_cluster"] = Field(
        default="cluster_policy",
        description="cluster_policy: device plugin; gpu_cluster: DRA with GPU Operator 26.7 (new clusters only).",
        examples=["cluster_policy"],
    )

    @model_validator(mode="after")
    def _host_driver_is_known(self) -> "Accelerator":
        if self.driver == "host" and self.driver_version is None:
            raise problem("driver: host needs the version that the machines have", 'add driver_version: "580.126.20"')
        return self

    @property
    def facts(self) -> Product:
        """Facts about the product from the table `PRODUCTS`."""
        return PRODUCTS[self.product]

    @property
    def label(self) -> str:
        """The expected label `nvidia.com/gpu.product` of whole GPUs."""
        return self.product_label or self.facts.label


class IpPool(Section):
    """Address pool of the pods' secondary network, from which NVIDIA's IPAM assigns."""

    subnet: Cidr = Field(description="Network of the pool.", examples=["192.168.0.0/16"])
    per_node_block: Annotated[int, Field(ge=1, le=65536)] = Field(default=32, description="Addresses for each node.", examples=[32])
    gateway: IpAddress | None = Field(
        default=None, description="Gateway of a routed fabric; default: none.", examples=["192.168.0.1"]
    )

    @model_validator(mode="after")
    def _gateway_inside(self) -> "IpPool":
        if self.gateway and ipaddress.ip_address(self.gateway) not in ipaddress.ip_network(self.subnet):
            raise problem(f"gateway {self.gateway} lies outside {self.subnet}", "give a gateway inside the subnet, or none")
        return self


DeviceId = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int) and not isinstance(value, bool) else value),
    StringConstraints(pattern=r"^[0-9a-f]{4}$"),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "pattern": "^[0-9a-f]{4}$"}, {"type": "integer", "minimum": 1000, "maximum": 9999}]}
    ),
]
"""A PCI device id; `1021` may be written without quotes."""


class Fabric(Section):
    """Section `fabric` of a spec: the high-speed network, and how pods access it."""

    kind: Literal["none", "infiniband", "roce"] = Field(
        default="none", description="Kind of the high-speed network.", examples=["infiniband"]
    )
    nics_per_node: Annotated[int, Field(ge=1, le=32)] = Field(
        default=8, description="Fabric NICs in each GPU machine.", examples=[8]
    )
    mode: Literal["rdma_shared", "sriov", "host_device", "ipoib", "macvlan"] = Field(
        default="rdma_shared",
        description="How pods access the fabric: a shared RDMA device (rdma_shared), also with a network (ipoib, macvlan), "
        "SR-IOV, or whole devices.",
        examples=["rdma_shared"],
    )
    resource_name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?$")] = Field(
        default="rdma_shared_device_a", description="Resource name without prefix.", examples=["rdma_shared_device_a"]
    )
    device_ids: Annotated[tuple[DeviceId, ...], Listed] = Field(
        default=("1021",), description="PCI device ids of the NICs (lspci -nn -d 15b3:).", examples=[["1021"]]
    )
    interfaces: Annotated[tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,15}$")], ...], Listed] = Field(
        default=(), description="Interface names; required for macvlan and ipoib (the first is the master).", examples=[["ibs1"]]
    )
    rails: Annotated[tuple[Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,32}$")], ...], Listed] = Field(
        default=(),
        description="RDMA devices that are rails of the fabric, as `ibv_devices` lists them; needed if other NICs, such as "
        "those of storage, have the same device ids. Default: every device with these ids and the fabric's link layer.",
        examples=[["mlx5_0", "mlx5_1"]],
    )
    virtual_functions: Annotated[int, Field(ge=1, le=128)] = Field(
        default=8, description="SR-IOV virtual functions per NIC.", examples=[8]
    )
    ip_pool: IpPool | None = Field(
        default=None, description="Addresses of the secondary network; required unless mode is rdma_shared."
    )
    mtu: Annotated[int, Field(ge=1280, le=9216)] | None = Field(
        default=None, description="MTU of the fabric interfaces; default: unchanged.", examples=[4092]
    )
    rate_gbit: Annotated[int, Field(ge=10, le=1600)] = Field(default=400, description="Rate of one port in Gbit/s.", examples=[400])
    driver: Literal["host", "operator"] = Field(
        default="host",
        description="Who installs the NIC driver: the image of the machine (inbox or DOCA), or the Network Operator.",
        examples=["host"],
    )
    multus: Literal["rke2", "operator"] | None = Field(
        default=None,
        description="Who installs Multus, if a network needs it; default: rke2 if rke2.cni lists it, else the operator.",
        examples=["rke2"],
    )

    @property
    def has_network(self) -> bool:
        """True if pods get a secondary network, which needs Multus and an address pool."""
        return self.kind != "none" and self.mode != "rdma_shared"

    @property
    def resource_key(self) -> str:
        """Name of the resource that pods request: `rdma/…` for shared devices, `nvidia.com/…` for devices of a pod's own."""
        prefix = "nvidia.com" if self.mode in ("sriov", "host_device") else "rdma"
        return f"{prefix}/{self.resource_name}"

    @property
    def attachments_are_allocated(self) -> bool:
        """True if a pod gets devices of its own, whose names differ from node to node; else it sees those of the machine."""
        return self.mode in ("sriov", "host_device")

    @property
    def attachments(self) -> int:
        """Number of times that a pod attaches to the secondary network: once for each NIC (SR-IOV and whole devices), else once."""
        return self.nics_per_node if self.attachments_are_allocated else 1

    @model_validator(mode="after")
    def _mode_fits_kind(self) -> "Fabric":
        if self.mode == "ipoib" and self.kind == "roce":
            raise problem("ipoib needs an InfiniBand fabric", "use mode: macvlan for RoCE")
        if self.mode == "macvlan" and self.kind == "infiniband":
            raise problem("macvlan needs Ethernet ports", "use mode: ipoib for InfiniBand")
        if self.kind != "none" and self.mode in ("ipoib", "macvlan") and not self.interfaces:
            raise problem(f"mode {self.mode} needs the name of its master interface", "add interfaces: [NAME]")
        if self.has_network and self.ip_pool is None:
            raise problem(
                f"mode {self.mode} makes a secondary network that has no addresses", "add ip_pool: {subnet: 192.168.0.0/16}"
            )
        return self


class GpuSharing(Section):
    """Section `sharing` of a spec: how GPUs are shared between pods."""

    mode: Literal["none", "time_slicing", "mps", "mig", "dra"] = Field(
        default="none", description="Sharing model. Time-slicing and MPS give no isolation.", examples=["none"]
    )
    replicas: Annotated[int, Field(ge=2, le=64)] | None = Field(
        default=None, description="Shares per GPU (time_slicing, mps).", examples=[4]
    )
    rename: bool = Field(
        default=True,
        description="Advertise shares as nvidia.com/gpu.shared, so that a share is not mistaken for a GPU.",
        examples=[True],
    )
    fail_requests_greater_than_one: bool = Field(
        default=True, description="Refuse pods that request two shares (time_slicing).", examples=[True]
    )
    profile: Annotated[str, StringConstraints(pattern=r"^[1-7]g\.[0-9]{1,3}gb$")] | None = Field(
        default=None, description="MIG profile on every GPU (mig).", examples=["1g.18gb"]
    )
    strategy: Literal["single", "mixed"] = Field(
        default="single",
        description="MIG strategy: single advertises nvidia.com/gpu, mixed nvidia.com/mig-PROFILE.",
        examples=["single"],
    )

    @model_validator(mode="after")
    def _fields_fit_mode(self) -> "GpuSharing":
        shares = self.mode in ("time_slicing", "mps")
        if shares and self.replicas is None:
            raise problem(f"mode {self.mode} needs the number of shares", "add replicas: 4")
        if not shares and self.replicas is not None:
            raise problem(f"replicas has no meaning with mode {self.mode}", "remove replicas, or use time_slicing or mps")
        if self.mode == "mig" and self.profile is None:
            raise problem("mode mig needs a profile", "add a profile of your product, as in profile: 1g.18gb on H200")
        if self.mode != "mig" and self.profile is not None:
            raise problem(f"profile has no meaning with mode {self.mode}", "remove profile, or use mode: mig")
        return self


class TenantQueue(Section):
    """The quota of one tenant: a Kueue ClusterQueue with a LocalQueue in the namespace of the tenant."""

    name: DnsLabel = Field(description="Name of the queue.", examples=["research"])
    namespace: DnsLabel = Field(description="The tenant's namespace.", examples=["team-a"])
    gpus: Annotated[int, Field(ge=0, le=1_000_000)] = Field(description="Nominal quota, in advertised units.", examples=[64])
    borrowing_limit: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Units that the queue may borrow from its cohort; default: no limit.", examples=[64]
    )
    cohort: DnsLabel | None = Field(
        default=None, description="Cohort that the queue lends to and borrows from; default: none.", examples=["all"]
    )


class QueueFlavor(Section):
    """The Kueue ResourceFlavor of all queues: the nodes and resources that are under quota."""

    name: DnsLabel = Field(default="gpu", description="Name of the flavor.", examples=["h200"])
    node_labels: Mapping[LabelKey, LabelValue] | None = Field(
        default=None,
        description="Labels of the nodes of this flavor; default: nvidia.com/gpu.product with its value after sharing.",
        examples=[{"nvidia.com/gpu.product": "NVIDIA-H200"}],
    )
    covered_resources: Annotated[tuple[LabelKey, ...], OneOrMore] = Field(
        default=(), description="Resources under quota; default: those that GPU nodes advertise.", examples=[["nvidia.com/gpu"]]
    )


class SchedulerSettings(Section):
    """Section `scheduler` of a spec: all-or-nothing placement of jobs with several pods, and quotas of tenants."""

    gang: Literal["none", "volcano", "kai"] = Field(
        default="none", description="All-or-nothing placement for multi-pod jobs.", examples=["volcano"]
    )
    quota: Literal["none", "kueue"] = Field(default="none", description="Fair-share quota across teams.", examples=["kueue"])
    queues: Annotated[tuple[TenantQueue, ...], Listed] = Field(default=(), description="Quota per team (kueue).")
    flavor: QueueFlavor = Field(default=QueueFlavor(), description="The nodes that the queues draw on (kueue).")

    @model_validator(mode="after")
    def _queues_need_kueue(self) -> "SchedulerSettings":
        if self.queues and self.quota == "none":
            raise problem("queues are given, but no quota system", "add quota: kueue, or remove queues")
        names = [queue.name for queue in self.queues]
        if len(set(names)) != len(names):
            raise problem("two queues have the same name", "name each queue once")
        return self
