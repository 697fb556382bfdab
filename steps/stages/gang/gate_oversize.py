"""Judges the test gang that cannot fit: no pod of it is bound at any time, because the scheduler found it too large.

An unbound gang proves nothing by itself: a scheduler that is down binds nothing either, nor does a queue that never let the pods be
created. So the gate wants positive evidence, and its absence is inconclusive. Only the reason that the check provokes is evidence:
a gang that waits because its queue is closed or too small says nothing about its size. See `steps/docs/facts/gpu.md`, Functional
gate of a gang scheduler.
"""

import re
from collections.abc import Callable, Iterator

from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.gang import gate_group
from steps.stages.gang.contract import GangGroup, GangObservation, GroupCondition, OversizeExpectation, Scheduler
from steps.stages.shared.finding import Finding, fail

OVERSIZE = "gang/oversize"
WAITS = {
    Scheduler.VOLCANO: "PodGroup Pending or Inqueue with Unschedulable=True, NotEnoughResources, or an event Unschedulable",
    Scheduler.KAI: "PodGroup with UnschedulableOnNodePool=True for want of resources",
    Scheduler.KUEUE: "Workload with QuotaReserved=False, ExceedsMaxQuota",
}
"""Scheduler → words for the evidence that it considered a gang and left it out for its size."""
_KAI_CAUSE = "PodSchedulingErrors"
"""KAI's reason for a gang whose pods fit on no nodes; its other reasons are about queues and preemption.

Source: https://github.com/kai-scheduler/KAI-Scheduler/blob/main/pkg/apis/scheduling/v2alpha2/podgroup_types.go
"""
_KAI_SHORTAGE = re.compile(
    r"(\d{1,7}) node\(s\) didn't have enough (?:resources: |of mig profile: )(GPU memory|CPU cores|[\w./-]{1,253})", re.ASCII
)
_KAI_WORDS = {"nvidia.com/gpu": "GPUs"}
"""Resource → KAI's word for it; others it calls by their names."""
_ANTI_AFFINITY = "anti-affinity rules"
"""Texts of nodes that are full, of a resource or with a member of the gang. Taints and affinities have that cause and other texts.

Source: https://github.com/kai-scheduler/KAI-Scheduler/blob/main/pkg/scheduler/api/common_info/pod_errors.go
"""


def judge_oversize(seen: GangObservation, want: OversizeExpectation) -> Verdict:
    """Fail once a pod of the oversized gang was bound; pass after `observe_seconds` if the scheduler evidently considered it."""
    if problem := next(_findings(seen, want), None):
        return problem.verdict(OVERSIZE)
    evidence = _evidence(seen, want)
    size = f"{want.count} × {want.units} units on {seen.free} free"
    return passed(
        OVERSIZE, f"a gang of {size}: nobody was bound in {gate_group.age(seen):.0f} s, and the scheduler says {evidence}"
    )


