"""Judges the two test gangs: one that cannot fit binds no pod at any time, and one that fits is bound as a whole in time.

An unbound gang proves nothing by itself: a scheduler that is down binds nothing either, nor does a queue that never let the pods be
created. So both checks want positive evidence, and its absence is inconclusive. See `steps/docs/facts/gpu.md`, Functional
gate of a gang scheduler.
"""

from collections.abc import Callable, Iterator

from steps.contract.verdict import FailureClass, Verdict, passed
from steps.stages.gang.contract import FitExpectation, GangGroup, GangObservation, GroupCondition, OversizeExpectation, Scheduler
from steps.stages.shared.finding import Finding, fail, unknown

OVERSIZE, FIT = "gang/oversize", "gang/functional"
LOG = {
    Scheduler.VOLCANO: "kubectl -n volcano-system logs deploy/volcano-scheduler",
    Scheduler.KAI: "kubectl -n kai-scheduler logs deploy/kai-scheduler-default",
    Scheduler.KUEUE: "kubectl -n kueue-system logs deploy/kueue-controller-manager",
}
WAITS = {
    Scheduler.VOLCANO: "PodGroup Pending or Inqueue with Unschedulable=True, NotEnoughResources",
    Scheduler.KAI: "PodGroup with UnschedulableOnNodePool=True",
    Scheduler.KUEUE: "Workload with QuotaReserved=False",
}
"""Scheduler → words for the evidence that it considered a gang and left it out."""
MADE_BY = {Scheduler.VOLCANO: "volcano-controllers", Scheduler.KAI: "pod-grouper", Scheduler.KUEUE: "kueue-controller-manager"}


def judge_oversize(seen: GangObservation, want: OversizeExpectation) -> Verdict:
    """Fail once a pod of the oversized gang was bound; pass after `observe_seconds` if the scheduler evidently considered it."""
    if problem := next(_oversize_findings(seen, want), None):
        return problem.verdict(OVERSIZE)
    group = seen.group
    evidence = _evidence(group, want.scheduler) if group else ""
    size = f"{want.count} × {want.units} units on {seen.free} free"
    return passed(OVERSIZE, f"a gang of {size}: nobody was bound in {_age(seen):.0f} s, and the scheduler says {evidence}")


def _oversize_findings(seen: GangObservation, want: OversizeExpectation) -> Iterator[Finding]:
    log = LOG[want.scheduler]
    if seen.free is None or seen.free < 2:
        step = "free GPUs, or wait for other pods to end"
        yield _open(f"{_count(seen)} units are free", "at least 2: without free units nobody could be bound", step)
    elif want.count * want.units <= seen.free:
        step = "the fleet has more GPUs than the plan says: correct hosts or accelerator.per_node"
        yield _open(f"{seen.free} units are free", f"fewer than the {want.count * want.units} of the gang", step)
    bound = _bound(seen)
    if bound:
        problem = f"{len(bound)} of {want.count} members of a gang that cannot fit were bound, first {bound[0]}"
        step = f"check that pods name the gang scheduler and its gang plugin is on; {log}"
        yield fail(FailureClass.RUNTIME, problem, "none: all or nothing", step, final=True)
    yield from _group(seen, want.count, want.scheduler)
    # a foreign gang that waits can be the reason why this one waits
    if seen.others:
        step = "wait until it is placed, or look why it is not"
        yield _open(f"gang {seen.others[0]} waits too", "no other pending gang, which would explain the same", step)
    if seen.group and not _evidence(seen.group, want.scheduler):
        conditions = ", ".join(f"{row.type}={row.status} {row.reason}".rstrip() for row in seen.group.conditions)
        state = f"phase {seen.group.phase or 'none'}, {conditions or 'no condition'}"
        yield _open(f"the scheduler has not said why the gang waits ({state})", WAITS[want.scheduler], log)
    if seen.group and _has_pods(seen.group, want.scheduler) and len(seen.members) < want.count:
        state = f"{len(seen.members)} of {want.count} members of the gang were seen"
        yield _open(state, "all of them, unbound", f"see what keeps the pods from being made (quota, admission); {log}")
    if _age(seen) < want.observe_seconds:
        yield _open(f"nobody bound for {_age(seen):.0f} s", f"{want.observe_seconds:.0f} s", "wait")


