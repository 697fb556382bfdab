"""Reads gang schedulers: releases and queues, nodes with their free units, and a check's gang with its group, pods and bindings."""

import datetime

from msgspec import Struct

from steps.contract.checks import CHECK_LABEL, CHECK_NAMESPACE
from steps.stages.gang import probe_world
from steps.stages.gang.contract import (
    ControlObservation,
    Flavor,
    GangGroup,
    GangMember,
    GangObservation,
    GroupCondition,
    NodesObservation,
    Queue,
    Scheduler,
)
from steps.stages.shared import probe_charts, probe_workloads
from steps.stages.shared.kube_reader import KubeReader, Scope
from steps.stages.shared.probe_workloads import Condition as RawCondition
from steps.stages.shared.probe_workloads import seconds

VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
KAI = "/apis/scheduling.run.ai"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
MOST_NAMED = 5


class _QueueStatus(Struct, frozen=True):
    state: str = ""
    conditions: tuple[RawCondition, ...] = ()


class _ResourceGroup(Struct, frozen=True, rename="camel"):
    covered_resources: tuple[str, ...] = ()


class _QueueSpec(Struct, frozen=True, rename="camel"):
    resource_groups: tuple[_ResourceGroup, ...] = ()


class _RawQueue(Struct, frozen=True):
    metadata: probe_workloads.ObjectMeta = probe_workloads.ObjectMeta()
    spec: _QueueSpec = _QueueSpec()
    status: _QueueStatus = _QueueStatus()


class _FlavorSpec(Struct, frozen=True, rename="camel"):
    node_labels: dict[str, str] = {}


class _RawFlavor(Struct, frozen=True):
    """A ResourceFlavor as the API returns it."""

    metadata: probe_workloads.ObjectMeta = probe_workloads.ObjectMeta()
    spec: _FlavorSpec = _FlavorSpec()


class _PodSet(Struct, frozen=True):
    count: int = 0


class _GroupSpec(Struct, frozen=True, rename="camel"):
    min_member: int = 0
    pod_sets: tuple[_PodSet, ...] = ()


class _GroupStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    conditions: tuple[RawCondition, ...] = ()
    scheduling_conditions: tuple[RawCondition, ...] = ()


class _RawGroup(Struct, frozen=True):
    """A PodGroup or Workload as the API returns it."""

    metadata: probe_workloads.ObjectMeta = probe_workloads.ObjectMeta()
    spec: _GroupSpec = _GroupSpec()
    status: _GroupStatus = _GroupStatus()


class _Involved(Struct, frozen=True):
    """Object that an event is about."""

    kind: str = ""
    name: str = ""


class _RawEvent(Struct, frozen=True, rename="camel"):
    """Event that reports a pod as bound."""

    metadata: probe_workloads.ObjectMeta = probe_workloads.ObjectMeta()
    involved_object: _Involved = _Involved()
    message: str = ""
    last_timestamp: datetime.datetime | None = None
    event_time: datetime.datetime | None = None