def _findings(seen: GangObservation, want: OversizeExpectation) -> Iterator[Finding]:
    log = gate_group.LOG[want.scheduler]
    yield from _free(seen, want)
    bound = _bound(seen)
    if bound:
        problem = f"{len(bound)} of {want.count} members of a gang that cannot fit were bound, first {bound[0]}"
        step = f"check that pods name the gang scheduler and its gang plugin is on; {log}"
        yield fail(FailureClass.RUNTIME, problem, "none: all or nothing", step, final=True)
    yield from gate_group.judge_group(seen, want.count, want.scheduler)
    # a foreign gang that waits can be the reason why this one waits
    if seen.others:
        step = "wait until it is placed, or look why it is not"
        yield gate_group.undecided(f"gang {seen.others[0]} waits too", "no other pending gang, which would explain the same", step)
    # a queue with room for all members but one leaves only the gang's size as the reason
    quota = gate_group.quota_of(want.count, want.units, want.quota)
    yield from gate_group.judge_queue(seen, want.scheduler, quota - quota // want.count)
    if seen.group and not _evidence(seen, want):
        state = f"{gate_group.group_text(seen.group)}{gate_group.event_text(seen)}"
        problem = f"the scheduler has not said that the gang is too large{state}"
        yield gate_group.undecided(problem, WAITS[want.scheduler], gate_group.next_step(seen, want.scheduler))
    if seen.group and _has_pods(seen.group, want.scheduler) and len(seen.members) < want.count:
        state = f"{len(seen.members)} of {want.count} members of the gang were seen{gate_group.event_text(seen)}"
        yield gate_group.undecided(
            state, "all of them, unbound", f"see what keeps the pods from being made (quota, admission); {log}"
        )
    if gate_group.age(seen) < want.observe_seconds:
        yield gate_group.undecided(f"nobody bound for {gate_group.age(seen):.0f} s", f"{want.observe_seconds:.0f} s", "wait")


def _free(seen: GangObservation, want: OversizeExpectation) -> Iterator[Finding]:
    if seen.free is None or seen.free < 2:
        step = "free GPUs, or wait for other pods to end"
        problem = f"{gate_group.count_text(seen)} units are free"
        yield gate_group.undecided(problem, "at least 2: without free units nobody could be bound", step)
    elif want.count * want.units <= seen.free:
        step = "the fleet has more GPUs than the plan says: correct hosts or accelerator.per_node"
        yield gate_group.undecided(f"{seen.free} units are free", f"fewer than the {want.count * want.units} of the gang", step)


def _has_pods(group: GangGroup, scheduler: Scheduler) -> bool:
    """Return True if a waiting gang should have pods by now: Volcano makes them once it lets a group in; Kueue suspends the Job."""
    return scheduler is Scheduler.KAI or (scheduler is Scheduler.VOLCANO and group.phase == "Inqueue")


def _bound(seen: GangObservation) -> list[str]:
    """Return the gang's pods that are or were bound to a node: by node, condition, phase, an event, or the PodGroup's phase."""
    names = [
        f"{member.name} on {member.node or 'a node'}"
        for member in seen.members
        if member.node or member.bound or member.phase not in ("", "Pending")
    ]
    if seen.group and seen.group.phase in ("Running", "Completed"):
        names.append(f"group {seen.group.name} is {seen.group.phase}")
    # a pod that was bound and deleted between two reads leaves only its event
    return names or list(seen.bindings)


def _evidence(seen: GangObservation, want: OversizeExpectation) -> str:
    """Return, as text, what shows that the scheduler considered the gang and found it too large; empty if nothing shows it."""
    group = seen.group
    if group is None:
        return ""
    conditions = (text for condition in group.conditions if (text := _EVIDENCE[want.scheduler](group, condition, want)))
    return next(conditions, _volcano_event(seen, group) if want.scheduler is Scheduler.VOLCANO else "")


def _volcano(group: GangGroup, condition: GroupCondition, _: OversizeExpectation) -> str:
    """Return Volcano's words for leaving a gang out, from one condition of its PodGroup; empty if the condition does not show that.

    A PodGroup that is not let in (phase Pending) gets `NotEnoughTasks`, because its pods are never created.
    """
    waits = group.phase in ("Pending", "Inqueue")
    # once a group is let in its pods exist, so missing tasks are no proof any more
    reasons = ("NotEnoughResources", "NotEnoughTasks") if group.phase == "Pending" else ("NotEnoughResources",)
    considered = condition.type == "Unschedulable" and condition.status == "True" and condition.reason in reasons
    return f"{condition.reason} ({group.phase})" if waits and considered else ""


def _volcano_event(seen: GangObservation, group: GangGroup) -> str:
    """Return the event by which Volcano refuses to let a gang in. From 1.12 on a group without pods gets no condition."""
    refusals = [event for event in seen.events if event.about == f"PodGroup {group.name}" and event.reason == "Unschedulable"]
    # the plugin that refused writes a normal event with its reason, and the scheduler a warning without one
    refusal = min(refusals, key=lambda event: event.warning, default=None) if group.phase == "Pending" else None
    return f"{refusal.reason} ({group.phase}): {refusal.message}" if refusal else ""


def _kai(_: GangGroup, condition: GroupCondition, want: OversizeExpectation) -> str:
    """Return KAI's words for a gang for which nodes lack room; empty for a queue, a taint or an affinity that keeps pods off.

    Members that are spread one a node (`quota`) request nothing: for them the anti-affinity among themselves is the lack of room.
    A node's lack of CPU cores, memory or pods says nothing about the size of a gang that is too large by its GPUs.
    """
    waits = condition.type == "UnschedulableOnNodePool" and condition.status == "True"
    about_nodes = _KAI_CAUSE in condition.causes if condition.causes else condition.message.startswith(_KAI_CAUSE)
    full = _ANTI_AFFINITY in condition.message if want.quota else _lacks_units(condition.message, want.resource)
    return f"{condition.reason or condition.type}: {condition.message}" if waits and about_nodes and full else ""


def _lacks_units(message: str, resource: str) -> bool:
    """Return True if KAI's message says that nodes lack the resource, and that no more nodes lack any other.

    KAI counts a node once for each resource that it lacks. A gang that has taken every free unit leaves all nodes short of that
    resource, so a larger number of nodes that lack another one shows that units were left.
    """
    lacking = {match[2].rstrip("."): int(match[1]) for match in _KAI_SHORTAGE.finditer(message)}
    own = lacking.get(_KAI_WORDS.get(resource, resource), 0)
    return 0 < own == max(lacking.values())


def _kueue(_: GangGroup, condition: GroupCondition, __: OversizeExpectation) -> str:
    """Return Kueue's words for a gang above its queue's largest quota; empty for any other reason to wait.

    With reason `Pending` only the text tells. `Suspended`, `Misconfigured`, `Inadmissible` and `WaitingForQuota` are about the
    queue, or about quota that others use.
    """
    waits = condition.type == "QuotaReserved" and condition.status == "False"
    too_large = condition.reason == "ExceedsMaxQuota" or (
        condition.reason == "Pending" and "insufficient quota" in condition.message
    )
    return f"QuotaReserved=False, {condition.reason}" if waits and too_large else ""


_EVIDENCE: dict[Scheduler, Callable[[GangGroup, GroupCondition, OversizeExpectation], str]] = {
    Scheduler.VOLCANO: _volcano,
    Scheduler.KAI: _kai,
    Scheduler.KUEUE: _kueue,
}
"""Scheduler → function that returns a condition's words for a gang that was found too large; empty if it does not say so."""
