"""Types of stage gang: observations of schedulers, queues, nodes and test gangs, and the expectations of its gates."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

from steps.contract.objects.charts import Release, ReleaseState, RootApplication, RootState, Trouble, Workload


class Scheduler(StrEnum):
    """The scheduler of a gang. With `kueue`, quota is admitted all or nothing, and the default scheduler places the pods."""

    VOLCANO = "volcano"
    KAI = "kai"
    KUEUE = "kueue"


class Queue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A queue of Volcano, KAI or Kueue.

    `name` is `KIND NAME` or `KIND NAMESPACE/NAME`. `active` is None if the queue's state is unknown; `why` is the reason for its
    state. `limit` is the largest amount of the test gang's resource that the queue and its parents admit, in units of the resource;
    None if there is no limit, or if it was not read because no gang is concerned.
    """

    name: str
    active: bool | None = None
    why: str = ""
    limit: float | None = None


class Flavor(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Kueue ResourceFlavor and the node labels that it stands for."""

    name: str
    labels: dict[str, str] = {}


class Quota(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A quota of Kueue on one resource in one flavor, in units of the resource.

    `queue` is `ClusterQueue NAME`, or `Cohort NAME` for a quota that a cohort owns itself. `nominal` is None if it is no quantity.
    A queue in `cohort` borrows at most `borrowing` and lends at most `lending`; None means no limit.
    """

    queue: str
    flavor: str
    resource: str
    nominal: float | None = None
    cohort: str = ""
    borrowing: float | None = None
    lending: float | None = None


class SchedulerPart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A workload that runs a part of Volcano, KAI or Kueue, or a Service that answers admission requests for its kinds.

    `name` is `KIND NAMESPACE/NAME`. `image` is set if the part is known by it; otherwise `serves` is the scheduler name in its
    arguments, or the API group for which it answers.
    """

    product: Scheduler
    name: str
    image: str = ""
    serves: str = ""


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate gang/control: Helm releases, the schedulers' Deployments, queues and flavors.

    `covered` maps each ClusterQueue to the resources under its quota, and `quotas` are the amounts. `capacity` maps flavor and
    resource to the units that the expected nodes with the flavor's labels advertise. `parts` are parts of the three schedulers in
    any namespace, whoever installed them.
    """

    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    workloads: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    queues: tuple[Queue, ...] = ()
    flavors: tuple[Flavor, ...] = ()
    covered: dict[str, tuple[str, ...]] = {}
    quotas: tuple[Quota, ...] = ()
    capacity: dict[str, dict[str, float]] = {}
    parts: tuple[SchedulerPart, ...] = ()


class FlavorPool(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The nodes of one flavor of several: the resources that they advertise, and the units of which quotas may exceed them.

    `spare` holds for each resource that is not in `spares`.
    """

    resources: tuple[str, ...] = ()
    spare: int = 0
    spares: dict[str, int] = {}


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate gang/control.

    `deployments` (`NAMESPACE/NAME`) must be settled, `queues` active, and `flavors` must exist with these labels. Every
    ClusterQueue must cover the resources in `covered`: a quota on another resource than the advertised one governs nothing.
    All quotas on a flavor may exceed what its nodes advertise by `spare` units: those of nodes that the stage's quorum forgives.
    `spares` has the resources with another number of them, where nodes of one product are shared in several ways.
    With several flavors, `pools` has for each what its nodes advertise and spare; all others advertise what is in `covered`.
    With `claims`, GPUs are DRA devices, which quotas do not count, so that there is nothing to compare them with.
    """

    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    deployments: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    flavors: dict[str, dict[str, str]] = {}
    covered: tuple[str, ...] = ()
    spare: int = 0
    spares: dict[str, int] = {}
    pools: dict[str, FlavorPool] = {}
    claims: bool = False


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
    """A pod of the gang.

    `bound` is when PodScheduled became True, `started` and `ended` are the times of its container; all in seconds since the epoch,
    0 if it has not happened. `exit_code` is None until the container has ended. `report` is the JSON object in its termination
    message, empty if there is none. `reason` and `message` say why the pod waits, cannot be scheduled or failed.
    """

    name: str
    node: str = ""
    bound: float = 0.0
    phase: str = ""
    reason: str = ""
    message: str = ""
    started: float = 0.0
    ended: float = 0.0
    exit_code: int | None = None
    report: dict[str, Any] = {}


class GroupCondition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A status condition of a PodGroup or Workload. `since` is its last transition, in seconds since the epoch.

    `causes` are KAI's reasons why the group cannot be scheduled: its `reason` is the same for all of them.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: float = 0.0
    causes: tuple[str, ...] = ()


class GangGroup(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object by which the scheduler knows the gang: Volcano's or KAI's PodGroup, or Kueue's Workload.

    `least` is its minMember; for a Workload it is the number of pods. Volcano deletes the PodGroup of a Job that has ended: then
    name, `least` and `phase` are those that the Job states.
    """

    name: str
    least: int = 0
    phase: str = ""
    conditions: tuple[GroupCondition, ...] = ()


class GangEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Kubernetes event about an object of the check. `about` is `KIND NAME`, `time` in seconds since the epoch."""

    about: str
    reason: str = ""
    message: str = ""
    time: float = 0.0
    warning: bool = False


class GangObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gates gang/oversize and gang/functional: the test gang of a check.

    `now` is the target's clock, `since` when the check created the gang. `free` are the units on schedulable nodes that pods
    outside the check leave; None if they could not be counted. `queue` is the queue in which the gang waits, None if it was not
    found. `others` are pending gangs of other users. `bindings` are events since then that report a member as bound
    (`POD: MESSAGE`); they remain after the pod is gone. `events` are warnings about members, group and Job, and all events about
    the group, newest first.
    """

    now: float
    since: float
    free: int | None = None
    group: GangGroup | None = None
    queue: Queue | None = None
    members: tuple[GangMember, ...] = ()
    others: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()
    events: tuple[GangEvent, ...] = ()


class OversizeExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate gang/oversize: no pod of a gang that is too large is bound for `observe_seconds`.

    The gang has `count` members with `units` each, more than is free. `quota` is the amount of a queue's quota that the gang takes
    in units of the resource; 0 means `count` × `units`. `resource` is what the members request, of which nodes must lack room.
    """

    scheduler: Scheduler
    count: int
    units: int = 1
    quota: int = 0
    resource: str = "nvidia.com/gpu"
    observe_seconds: float = 60.0


class FitExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate gang/functional: `count` members with `units` each are bound as a whole, and all of them run.

    They are bound within `within_seconds` of the gang's creation, and have ended `run_seconds` after that. Each runs a CUDA kernel
    on `devices` GPUs or MIG instances; with 0 it requests no GPU, and reports node and times only. Unless GPUs are `shared` by time
    or MPS, no two members may see the same one. `quota` is the amount of a
    queue's quota that the gang takes; 0 means `count` × `units`.
    """

    scheduler: Scheduler
    count: int
    units: int = 1
    quota: int = 0
    devices: int = 0
    shared: bool = False
    within_seconds: float = 180.0
    run_seconds: float = 600.0