def control(kube: KubeReader, scope: Scope) -> ControlObservation:
    """Return releases, the Deployments of their namespaces, queues and flavors."""
    releases = probe_charts.scoped_releases(scope)
    spaces = tuple(dict.fromkeys(release.namespace for release in releases))
    cluster_queues = kube.list(f"{KUEUE}/clusterqueues", _RawQueue) or ()
    return ControlObservation(
        releases=probe_charts.observe(kube, releases),
        root_app=probe_charts.root(kube, scope),
        workloads=tuple(one for space in spaces for one in probe_workloads.read(kube, space, lambda _: True, ("Deployment",))),
        trouble=tuple(one for space in spaces for one in probe_workloads.troubles(probe_workloads.pods(kube, space))),
        queues=(*_queues(kube), *(_kueue_queue("ClusterQueue", queue) for queue in cluster_queues)),
        flavors=tuple(
            Flavor(name=flavor.metadata.name, labels=flavor.spec.node_labels)
            for flavor in kube.list(f"{KUEUE}/resourceflavors", _RawFlavor) or ()
        ),
        covered={queue.metadata.name: _covered(queue) for queue in cluster_queues},
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """Return the expected nodes. Arguments: `resource`, and the `labels` that flavors name."""
    wanted = frozenset(scope.nodes)
    found = probe_world.nodes(kube, str(probe_charts.read_argument(scope, "resource")), probe_charts.read_argument(scope, "labels"))
    return NodesObservation(nodes=tuple(node for node in found if node.name in wanted))


def oversize(kube: KubeReader, scope: Scope) -> GangObservation:
    """Return the gang of check `gang-oversize`."""
    return _gang(kube, scope, "gang-oversize")


def functional(kube: KubeReader, scope: Scope) -> GangObservation:
    """Return the gang of check `gang-fit`."""
    return _gang(kube, scope, "gang-fit")


def _queues(kube: KubeReader) -> tuple[Queue, ...]:
    """Return the queues of all schedulers. KAI's queues have no state, so their existence counts as active."""
    volcano = (
        Queue(name=f"Queue {queue.metadata.name}", active=queue.status.state == "Open", why=f"state {queue.status.state or 'none'}")
        for queue in kube.list(f"{VOLCANO}/queues", _RawQueue) or ()
    )
    kai = (Queue(name=f"Queue {queue.metadata.name}", active=True) for queue in kube.list(f"{KAI}/v2/queues", _RawQueue) or ())
    local = (_kueue_queue("LocalQueue", queue) for queue in kube.list(f"{KUEUE}/localqueues", _RawQueue) or ())
    return (*volcano, *kai, *local)


def _kueue_queue(kind: str, queue: _RawQueue) -> Queue:
    active = next((entry for entry in queue.status.conditions if entry.type == "Active"), RawCondition())
    place = f"{queue.metadata.namespace}/" if queue.metadata.namespace else ""
    return Queue(
        name=f"{kind} {place}{queue.metadata.name}",
        active=active.status == "True" if active.status else None,
        why=f"{active.reason}: {active.message}" if active.status == "False" else "",
    )


def _covered(queue: _RawQueue) -> tuple[str, ...]:
    return tuple(name for group in queue.spec.resource_groups for name in group.covered_resources)


def _gang(kube: KubeReader, scope: Scope, check: str) -> GangObservation:
    scheduler = Scheduler(scope.arguments["scheduler"])
    groups = _groups(kube, scheduler)
    # names of groups differ by scheduler, so the owner tells
    own = next((group for group in groups if _belongs(group, check)), None)
    found = probe_world.nodes(kube, str(scope.arguments["resource"]))
    return GangObservation(
        now=scope.now,
        since=scope.since,
        free=probe_world.free(found) if found else None,
        group=_group(own) if own else None,
        members=_members(kube, check),
        others=tuple(_place(group) for group in groups if group is not own and _waits(scheduler, group))[:MOST_NAMED],
        bindings=_bindings(kube, check, scope.since),
    )


def _groups(kube: KubeReader, scheduler: Scheduler) -> tuple[_RawGroup, ...]:
    path = {
        Scheduler.VOLCANO: f"{VOLCANO}/podgroups",
        Scheduler.KAI: f"{KAI}/v2alpha2/podgroups",
        Scheduler.KUEUE: f"{KUEUE}/workloads",
    }
    return kube.list(path[scheduler], _RawGroup) or ()


def _belongs(group: _RawGroup, check: str) -> bool:
    meta = group.metadata
    return meta.namespace == CHECK_NAMESPACE and any(owner.name == check for owner in meta.owner_references)


def _waits(scheduler: Scheduler, group: _RawGroup) -> bool:
    """Return True if a foreign gang competes for the same GPUs; workloads of other ClusterQueues do not."""
    if scheduler is Scheduler.VOLCANO:
        return group.status.phase in ("Pending", "Inqueue")
    unschedulable = (
        entry.type == "UnschedulableOnNodePool" and entry.status == "True" for entry in group.status.scheduling_conditions
    )
    return scheduler is Scheduler.KAI and any(unschedulable)


def _place(group: _RawGroup) -> str:
    return f"{group.metadata.namespace}/{group.metadata.name}"


def _group(raw: _RawGroup) -> GangGroup:
    return GangGroup(
        name=raw.metadata.name,
        least=raw.spec.min_member or sum(pod_set.count for pod_set in raw.spec.pod_sets),
        phase=raw.status.phase,
        conditions=tuple(_condition(entry) for entry in (*raw.status.conditions, *raw.status.scheduling_conditions)),
    )


def _condition(raw: RawCondition) -> GroupCondition:
    return GroupCondition(type=raw.type, status=raw.status, reason=raw.reason, message=raw.message[:300], since=raw.since)


def _members(kube: KubeReader, check: str) -> tuple[GangMember, ...]:
    return tuple(_member(pod) for pod in probe_workloads.pods(kube, CHECK_NAMESPACE, f"{CHECK_LABEL}={check}"))


def _member(pod: probe_workloads.Pod) -> GangMember:
    scheduled = next((entry for entry in pod.status.conditions if entry.type == "PodScheduled"), RawCondition())
    refused = scheduled.status == "False"
    bound = scheduled.since if scheduled.status == "True" else 0.0
    return GangMember(
        name=pod.metadata.name,
        node=pod.spec.node_name,
        bound=bound,
        phase=pod.status.phase,
        reason=scheduled.reason if refused else pod.status.reason,
        message=scheduled.message[:200] if refused else "",
    )


def _bindings(kube: KubeReader, check: str, since: float) -> tuple[str, ...]:
    """Return events of the scheduler about this gang's pods. Older ones of an earlier gang with the same names are left out."""
    events = kube.list(f"/api/v1/namespaces/{CHECK_NAMESPACE}/events", _RawEvent, fields="reason=Scheduled") or ()
    fresh = (event for event in events if event.involved_object.name.startswith(f"{check}-") and _event_time(event) >= int(since))
    return tuple(f"{event.involved_object.name}: {event.message}"[:200] for event in fresh)[:MOST_NAMED]


def _event_time(event: _RawEvent) -> float:
    return max(seconds(time) for time in (event.last_timestamp, event.event_time))
