"""Types of stage network_operator: observations of operator, nodes and bandwidth check, and expectations of its gates."""

from msgspec import Struct

from steps.contract.objects.charts import Trouble, Workload
from steps.contract.objects.checks import CheckPod

NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
"""Annotation in which Multus lists the networks of a pod."""


class AppliedState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a NicClusterPolicy: `ready`, `notReady`, `error`, or `ignore` if the policy's spec does not name the part."""

    name: str
    state: str
    message: str = ""


class NicPolicy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A NicClusterPolicy. `changed` is when its spec was last written, in seconds since the epoch.

    It has neither conditions nor observedGeneration, so this time alone tells if its state is older than its spec.
    """

    name: str
    state: str = ""
    reason: str = ""
    changed: float = 0.0
    applied: tuple[AppliedState, ...] = ()


class Network(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A secondary network; `attached` is True if its NetworkAttachmentDefinition exists."""

    kind: str
    name: str
    state: str = ""
    reason: str = ""
    attached: bool = False


class IpPoolBlocks(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An address pool, and the nodes that have a block of it."""

    name: str
    nodes: tuple[str, ...] = ()


class OtherInstance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workload that somebody else runs, and that does what a part of this platform does.

    `part` is what it is (`Network Operator`, `RDMA device plugin`), known by its image or by what it registers. `name` is
    `NAMESPACE/NAME`, `owner` is `KIND NAME` of its controller or the chart's release; empty if nothing tells.
    """

    part: str
    name: str
    image: str = ""
    owner: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate network_operator/control: the operator's objects in the cluster.

    `now` is the target's clock, `operands` are the operator's workloads. `nfd` and `multus` are the DaemonSets of NFD workers and
    of Multus in the whole cluster (`NAMESPACE/NAME`), whatever their names. `others` are further Network Operators and device
    plugins for NICs that this platform did not bring.
    """

    now: float = 0.0
    policies: tuple[NicPolicy, ...] = ()
    networks: tuple[Network, ...] = ()
    pools: tuple[IpPoolBlocks, ...] = ()
    operands: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    nfd: tuple[str, ...] = ()
    multus: tuple[str, ...] = ()
    others: tuple[OtherInstance, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate network_operator/control.

    `states` maps each state that must be ready to the image tag of its workloads; `least` nodes must be served. `networks` are
    `KIND/NAME`, `pools` are names. `multus`: exactly one Multus must run, otherwise at most one.
    """

    nodes: tuple[str, ...] = ()
    least: int = 1
    states: dict[str, str] = {}
    networks: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    multus: bool = False


class FabricNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node with its NIC label, its SR-IOV state and its count of the RDMA resource, for gate network_operator/nodes.

    `nic` is NFD's label of an NVIDIA NIC, `mofed_wait` the operator's label (empty if absent), `sync` the SR-IOV state with
    `sync_error`. `capacity` and `allocatable` count the wanted resource.
    """

    name: str
    ready: bool = False
    unschedulable: bool = False
    nic: bool = False
    mofed_wait: str = ""
    upgrade_state: str = ""
    capacity: int = 0
    allocatable: int = 0
    sync: str = ""
    sync_error: str = ""


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate network_operator/nodes: the expected nodes that are registered in the cluster."""

    nodes: tuple[FabricNode, ...] = ()


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate network_operator/nodes.

    Each node must advertise at least `count` of `resource`, all of them allocatable. `mofed`: the operator installs the NIC driver.
    `sriov`: the SR-IOV operator creates virtual functions.
    """

    nodes: tuple[str, ...] = ()
    resource: str
    count: int = 1
    mofed: bool = False
    sriov: bool = False


class AddressHolder(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody with addresses that pods of the bandwidth check had too: a pod (`NAMESPACE/NAME`, on `node`), or a node."""

    name: str
    node: str = ""
    addresses: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return who it is, for a sentence."""
        return f"pod {self.name} on {self.node}" if self.node else f"node {self.name}"


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate network_operator/functional: pods of check `ib-write-bw`, which form a ring by completion index.

    A report is `{"node", "index", "peer", "rails", "further", "excluded", "interfaces", "error"}`. `rails` are the RDMA devices
    of the pod, each measured to the pod with index `peer`: `{"device", "rail", "state", "gid", "gbit", "error"}`; `rail` is equal
    on both ends, `gid` is the port's address in the fabric (absent if it has none). `gbit` is the average of ib_write_bw from
    this pod to the partner in Gbit/s, 0 if it did not run; `mtu` is that of the machine's interface of this device (absent if it
    has none). `further` are more partners: `{"peer", "rails"}`. `excluded` are devices of the right kind with another link layer:
    `{"device", "link"}`. `interfaces` are secondary interfaces of the pod: `{"name", "mtu", "host", "host_mtu"}`; `host` is the
    machine's interface behind it.

    `holders` are other running pods, and nodes, with an address that a pod of the check had at that time. `surveyed` counts the
    pods of the cluster whose secondary addresses were read for that, those of the check included.
    """

    pods: tuple[CheckPod, ...] = ()
    holders: tuple[AddressHolder, ...] = ()
    surveyed: int = 0


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate network_operator/functional.

    Each of `rails` devices of a node must reach `floor` Gbit/s in both directions, with each of `partners` other nodes (fewer if
    there are no more). `names` are the devices of these rails, empty if the plan does not name them. `link` is their link layer,
    InfiniBand or Ethernet. Pods must be attached to `networks` (`NAMESPACE/NAME`), with interfaces of `mtu` bytes
    (0: of one MTU in all pods), which is also that of the machine's interface behind each; with `larger_ports` the machine's may
    have a larger one, because no step makes them equal. The machine's interfaces of the rails must have `rail_mtu` bytes
    (0: the MTU that the rail has on most nodes).
    """

    nodes: tuple[str, ...] = ()
    rails: int = 8
    floor: float = 0.0
    partners: int = 1
    names: tuple[str, ...] = ()
    link: str = ""
    networks: tuple[str, ...] = ()
    mtu: int = 0
    rail_mtu: int = 0
    larger_ports: bool = False
