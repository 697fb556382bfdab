"""Stage gpu_operator: what the GPU Operator, the nodes and a CUDA program show, and what is expected of them (gpu_stack §1)."""

from enum import StrEnum

from msgspec import Struct

from steps.contract.charts import Release, ReleaseState, RootApplication, RootState, Trouble, Workload
from steps.contract.checks import CheckPod

GPU_LABELS = tuple(f"feature.node.kubernetes.io/{name}.present" for name in ("pci-10de", "pci-0302_10de", "pci-0300_10de"))
"""NFD's labels by any of which the operator itself finds GPU nodes (gpu_stack §1.5)."""


class Mode(StrEnum):
    """How GPUs are advertised: by the device plugin (ClusterPolicy) or as DRA devices (GPUCluster, from 26.7)."""

    CLUSTER_POLICY = "cluster_policy"
    GPU_CLUSTER = "gpu_cluster"


class Condition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One condition. `since` is its last transition, in seconds since the epoch."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float = 0.0


class Root(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A root custom resource of the operator. `changed` is when its spec was last written (API server's clock); it reports no
    observedGeneration, so this is all there is to tell a stale status by (gpu_stack §0.2). `driver` is the version in its spec."""

    name: str
    state: str = ""
    changed: float = 0.0
    driver: str = ""
    conditions: tuple[Condition, ...] = ()


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`now` is the target's clock; `operands` are the operator's own workloads; `nfd` are the NFD workers of the whole cluster
    (`NAMESPACE/NAME`); `gpu_nodes` are the nodes that NFD found an NVIDIA GPU in."""

    now: float = 0.0
    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    cluster_policies: tuple[Root, ...] = ()
    gpu_clusters: tuple[Root, ...] = ()
    operands: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    nfd: tuple[str, ...] = ()
    gpu_nodes: tuple[str, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`nodes` are the GPU nodes still in the run, of which `least` must be served by every one of `operands` (DaemonSets).
    `driver` is the driver version that the operator installs, empty where the host has it or the chart decides."""

    nodes: tuple[str, ...] = ()
    least: int = 1
    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    mode: Mode = Mode.CLUSTER_POLICY
    operands: tuple[str, ...] = ()
    driver: str = ""


class Validator(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The operator's validator pod on a node. `stuck` is the init container that has not ended well, `reason` why."""

    pod: str
    ready: bool = False
    stuck: str = ""
    reason: str = ""
    message: str = ""


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node. `labels` are those that the gate compares, `deployed` counts the labels `nvidia.com/gpu.deploy.*` that say true and
    `paused` are the others (name → value); resources are NVIDIA's; `devices` are DRA devices (-1: not counted) and `drivers` the
    versions that they report."""

    name: str
    ready: bool = False
    unschedulable: bool = False
    labels: dict[str, str] = {}
    deployed: int = 0
    paused: dict[str, str] = {}
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    devices: int = -1
    drivers: tuple[str, ...] = ()
    validator: Validator | None = None


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Expected nodes that exist. `validators` is the validators' DaemonSet: where it is complete no pod is read one by one."""

    nodes: tuple[Node, ...] = ()
    validators: Workload | None = None


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What every GPU node must show.

    `gpus` per node, `others` where a node has another number. `shapes` are the accepted advertisements as resources per GPU
    (whole GPUs, or as sharing leaves them on a second run); empty: nothing is advertised before sharing. `products` are the
    accepted `nvidia.com/gpu.product` labels, the plain one first (only with it are count and memory physical). `driver` is a
    prefix of the wanted driver version.
    """

    nodes: tuple[str, ...] = ()
    gpus: int = 8
    others: dict[str, int] = {}
    mode: Mode = Mode.CLUSTER_POLICY
    shapes: tuple[dict[str, int], ...] = ()
    products: tuple[str, ...] = ()
    driver: str = ""


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Pods of the check `cuda-smoke`. Report: `{"node", "uuids": […], "devices": N, "passed": N, "error": ""}`, where devices are
    GPUs, or their MIG instances, that a CUDA kernel was started on."""

    pods: tuple[CheckPod, ...] = ()


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Every node must show its number of GPUs, each under a UUID that no other node shows, and a CUDA kernel must run on each."""

    nodes: tuple[str, ...] = ()
    gpus: int = 8
    others: dict[str, int] = {}
