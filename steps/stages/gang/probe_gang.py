"""Reads the test gang of a check: its group, queue, pods with their reports, and the events about them."""

import datetime
from collections.abc import Iterable, Iterator

from msgspec import Struct

from steps.contract.objects.checks import CHECK_LABEL, CHECK_NAMESPACE
from steps.stages.gang import probe_queues, probe_world
from steps.stages.gang.contract import GangEvent, GangGroup, GangMember, GangObservation, GroupCondition, Scheduler
from steps.stages.gang.probe_queues import KAI, KUEUE, VOLCANO
from steps.stages.shared import kube_objects, probe_checks, probe_workloads
from steps.stages.shared.kube_objects import Condition as RawCondition
from steps.stages.shared.kube_objects import Conditions, seconds
from steps.stages.shared.kube_reader import KubeReader, Scope

_GROUPS = {
    Scheduler.VOLCANO: f"{VOLCANO}/podgroups",
    Scheduler.KAI: f"{KAI}/v2alpha2/podgroups",
    Scheduler.KUEUE: f"{KUEUE}/workloads",
}
"""Scheduler → API path of the PodGroups or Workloads by which it knows gangs."""
_JOBS = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{CHECK_NAMESPACE}/jobs"
_EVENTS = f"/api/v1/namespaces/{CHECK_NAMESPACE}/events"
_ENDED = ("Completed", "Failed", "Terminated", "Aborted")
"""Phases of a Volcano Job that has ended, so that its PodGroup is deleted."""
MOST_NAMED = 5
MESSAGE, REASONS = 300, 900
"""Most characters of the message of an event, and of a condition: KAI lists in it the reasons for which nodes are left out."""


class _PodSet(Struct, frozen=True):
    count: int = 0


class _GroupSpec(Struct, frozen=True, rename="camel"):
    min_member: int = 0
    queue: str = ""
    pod_sets: tuple[_PodSet, ...] = ()


class _Explanation(Struct, frozen=True):
    """KAI's reason why a group cannot be scheduled."""

    reason: str = ""


class _SchedulingCondition(RawCondition, frozen=True, rename="camel"):
    """A condition of KAI's PodGroup, with its detailed reasons."""

    reasons: tuple[_Explanation, ...] = ()


class _GroupStatus(Conditions, frozen=True, rename="camel"):
    phase: str = ""
    scheduling_conditions: tuple[_SchedulingCondition, ...] = ()


class _RawGroup(Struct, frozen=True):
    """A PodGroup or Workload as the API returns it."""

    metadata: kube_objects.ObjectMeta = kube_objects.ObjectMeta()
    spec: _GroupSpec = _GroupSpec()
    status: _GroupStatus = _GroupStatus()


class _VolcanoJobSpec(Struct, frozen=True, rename="camel"):
    min_available: int = 0
    queue: str = ""


class _VolcanoJobState(Struct, frozen=True):
    phase: str = ""


class _VolcanoJobStatus(Struct, frozen=True):
    state: _VolcanoJobState = _VolcanoJobState()


class _VolcanoJob(Struct, frozen=True):
    """A Job of batch.volcano.sh as the API returns it."""

    metadata: kube_objects.ObjectMeta = kube_objects.ObjectMeta()
    spec: _VolcanoJobSpec = _VolcanoJobSpec()
    status: _VolcanoJobStatus = _VolcanoJobStatus()


class _Involved(Struct, frozen=True):
    """Reference to the object that a Kubernetes event is about."""

    kind: str = ""
    name: str = ""


class _EventSeries(Struct, frozen=True, rename="camel"):
    """Repetitions of an event, as newer recorders count them."""

    last_observed_time: datetime.datetime | None = None


class _RawEvent(Struct, frozen=True, rename="camel"):
    """A Kubernetes event; older recorders set `lastTimestamp`, newer ones `eventTime` and `series`."""

    metadata: kube_objects.ObjectMeta = kube_objects.ObjectMeta()
    involved_object: _Involved = _Involved()
    type: str | None = ""
    reason: str | None = ""
    message: str | None = ""
    last_timestamp: datetime.datetime | None = None
    event_time: datetime.datetime | None = None
    series: _EventSeries | None = None

    @property
    def time(self) -> float:
        """Time of the last occurrence in seconds since the epoch; 0 if none is known."""
        repeated = self.series.last_observed_time if self.series else None
        return max(seconds(self.last_timestamp), seconds(self.event_time), seconds(repeated))


