"""Types of stage gpu_operator: observations of the operator, the nodes and a CUDA check, and the expectations of its gates."""

from enum import StrEnum

from msgspec import Struct

from steps.contract.objects.charts import Release, ReleaseState, RootApplication, RootState, Trouble, Workload
from steps.contract.objects.checks import CheckPod

GPU_LABELS = tuple(f"feature.node.kubernetes.io/{name}.present" for name in ("pci-10de", "pci-0302_10de", "pci-0300_10de"))
"""Labels of Node Feature Discovery by any of which the operator finds GPU nodes (gpu-operator controllers/state_manager.go)."""


PRODUCT_LABEL = "nvidia.com/gpu.product"
"""Label of GPU Feature Discovery with the name of a node's GPUs."""
EXPORTER = "nvidia-dcgm-exporter"
"""DaemonSet and Service of the exporter of GPU metrics beside a ClusterPolicy."""
DRIVER_PODS = ("nvidia-driver-daemonset-", "nvidia-gpu-driver-")
"""Beginnings of the names of driver pods, of a ClusterPolicy and of an NVIDIADriver."""


class AdvertisingMode(StrEnum):
    """The way in which GPUs are advertised: by the device plugin (ClusterPolicy) or as DRA devices (GPUCluster, from 26.7)."""

    CLUSTER_POLICY = "cluster_policy"
    GPU_CLUSTER = "gpu_cluster"


class RootCondition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition of a root resource. `since` is its last transition, in seconds since the epoch."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float = 0.0


class OperatorRoot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A root custom resource of the operator: a ClusterPolicy or a GPUCluster.

    `changed` is when its spec was last written, by the API server's clock. The operator sets no observedGeneration, so a stale
    status can be found only by this time (NVIDIA/gpu-operator internal/conditions/clusterpolicy.go). `driver` is the version in its
    spec. `disabled` are the parts that its spec switches off, such as `dcgmExporter`.
    """

    name: str
    state: str = ""
    changed: float = 0.0
    driver: str = ""
    disabled: tuple[str, ...] = ()
    conditions: tuple[RootCondition, ...] = ()


class PartKind(StrEnum):
    """A part of a GPU platform that may run once only: two instances register the same resource or act on the same objects."""

    OPERATOR = "GPU Operator"
    DEVICE_PLUGIN = "GPU device plugin"


class PartInstance(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workload, in any namespace, that is such a part by what it runs, whatever its name.

    `name` is `NAMESPACE/NAME`, `image` that of the container by which it is known. `owner` is what brought it: `KIND NAME` of its
    controller, or `NAMESPACE/RELEASE` of the chart that installed it; empty if nothing tells.
    """

    kind: PartKind
    name: str
    image: str = ""
    owner: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate gpu_operator/control: the operator's objects in the cluster.

    `now` is the target's clock, `operands` are the operator's own workloads. `instances` are operators and device plugins of the
    whole cluster, `nfd` its NFD workers (`NAMESPACE/NAME`), `gpu_nodes` the nodes in which NFD found an NVIDIA GPU. `driver_log` is
    the end of the log of a driver container that crashed. `off` maps operands, by their name in node labels
    `nvidia.com/gpu.deploy.NAME`, to nodes whose label is not true, as `NODE=VALUE`.
    """

    now: float = 0.0
    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    cluster_policies: tuple[OperatorRoot, ...] = ()
    gpu_clusters: tuple[OperatorRoot, ...] = ()
    operands: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    driver_log: str = ""
    instances: tuple[PartInstance, ...] = ()
    nfd: tuple[str, ...] = ()
    gpu_nodes: tuple[str, ...] = ()
    off: dict[str, tuple[str, ...]] = {}


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate gpu_operator/control.

    `nodes` are the GPU nodes still in the run; every one of `operands` (DaemonSets) and the `exporter` of metrics must serve at
    least `least` of them, or as many as `least_of` says of an operand that not all GPUs have; `exporter` is empty if the spec
    switches it off. `driver` is the driver version that the operator installs; empty if the chart decides, or if the hosts have
    their own driver (`host_driver`).
    """

    nodes: tuple[str, ...] = ()
    least: int = 1
    least_of: dict[str, int] = {}
    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    mode: AdvertisingMode = AdvertisingMode.CLUSTER_POLICY
    operands: tuple[str, ...] = ()
    exporter: str = EXPORTER
    driver: str = ""
    host_driver: bool = False


