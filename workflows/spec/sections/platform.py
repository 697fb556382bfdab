"""The sections that connect GPU nodes and give them to tenants: fabric, gang scheduling and quota."""

import ipaddress
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema, model_validator

from workflows.spec.fields import DnsLabel, LabelKey, LabelValue, Listed, OneOrMore, Section, SnakeId, problem
from workflows.spec.sections.hosts import Cidr, IpAddress


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
        default=(),
        description="Interface names of the NICs; default: every NIC with these device ids. Required for macvlan and ipoib (the "
        "first is the master).",
        examples=[["ibs1"]],
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
        default=None,
        description="MTU of the fabric's interfaces, which the machines get with driver: host and pods with mode macvlan or "
        "sriov; default: unchanged, and 1500 for virtual functions.",
        examples=[4092],
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
    def nccl_link(self) -> str:
        """Link layer of the ports in NCCL's words; empty without a fabric."""
        return {"infiniband": "IB", "roce": "RoCE"}.get(self.kind, "")

    @property
    def nccl_adapters(self) -> tuple[str, ...]:
        """RDMA devices that NCCL may use in every pod; empty if they are not planned, or if their names differ between nodes."""
        return () if self.attachments_are_allocated else self.rails

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


Units = Annotated[int, Field(ge=0, le=1_000_000)]
"""A number of units of a resource: GPUs, shares of GPUs or MIG instances."""


class TenantQueue(Section):
    """The quota of one tenant: a Kueue ClusterQueue with a LocalQueue in the namespace of the tenant."""

    name: DnsLabel = Field(description="Name of the queue.", examples=["research"])
    namespace: DnsLabel = Field(description="The tenant's namespace.", examples=["team-a"])
    gpus: Units | None = Field(default=None, description="Nominal quota, in advertised units.", examples=[64])
    gpus_by_group: Mapping[SnakeId, Units] | None = Field(
        default=None,
        description="Nominal quota of each GPU group, instead of gpus where groups differ; a group that is left out has 0.",
        examples=[{"gpu": 64, "older": 8}],
    )
    borrowing_limit: Units | None = Field(
        default=None,
        description="Units of each flavor that the queue may borrow from its cohort; default: no limit.",
        examples=[64],
    )
    cohort: DnsLabel | None = Field(
        default=None, description="Cohort that the queue lends to and borrows from; default: none.", examples=["all"]
    )

    @model_validator(mode="after")
    def _has_one_quota(self) -> "TenantQueue":
        if (self.gpus is None) == (self.gpus_by_group is None):
            which = "neither gpus nor gpus_by_group" if self.gpus is None else "both gpus and gpus_by_group"
            raise problem(f"queue {self.name} has {which}", "write gpus: 8, or gpus_by_group: {gpu: 8} where GPU groups differ")
        if self.borrowing_limit and self.cohort is None:
            why = f"queue {self.name} has a borrowing_limit and no cohort, so there is nobody to borrow from"
            raise problem(why, "add cohort: NAME, the same in the queues that share, or remove borrowing_limit")
        return self

    @property
    def quota(self) -> int:
        """The nominal quota over all groups, in advertised units."""
        return self.gpus if self.gpus is not None else sum((self.gpus_by_group or {}).values())


class QueueFlavor(Section):
    """The Kueue ResourceFlavor of all queues: the nodes and resources that are under quota.

    Without `node_labels` GPU groups with different products after sharing get a flavor each.
    """

    name: DnsLabel = Field(
        default="gpu",
        description="Name of the flavor of the product in section accelerator, and first part of the names of others.",
        examples=["h200"],
    )
    node_labels: Mapping[LabelKey, LabelValue] | None = Field(
        default=None,
        description="Labels of the nodes of the only flavor; default: nvidia.com/gpu.product with its value after sharing.",
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