def judge_fit(seen: GangObservation, want: FitExpectation) -> Verdict:
    """Pass if every pod of the fitting gang was bound within `within_seconds`; wait until then, fail later."""
    if problem := next(_fit_findings(seen, want), None):
        return problem.verdict(FIT)
    took = max(member.bound for member in seen.members) - seen.since
    return passed(FIT, f"a gang of {want.count} × {want.units} units was bound as a whole in {max(took, 0.0):.0f} s")


def _fit_findings(seen: GangObservation, want: FitExpectation) -> Iterator[Finding]:
    bound = [member for member in seen.members if member.node and member.bound]
    complete = len(bound) >= want.count
    if not complete and (seen.free is None or seen.free < want.count * want.units):
        yield _open(f"{_count(seen)} units are free", f"{want.count * want.units}, so that the gang fits", "free GPUs")
    yield from _group(seen, want.count, want.scheduler)
    late = max((member.bound for member in bound), default=seen.now) - seen.since
    if complete and late <= want.within_seconds:
        return
    waiting = next((member for member in seen.members if not member.node and member.reason), None)
    progress = f"{len(bound)} of {want.count} members bound after {max(late, _age(seen) if not complete else late):.0f} s"
    why = f"; {waiting.name}: {waiting.reason} {waiting.message}".rstrip() if waiting else ""
    expected = f"all within {want.within_seconds:.0f} s"
    if complete or _age(seen) > want.within_seconds:
        failure_class = FailureClass.PERFORMANCE if complete else FailureClass.RUNTIME
        yield fail(failure_class, progress + why, expected, LOG[want.scheduler], final=complete)
    else:
        yield _open(progress + why, expected, LOG[want.scheduler])


def _group(seen: GangObservation, count: int, scheduler: Scheduler) -> Iterator[Finding]:
    """Yield a problem unless the scheduler knows the pods as one gang of `count`: separate pods could pass the tests by luck."""
    if seen.group is None:
        step = f"see {MADE_BY[scheduler]}: it makes the group"
        yield _open("no group of the check's pods exists", "one group for the whole gang", step)
    elif seen.group.least != count:
        problem = f"group {seen.group.name} wants {seen.group.least} members"
        step = "see minAvailable (Volcano) or the annotation kai.scheduler/batch-min-member (KAI)"
        yield fail(FailureClass.COMPARISON, problem, f"{count}: the pods are no gang otherwise", step, final=True)


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


def _evidence(group: GangGroup, scheduler: Scheduler) -> str:
    """Return, as text, the group's condition which shows that the scheduler considered the gang and left it out; else empty."""
    return next((text for condition in group.conditions if (text := _EVIDENCE[scheduler](group, condition))), "")


def _volcano(group: GangGroup, condition: GroupCondition) -> str:
    """Return Volcano's words for leaving a gang out, from one condition of its PodGroup; empty if the condition does not show that.

    A PodGroup that is not let in (phase Pending) gets `NotEnoughTasks`, because its pods are never created.
    """
    waits = group.phase in ("Pending", "Inqueue")
    # once a group is let in its pods exist, so missing tasks are no proof any more
    reasons = ("NotEnoughResources", "NotEnoughTasks") if group.phase == "Pending" else ("NotEnoughResources",)
    considered = condition.type == "Unschedulable" and condition.status == "True" and condition.reason in reasons
    return f"{condition.reason} ({group.phase})" if waits and considered else ""


def _kai(_: GangGroup, condition: GroupCondition) -> str:
    return condition.reason or "UnschedulableOnNodePool" if _is(condition, "UnschedulableOnNodePool", "True") else ""


def _kueue(_: GangGroup, condition: GroupCondition) -> str:
    return f"QuotaReserved=False, {condition.reason}" if _is(condition, "QuotaReserved", "False") else ""


_EVIDENCE: dict[Scheduler, Callable[[GangGroup, GroupCondition], str]] = {
    Scheduler.VOLCANO: _volcano,
    Scheduler.KAI: _kai,
    Scheduler.KUEUE: _kueue,
}


def _is(condition: GroupCondition, kind: str, status: str) -> bool:
    return condition.type == kind and condition.status == status


def _count(seen: GangObservation) -> str:
    return "an unknown number of" if seen.free is None else str(seen.free)


def _age(seen: GangObservation) -> float:
    """Return the seconds since the gang was created; 0 if that time is unknown."""
    return seen.now - seen.since if seen.since else 0.0


def _open(seen: str, expected: str, next_step: str) -> Finding:
    return unknown(FailureClass.RUNTIME, seen, expected, next_step)