class Validator(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The operator's validator pod on a node.

    `stuck` names the first init container that has not ended well, `reason` says why.
    """

    pod: str
    ready: bool = False
    stuck: str = ""
    reason: str = ""
    message: str = ""


class GpuNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU node as the cluster shows it, one entry of an observation of gate gpu_operator/nodes.

    `labels` are those that the gate compares. `deployed` counts the labels `nvidia.com/gpu.deploy.*` with value true, and `paused`
    are the others (name and value). `capacity` and `allocatable` hold GPU resources, also those of other vendors' plugins.
    `devices` counts DRA devices (-1: not counted); `drivers` and `cuda` are the versions that they report. `kernel` is the release
    of the running kernel.
    """

    name: str
    ready: bool = False
    unschedulable: bool = False
    kernel: str = ""
    labels: dict[str, str] = {}
    deployed: int = 0
    paused: dict[str, str] = {}
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    devices: int = -1
    drivers: tuple[str, ...] = ()
    cuda: tuple[str, ...] = ()
    validator: Validator | None = None


class NodePool(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectations about the nodes of some host groups, where groups differ; fields as in NodesExpectation."""

    groups: tuple[str, ...]
    gpus: int = 8
    others: dict[str, int] = {}
    shapes: tuple[dict[str, int], ...] = ()
    products: tuple[str, ...] = ()


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate gpu_operator/nodes: the expected nodes that are registered in the cluster.

    `validators` is the validators' DaemonSet. If it is complete, its pods are not read one by one.
    """

    nodes: tuple[GpuNode, ...] = ()
    validators: Workload | None = None


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate gpu_operator/nodes for every GPU node.

    `gpus` is the number per node, `others` maps nodes with another number to it. `shapes` are the accepted advertisements as
    resources per GPU: whole GPUs, or as sharing leaves them on a second run; empty if nothing is advertised before sharing.
    `products` are the accepted `nvidia.com/gpu.product` labels, the plain one first: only with that one are count and memory
    physical. `driver` is a prefix of the wanted driver version; `host_driver`: the hosts bring the driver, so there is no driver
    pod. `unused` are the operands of labels `nvidia.com/gpu.deploy.*` that the plan does not run, so that their labels do not
    matter. `resources` are further GPU-like resources that other parts of the plan register. `may_differ` are facts of
    `steps.contract.node_tests.fleet_facts` that may differ between nodes, with the reason. If host groups differ,
    `pools` say what is expected of their nodes in place of `gpus`, `others`, `shapes` and `products`; `group_of` maps each node to
    its group.
    """

    nodes: tuple[str, ...] = ()
    pools: tuple[NodePool, ...] = ()
    group_of: dict[str, str] = {}
    gpus: int = 8
    others: dict[str, int] = {}
    mode: AdvertisingMode = AdvertisingMode.CLUSTER_POLICY
    shapes: tuple[dict[str, int], ...] = ()
    products: tuple[str, ...] = ()
    driver: str = ""
    host_driver: bool = False
    unused: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    may_differ: dict[str, str] = {}


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate gpu_operator/functional: the pods of check `cuda-smoke`.

    A report is `{"node", "uuids": […], "vbios": […], "driver", "driver_flavour", "cuda", "devices": N, "passed": N, "error",
    "exported": N, "exporter_error"}`. Devices are the GPUs, or their MIG instances, on which a CUDA kernel was started. `vbios` is
    in the order of `uuids`. `driver_flavour` is `open` or `proprietary`. `exported` counts the GPUs of the node that its metrics
    exporter serves, -1 if it did not answer.
    """

    pods: tuple[CheckPod, ...] = ()


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate gpu_operator/functional.

    Every node must show its number of GPUs, each under a UUID that no other node shows, and a CUDA kernel must run on each. With
    `exporter`, the metrics exporter must serve them all. `may_differ`, `pools` and `group_of` as in NodesExpectation.
    """

    nodes: tuple[str, ...] = ()
    pools: tuple[NodePool, ...] = ()
    group_of: dict[str, str] = {}
    gpus: int = 8
    others: dict[str, int] = {}
    exporter: bool = True
    may_differ: dict[str, str] = {}