def read(kube: KubeReader, scope: Scope, check: str) -> GangObservation:
    """Return the gang of a check: its group, queue, pods, bindings and events. The task's arguments name scheduler and resource.

    They also name node labels (`within`) if the members may run only on nodes with one of the values of each label.
    """
    scheduler, resource = Scheduler(scope.arguments["scheduler"]), str(scope.arguments["resource"])
    groups = kube.list(_GROUPS[scheduler], _RawGroup) or ()
    checked = (group for group in groups if group.metadata.namespace == CHECK_NAMESPACE)
    # names of groups differ by scheduler, so the owner tells
    own = next((group for group in checked if any(owner.name == check for owner in group.metadata.owner_references)), None)
    others = (group for group in groups if group is not own and _waits(scheduler, group))
    within: dict[str, list[str]] = scope.arguments.get("within", {})
    nodes = probe_world.nodes(kube, resource, within)
    open_to_it = [node for node in nodes if all(node.labels.get(key) in values for key, values in within.items())]
    job = kube.get(f"{_JOBS}/{check}", _VolcanoJob) if own is None and scheduler is Scheduler.VOLCANO else None
    group = _group(own) if own else _group_of_job(job)
    queue = check if scheduler is Scheduler.KUEUE else own.spec.queue if own else job.spec.queue if job else ""
    return GangObservation(
        now=scope.now,
        since=scope.since,
        free=probe_world.free(open_to_it) if nodes else None,
        group=group,
        queue=probe_queues.gang_queue(kube, scheduler, queue, resource, sum(node.units for node in nodes)) if queue else None,
        members=tuple(_member(pod) for pod in probe_workloads.pods(kube, CHECK_NAMESPACE, f"{CHECK_LABEL}={check}")),
        others=tuple(f"{group.metadata.namespace}/{group.metadata.name}" for group in others)[:MOST_NAMED],
        bindings=_bindings(kube, check, scope.since),
        events=_events(kube, check, group.name if group else "", scope.since),
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
    conditions = (
        *((condition, ()) for condition in raw.status.conditions),
        *((condition, condition.reasons) for condition in raw.status.scheduling_conditions),
    )
    return GangGroup(
        name=raw.metadata.name,
        least=raw.spec.min_member or sum(pod_set.count for pod_set in raw.spec.pod_sets),
        phase=raw.status.phase,
        conditions=tuple(
            GroupCondition(
                type=condition.type,
                status=condition.status,
                reason=condition.reason,
                message=condition.message[:REASONS],
                since=condition.since,
                causes=tuple(explanation.reason for explanation in reasons),
            )
            for condition, reasons in conditions
        ),
    )


def _group_of_job(job: _VolcanoJob | None) -> GangGroup | None:
    """Return the group of a Volcano Job that has ended, as the Job states it, since the PodGroup is deleted; None of any other.

    Source: https://github.com/volcano-sh/volcano/blob/master/pkg/controllers/job/state/finished.go
    """
    if job is None or job.status.state.phase not in _ENDED:
        return None
    name = f"{job.metadata.name}-{job.metadata.uid}"
    return GangGroup(name=name, least=job.spec.min_available, phase=job.status.state.phase)


def _member(pod: kube_objects.Pod) -> GangMember:
    scheduled, trouble = pod.status.of_type("PodScheduled"), probe_workloads.trouble(pod)
    ended = next((entry.state.terminated for entry in pod.status.container_statuses if entry.state.terminated), None)
    return GangMember(
        name=pod.metadata.name,
        node=pod.spec.node_name,
        bound=scheduled.since if scheduled.status == "True" else 0.0,
        phase=pod.status.phase,
        reason=trouble.reason if trouble else pod.status.reason,
        message=trouble.message if trouble else "",
        started=_time(ended.started_at) if ended else 0.0,
        ended=_time(ended.finished_at) if ended else 0.0,
        exit_code=ended.exit_code if ended else None,
        report=probe_checks.report(pod.status.container_statuses),
    )


def _time(text: str | None) -> float:
    """Return a timestamp of a container as seconds since the epoch; 0 if there is none or it cannot be read."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp() if text else 0.0
    except ValueError:
        return 0.0


# ---- events --------------------------------------------------------------------------------------------------------------------


def _bindings(kube: KubeReader, check: str, since: float) -> tuple[str, ...]:
    """Return the scheduler's events that bind pods of this check's gang; older events than `since` are of an earlier gang."""
    events = kube.list(_EVENTS, _RawEvent, fields="reason=Scheduled") or ()
    own = (event for event in events if event.involved_object.name.startswith(f"{check}-"))
    fresh = (event for event in own if event.time >= int(since))
    return tuple(f"{event.involved_object.name}: {event.message}"[:200] for event in fresh)[:MOST_NAMED]


def _events(kube: KubeReader, check: str, group: str, since: float) -> tuple[GangEvent, ...]:
    """Return the newest warnings about the check's objects, and the newest events of any type about the group, newest first."""
    warnings = kube.list(_EVENTS, _RawEvent, fields="type=Warning") or ()
    concerned = (event for event in warnings if _concerns(event.involved_object.name, check, group))
    about_group = (kube.list(_EVENTS, _RawEvent, fields=f"involvedObject.name={group}") or ()) if group else ()
    normal = (event for event in about_group if event.type != "Warning")
    newest = (*_newest(concerned, since), *_newest(normal, since))
    return tuple(sorted(newest, key=lambda event: -event.time))


def _concerns(name: str, check: str, group: str) -> bool:
    """Return True if an object of this name is the check's Job, a pod of it, or the gang's group."""
    return name in (check, group) or name.startswith(f"{check}-")


def _newest(events: Iterable[_RawEvent], since: float) -> Iterator[GangEvent]:
    fresh = sorted((event for event in events if event.time >= int(since)), key=lambda event: (-event.time, event.metadata.name))
    for event in fresh[:MOST_NAMED]:
        yield GangEvent(
            about=f"{event.involved_object.kind} {event.involved_object.name}",
            reason=event.reason or "",
            message=(event.message or "")[:MESSAGE],
            time=event.time,
            warning=event.type == "Warning",
        )
