"""Types of stage gang: observations of schedulers, queues, nodes and test gangs, and the expectations of its gates."""

from enum import StrEnum

from msgspec import Struct

from steps.contract.charts import Release, ReleaseState, RootApplication, RootState, Trouble, Workload


class Scheduler(StrEnum):
    """The scheduler of a gang. With `kueue`, quota is admitted all or nothing, and the default scheduler places the pods."""

    VOLCANO = "volcano"
    KAI = "kai"
    KUEUE = "kueue"


class Queue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue of Volcano, KAI or Kueue.

    `name` is `KIND NAME` or `KIND NAMESPACE/NAME`. `active` is None if the queue's state is unknown; `why` is the reason for its
    state.
    """

    name: str
    active: bool | None = None
    why: str = ""


class Flavor(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Kueue ResourceFlavor and the node labels that it stands for."""

    name: str
    labels: dict[str, str] = {}


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate gang/control: Helm releases, the schedulers' Deployments, queues and flavors.

    `covered` maps each ClusterQueue to the resources under its quota.
    """

    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    workloads: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    queues: tuple[Queue, ...] = ()
    flavors: tuple[Flavor, ...] = ()
    covered: dict[str, tuple[str, ...]] = {}


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate gang/control.

    `deployments` (`NAMESPACE/NAME`) must be settled, `queues` active, and `flavors` must exist with these labels. Every
    ClusterQueue must cover the resources in `covered`: a quota on another resource than the advertised one governs nothing.
    """

    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    deployments: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    flavors: dict[str, dict[str, str]] = {}
    covered: tuple[str, ...] = ()


class SchedulableNode(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node as a scheduler sees it. `labels` are those that flavors name; `free` are units that no pod has requested."""

    name: str
    schedulable: bool = True
    labels: dict[str, str] = {}
    units: int = 0
    free: int = 0


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate gang/nodes: the expected nodes that are registered in the cluster."""

    nodes: tuple[SchedulableNode, ...] = ()


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate gang/nodes: every node advertises `resource`, and carries the labels of a flavor, if any."""

    resource: str
    nodes: tuple[str, ...] = ()
    flavors: dict[str, dict[str, str]] = {}


class GangMember(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod of the gang. `bound` is when PodScheduled became True, in seconds since the epoch; 0 if it is not True."""

    name: str
    node: str = ""
    bound: float = 0.0
    phase: str = ""
    reason: str = ""
    message: str = ""


class GroupCondition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A status condition of a PodGroup or Workload. `since` is its last transition, in seconds since the epoch."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float = 0.0


class GangGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object by which the scheduler knows the gang: Volcano's or KAI's PodGroup, or Kueue's Workload.

    `least` is its minMember; for a Workload it is the number of pods.
    """

    name: str
    least: int = 0
    phase: str = ""
    conditions: tuple[GroupCondition, ...] = ()


class GangObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gates gang/oversize and gang/functional: the test gang of a check.

    `now` is the target's clock, `since` when the check created the gang. `free` are the units on schedulable nodes that pods
    outside the check leave; None if they could not be counted. `others` are pending gangs of other users. `bindings` are events
    since then that report a member as bound (`POD: MESSAGE`); they remain after the pod is gone.
    """

    now: float
    since: float
    free: int | None = None
    group: GangGroup | None = None
    members: tuple[GangMember, ...] = ()
    others: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()


class OversizeExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate gang/oversize: no pod of a gang that is too large is bound for `observe_seconds`.

    The gang has `count` members with `units` each, more than is free.
    """

    scheduler: Scheduler
    count: int
    units: int = 1
    observe_seconds: float = 60.0


class FitExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate gang/functional: `count` members with `units` each are bound as a whole in `within_seconds`."""

    scheduler: Scheduler
    count: int
    units: int = 1
    within_seconds: float = 180.0
