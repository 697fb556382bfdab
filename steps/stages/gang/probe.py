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
from steps.stages.shared.probe_workloads import Conditions, seconds

VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
KAI = "/apis/scheduling.run.ai"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
_GROUPS = {
    Scheduler.VOLCANO: f"{VOLCANO}/podgroups",
    Scheduler.KAI: f"{KAI}/v2alpha2/podgroups",
    Scheduler.KUEUE: f"{KUEUE}/workloads",
}
"""Scheduler → API path of the PodGroups or Workloads by which it knows gangs."""
MOST_NAMED = 5


class _QueueStatus(Conditions, frozen=True):
    state: str = ""


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


class _GroupStatus(Conditions, frozen=True, rename="camel"):
    phase: str = ""
    scheduling_conditions: tuple[RawCondition, ...] = ()


class _RawGroup(Struct, frozen=True):
    """A PodGroup or Workload as the API returns it."""

    metadata: probe_workloads.ObjectMeta = probe_workloads.ObjectMeta()
    spec: _GroupSpec = _GroupSpec()
    status: _GroupStatus = _GroupStatus()


class _Involved(Struct, frozen=True):
    """Reference to the object that a Kubernetes event is about."""

    kind: str = ""
    name: str = ""


class _RawEvent(Struct, frozen=True, rename="camel"):
    """A Kubernetes event by which a scheduler reports that it bound a pod."""

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
        workloads=tuple(row for space in spaces for row in probe_workloads.read(kube, space, lambda _: True, ("Deployment",))),
        trouble=tuple(row for space in spaces for row in probe_workloads.troubles(probe_workloads.pods(kube, space))),
        queues=(*_queues(kube), *(_kueue_queue("ClusterQueue", queue) for queue in cluster_queues)),
        flavors=tuple(
            Flavor(name=flavor.metadata.name, labels=flavor.spec.node_labels)
            for flavor in kube.list(f"{KUEUE}/resourceflavors", _RawFlavor) or ()
        ),
        covered={
            queue.metadata.name: tuple(name for group in queue.spec.resource_groups for name in group.covered_resources)
            for queue in cluster_queues
        },
    )


def nodes(kube: KubeReader, scope: Scope) -> NodesObservation:
    """Return the registered expected nodes with the units of `resource` and the `labels` that the task's arguments name."""
    wanted = frozenset(scope.nodes)
    nodes = probe_world.nodes(kube, str(probe_charts.read_argument(scope, "resource")), probe_charts.read_argument(scope, "labels"))
    return NodesObservation(nodes=tuple(node for node in nodes if node.name in wanted))


def oversize(kube: KubeReader, scope: Scope) -> GangObservation:
    """Return the gang of check `gang-oversize`: its group, pods and bindings."""
    return _gang(kube, scope, "gang-oversize")


def functional(kube: KubeReader, scope: Scope) -> GangObservation:
    """Return the gang of check `gang-fit`: its group, pods and bindings."""
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
    active = queue.status.of_type("Active")
    place = f"{queue.metadata.namespace}/" if queue.metadata.namespace else ""
    return Queue(
        name=f"{kind} {place}{queue.metadata.name}",
        active=active.status == "True" if active.status else None,
        why=f"{active.reason}: {active.message}" if active.status == "False" else "",
    )


def _gang(kube: KubeReader, scope: Scope, check: str) -> GangObservation:
    scheduler = Scheduler(scope.arguments["scheduler"])
    groups = kube.list(_GROUPS[scheduler], _RawGroup) or ()
    checked = (group for group in groups if group.metadata.namespace == CHECK_NAMESPACE)
    # names of groups differ by scheduler, so the owner tells
    own = next((group for group in checked if any(owner.name == check for owner in group.metadata.owner_references)), None)
    others = (group for group in groups if group is not own and _waits(scheduler, group))
    nodes = probe_world.nodes(kube, str(scope.arguments["resource"]))
    return GangObservation(
        now=scope.now,
        since=scope.since,
        free=probe_world.free(nodes) if nodes else None,
        group=_group(own) if own else None,
        members=tuple(_member(pod) for pod in probe_workloads.pods(kube, CHECK_NAMESPACE, f"{CHECK_LABEL}={check}")),
        others=tuple(f"{group.metadata.namespace}/{group.metadata.name}" for group in others)[:MOST_NAMED],
        bindings=_bindings(kube, check, scope.since),
    )


def _waits(scheduler: Scheduler, group: _RawGroup) -> bool:
    """Return True if a foreign gang competes for the same GPUs; workloads of other ClusterQueues do not."""
    if scheduler is Scheduler.VOLCANO:
        return group.status.phase in ("Pending", "Inqueue")
    unschedulable = (
        entry.type == "UnschedulableOnNodePool" and entry.status == "True" for entry in group.status.scheduling_conditions
    )
    return scheduler is Scheduler.KAI and any(unschedulable)


def _group(raw: _RawGroup) -> GangGroup:
    return GangGroup(
        name=raw.metadata.name,
        least=raw.spec.min_member or sum(pod_set.count for pod_set in raw.spec.pod_sets),
        phase=raw.status.phase,
        conditions=tuple(
            GroupCondition(type=row.type, status=row.status, reason=row.reason, message=row.message[:300], since=row.since)
            for row in (*raw.status.conditions, *raw.status.scheduling_conditions)
        ),
    )


def _member(pod: probe_workloads.Pod) -> GangMember:
    scheduled = pod.status.of_type("PodScheduled")
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
    """Return the scheduler's events that bind pods of this check's gang; older events than `since` are of an earlier gang."""
    events = kube.list(f"/api/v1/namespaces/{CHECK_NAMESPACE}/events", _RawEvent, fields="reason=Scheduled") or ()
    own = (event for event in events if event.involved_object.name.startswith(f"{check}-"))
    fresh = (event for event in own if max(seconds(event.last_timestamp), seconds(event.event_time)) >= int(since))
    return tuple(f"{event.involved_object.name}: {event.message}"[:200] for event in fresh)[:MOST_NAMED]
