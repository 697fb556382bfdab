"""Stage gang: all-or-nothing placement and quota, what shows that they work, and what is expected (gpu_stack §4)."""

from enum import StrEnum

from msgspec import Struct

from steps.contract.charts import Release, ReleaseState, RootApplication, RootState, Trouble, Workload


class Scheduler(StrEnum):
    """Who places the members of a gang. `kueue`: quota alone, admitted all or nothing; the default scheduler places the pods."""

    VOLCANO = "volcano"
    KAI = "kai"
    KUEUE = "kueue"


class Queue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue. `name` is `KIND NAME` or `KIND NAMESPACE/NAME`; `active` is None where its state is not told; `why` says it."""

    name: str
    active: bool | None = None
    why: str = ""


class Flavor(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Kueue ResourceFlavor and the node labels that it stands for."""

    name: str
    labels: dict[str, str] = {}


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Releases, the schedulers' Deployments (`NAMESPACE/NAME` by `workloads`' name), queues and flavors.

    `covered` are the resources that each ClusterQueue puts under quota, by its name.
    """

    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    workloads: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    queues: tuple[Queue, ...] = ()
    flavors: tuple[Flavor, ...] = ()
    covered: dict[str, tuple[str, ...]] = {}


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`deployments` are names that must be settled, `queues` must be active, `flavors` exist with these labels; every ClusterQueue
    must cover `covered`: a quota on another resource than the one advertised governs nothing (gpu_stack §4.3)."""

    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    deployments: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    flavors: dict[str, dict[str, str]] = {}
    covered: tuple[str, ...] = ()


class Node(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node as a scheduler sees it. `labels` are those that flavors ask for; `free` are units that no pod has requested."""

    name: str
    schedulable: bool = True
    labels: dict[str, str] = {}
    units: int = 0
    free: int = 0


class NodesObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The expected nodes that exist."""

    nodes: tuple[Node, ...] = ()


class NodesExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Every node must advertise `resource` and carry the labels of a flavor, if there are flavors (gpu_stack §9 P10)."""

    resource: str
    nodes: tuple[str, ...] = ()
    flavors: dict[str, dict[str, str]] = {}


class Member(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod of the gang. `bound` is when PodScheduled became True, in seconds since the epoch (0: it is not)."""

    name: str
    node: str = ""
    bound: float = 0.0
    phase: str = ""
    reason: str = ""
    message: str = ""


class Condition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A condition of the gang's group. `since` is its last transition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float = 0.0


class Group(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the scheduler knows the gang by: Volcano's or KAI's PodGroup, or Kueue's Workload. `least` is its minMember (for a
    Workload its number of pods)."""

    name: str
    least: int = 0
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class GangObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One gang of a check. `now` is the target's clock, `since` when the check made the gang.

    `free` are the units that pods outside of the check leave on schedulable nodes, None where they could not be counted; `others`
    are pending gangs of somebody else. `bindings` are events which say that a member was bound, as `POD: MESSAGE`, since then:
    they stay when a bound pod has gone again.
    """

    now: float
    since: float
    free: int | None = None
    group: Group | None = None
    members: tuple[Member, ...] = ()
    others: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()


class OversizeExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A gang of `count` members with `units` each, more than is free, must bind nobody for `observe_seconds`."""

    scheduler: Scheduler
    count: int
    units: int = 1
    observe_seconds: float = 60.0


class FitExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A gang of `count` members with `units` each that fits must be bound as a whole within `within_seconds`."""

    scheduler: Scheduler
    count: int
    units: int = 1
    within_seconds: float = 180.0
