"""Types of stage sharing: observations of the operator, the nodes and the check pods, and the expectations of its gates."""

from enum import StrEnum

from msgspec import Struct

from steps.contract.objects.charts import Release, ReleaseState, RootApplication, RootState, Trouble, Workload
from steps.contract.objects.checks import CheckPod
from steps.contract.verdict import ToolError


class SharingMode(StrEnum):
    """The five sharing models. In mode `none`, the gates check that GPUs are not shared."""

    NONE = "none"
    TIME_SLICING = "time_slicing"
    MPS = "mps"
    MIG = "mig"
    DRA = "dra"


class Shares(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sharing configuration of the device plugin. `strategy` is `timeSlicing`, `mps`, or empty for whole GPUs."""

    strategy: str = ""
    replicas: int = 1
    rename: bool = False
    refuse_two: bool = False


class SharingRoot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """ClusterPolicy `cluster-policy` or GPUCluster `gpu-cluster`.

    `ready` is condition Ready=True, with its reason; `error` is the text of condition Error=True. `config` names the ConfigMap of
    the device plugin, `default` its key for nodes without a label.
    """

    kind: str
    ready: bool = False
    reason: str = ""
    error: str = ""
    config: str = ""
    default: str = ""
    mig_strategy: str = ""
    device_plugin: bool = True


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate sharing/control: the objects that decide how GPUs are shared, apart from the nodes.

    `configs` are the sharing configurations in the plugin's ConfigMap by key; None if the map does not exist. `unreadable` are keys
    whose text is no configuration. `stale` are plugin pods older than the map's last change: the operator does not watch the map.
    `device_classes` are DRA's; None if resource.k8s.io/v1 is not served. `workloads` are those of the operator's namespace.
    """

    policy: SharingRoot | None = None
    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    configs: dict[str, Shares] | None = None
    unreadable: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    device_classes: tuple[str, ...] | None = None
    workloads: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate sharing/control.

    `root` is the kind of the operator's root object, `key` the key of the plugin's ConfigMap that must hold `shares`. `daemons` are
    DaemonSets that the mode needs, each on all nodes but `spare`. `device_classes` are DRA classes. If host groups share
    differently, `mode` is `none`, which holds for nodes without a label, and `configs` are the shares of the groups by key.
    """

    mode: SharingMode
    configs: dict[str, Shares] = {}
    root: str = "ClusterPolicy"
    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    key: str = ""
    shares: Shares | None = None
    mig_strategy: str = ""
    daemons: tuple[str, ...] = ()
    spare: int = 0
    device_classes: tuple[str, ...] = ()


class SharedNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A GPU node with its NVIDIA resources, the labels that the gate compares, and its DRA devices.

    `devices` counts those of type `gpu` in complete pools of driver gpu.nvidia.com; None if there is no such pool. `drivers` are
    the versions that they report. `tainted` are devices with a taint, by which the driver marks an unhealthy one (`NAME: KEY=VALUE
    EFFECT`); None if taints were not read. `mig_errors` are those in the MIG manager's log, read while its state is no success.
    """

    name: str
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    labels: dict[str, str] = {}
    devices: int | None = None
    drivers: tuple[str, ...] = ()
    tainted: tuple[str, ...] | None = None
    mig_errors: tuple[ToolError, ...] = ()


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate sharing/nodes: the expected nodes that are registered in the cluster."""

    nodes: tuple[SharedNode, ...] = ()


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate sharing/nodes for every GPU node.

    `gpus` is the number of physical GPUs per node, `others` maps nodes with another number to it. `resource` is advertised with
    `units` for each GPU; it is empty with DRA. `labels` must have these values: the switch of sharing, and the labels that GPU
    feature discovery then writes. `mig` is the wanted `nvidia.com/mig.config`. `least_driver` is the oldest driver branch allowed
    for DRA devices.
    """

    mode: SharingMode
    nodes: tuple[str, ...] = ()
    gpus: int = 8
    others: dict[str, int] = {}
    resource: str = ""
    units: int = 1
    labels: dict[str, str] = {}
    mig: str = ""
    least_driver: int = 580


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gates sharing/functional and sharing/limit: the pods of one check.

    Names of pods begin with their role. On each node `sharing-first` and `sharing-second` ask for one unit each at the same time,
    `sharing-two` asks for two; `sharing-limit` pods are equally large, on one node, and one more than it has room for. A report has
    node, uuids (devices that the pod sees), passed (devices on which a CUDA kernel ran), error, begin and end (the node's clock,
    seconds).
    """

    pods: tuple[CheckPod, ...] = ()


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate sharing/functional, for each node.

    `exclusive`: the two pods must see different devices. `refuse_two`: a pod that asks for two shares must be refused. With `pair`
    false a node has one unit, and one pod must run there; `others` are nodes for which `pair` is the other way round.
    """

    mode: SharingMode
    nodes: tuple[str, ...] = ()
    exclusive: bool = True
    refuse_two: bool = False
    pair: bool = True
    others: tuple[str, ...] = ()


class LimitExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate sharing/limit: pods with `each` units take all `units` of a node at once, and the next one waits."""

    mode: SharingMode
    units: int
    each: int = 1
