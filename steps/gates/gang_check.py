"""The two gangs: zero bound at every look with proof that the scheduler considered it, and all bound in time (gpu_stack §4.4).

That nobody is bound proves nothing by itself: a scheduler that is down binds nobody either, and so does a queue that never let the
pods be made. So both checks want positive evidence, and its absence is inconclusive.
"""

from collections.abc import Callable, Iterator

from steps.contract.stages.gang import Condition, FitExpectation, GangObservation, Group, OversizeExpectation, Scheduler
from steps.contract.verdict import FailureClass, Verdict, failed, inconclusive, passed

OVERSIZE, FIT = "gang/oversize", "gang/functional"
LOG = {
    Scheduler.VOLCANO: "kubectl -n volcano-system logs deploy/volcano-scheduler",
    Scheduler.KAI: "kubectl -n kai-scheduler logs deploy/kai-scheduler-default",
    Scheduler.KUEUE: "kubectl -n kueue-system logs deploy/kueue-controller-manager",
}
MADE_BY = {Scheduler.VOLCANO: "volcano-controllers", Scheduler.KAI: "pod-grouper", Scheduler.KUEUE: "kueue-controller-manager"}


def oversize(seen: GangObservation, want: OversizeExpectation) -> Verdict:
    """Fail as soon as one member was bound, however shortly; pass after the wanted time with evidence."""
    found = next(_oversize_findings(seen, want), None)
    if found is not None:
        return found
    group = seen.group
    said = _evidence(group, want.scheduler) if group else ""
    size = f"{want.count} × {want.units} units on {seen.free} free"
    return passed(OVERSIZE, f"a gang of {size}: nobody was bound in {_age(seen):.0f} s, and the scheduler says {said}")


def _oversize_findings(seen: GangObservation, want: OversizeExpectation) -> Iterator[Verdict]:
    log = LOG[want.scheduler]
    if seen.free is None or seen.free < 2:
        step = "free GPUs, or wait for other pods to end"
        yield _open(OVERSIZE, f"{_count(seen)} units are free", "at least 2: without free units nobody could be bound", step)
    elif want.count * want.units <= seen.free:
        step = "the fleet has more GPUs than the plan says: correct hosts or accelerator.per_node"
        yield _open(OVERSIZE, f"{seen.free} units are free", f"fewer than the {want.count * want.units} of the gang", step)
    bound = _bound(seen)
    if bound:
        yield failed(
            OVERSIZE,
            FailureClass.RUNTIME,
            seen=f"{len(bound)} of {want.count} members of a gang that cannot fit were bound, first {bound[0]}",
            expected="none: all or nothing",
            next_step=f"check that pods name the gang scheduler and its gang plugin is on; {log}",
            final=True,
        )
    yield from _group(OVERSIZE, seen, want.count, want.scheduler)
    if seen.others:
        step = "wait until it is placed, or look why it is not"
        yield _open(OVERSIZE, f"gang {seen.others[0]} waits too", "no other pending gang, which would explain the same", step)
    if seen.group and not _evidence(seen.group, want.scheduler):
        said = _told(seen.group)
        yield _open(OVERSIZE, f"the scheduler has not said why the gang waits ({said})", _wanted(want.scheduler), log)
    if seen.group and _has_pods(seen.group, want.scheduler) and len(seen.members) < want.count:
        said = f"{len(seen.members)} of {want.count} members of the gang were seen"
        yield _open(OVERSIZE, said, "all of them, unbound", f"see what keeps the pods from being made (quota, admission); {log}")
    if _age(seen) < want.observe_seconds:
        yield _open(OVERSIZE, f"nobody bound for {_age(seen):.0f} s", f"{want.observe_seconds:.0f} s", "wait")


def fit(seen: GangObservation, want: FitExpectation) -> Verdict:
    """Pass once every member is bound, if that took no longer than wanted."""
    found = next(_fit_findings(seen, want), None)
    if found is not None:
        return found
    took = max(member.bound for member in seen.members) - seen.since
    return passed(FIT, f"a gang of {want.count} × {want.units} units was bound as a whole in {max(took, 0.0):.0f} s")


def _fit_findings(seen: GangObservation, want: FitExpectation) -> Iterator[Verdict]:
    bound = [member for member in seen.members if member.node and member.bound]
    complete = len(bound) >= want.count
    if not complete and (seen.free is None or seen.free < want.count * want.units):
        yield _open(FIT, f"{_count(seen)} units are free", f"{want.count * want.units}, so that the gang fits", "free GPUs")
    yield from _group(FIT, seen, want.count, want.scheduler)
    late = max((member.bound for member in bound), default=seen.now) - seen.since
    if complete and late <= want.within_seconds:
        return
    waiting = next((member for member in seen.members if not member.node and member.reason), None)
    said = f"{len(bound)} of {want.count} members bound after {max(late, _age(seen) if not complete else late):.0f} s"
    why = f"; {waiting.name}: {waiting.reason} {waiting.message}".rstrip() if waiting else ""
    expected = f"all within {want.within_seconds:.0f} s"
    if complete or _age(seen) > want.within_seconds:
        failure_class = FailureClass.PERFORMANCE if complete else FailureClass.RUNTIME
        yield failed(FIT, failure_class, seen=said + why, expected=expected, next_step=LOG[want.scheduler], final=complete)
    else:
        yield _open(FIT, said + why, expected, LOG[want.scheduler])


def _group(gate: str, seen: GangObservation, count: int, scheduler: Scheduler) -> Iterator[Verdict]:
    """The scheduler must know the pods as one gang of that size; a group of one makes every gang test pass or fail by luck."""
    if seen.group is None:
        step = f"see {MADE_BY[scheduler]}: it makes the group"
        yield _open(gate, "no group of the check's pods exists", "one group for the whole gang", step)
    elif seen.group.least != count:
        yield failed(
            gate,
            FailureClass.COMPARISON,
            seen=f"group {seen.group.name} wants {seen.group.least} members",
            expected=f"{count}: the pods are no gang otherwise",
            next_step="see minAvailable (Volcano) or the annotation kai.scheduler/batch-min-member (KAI)",
            final=True,
        )


def _has_pods(group: Group, scheduler: Scheduler) -> bool:
    """Whether a waiting gang has pods by now: Volcano makes them once it lets a group in, Kueue keeps the Job suspended."""
    return scheduler is Scheduler.KAI or (scheduler is Scheduler.VOLCANO and group.phase == "Inqueue")


def _bound(seen: GangObservation) -> list[str]:
    """Members that are or were bound: by their node, their condition, their phase, an event, or the group's own word."""
    names = [
        f"{member.name} on {member.node or 'a node'}"
        for member in seen.members
        if member.node or member.bound or member.phase not in ("", "Pending")
    ]
    if seen.group and seen.group.phase in ("Running", "Completed"):
        names.append(f"group {seen.group.name} is {seen.group.phase}")
    return names or list(seen.bindings)


def _evidence(group: Group, scheduler: Scheduler) -> str:
    """What shows that the scheduler considered the gang and left it out; empty where nothing does."""
    return next((text for condition in group.conditions if (text := _EVIDENCE[scheduler](group, condition))), "")


def _volcano(group: Group, condition: Condition) -> str:
    """`NotEnoughTasks` is what a gang gets that stays outside: its pods were never made (gpu_stack §4.1)."""
    waits = group.phase in ("Pending", "Inqueue")
    reasons = ("NotEnoughResources", "NotEnoughTasks") if group.phase == "Pending" else ("NotEnoughResources",)
    considered = condition.type == "Unschedulable" and condition.status == "True" and condition.reason in reasons
    return f"{condition.reason} ({group.phase})" if waits and considered else ""


def _kai(_: Group, condition: Condition) -> str:
    return condition.reason or "UnschedulableOnNodePool" if _is(condition, "UnschedulableOnNodePool", "True") else ""


def _kueue(_: Group, condition: Condition) -> str:
    return f"QuotaReserved=False, {condition.reason}" if _is(condition, "QuotaReserved", "False") else ""


_EVIDENCE: dict[Scheduler, Callable[[Group, Condition], str]] = {
    Scheduler.VOLCANO: _volcano,
    Scheduler.KAI: _kai,
    Scheduler.KUEUE: _kueue,
}


def _wanted(scheduler: Scheduler) -> str:
    return {
        Scheduler.VOLCANO: "PodGroup Pending or Inqueue with Unschedulable=True, NotEnoughResources",
        Scheduler.KAI: "PodGroup with UnschedulableOnNodePool=True",
        Scheduler.KUEUE: "Workload with QuotaReserved=False",
    }[scheduler]


def _is(condition: Condition, kind: str, status: str) -> bool:
    return condition.type == kind and condition.status == status


def _told(group: Group) -> str:
    told = ", ".join(f"{one.type}={one.status} {one.reason}".rstrip() for one in group.conditions)
    return f"phase {group.phase or 'none'}, {told or 'no condition'}"


def _count(seen: GangObservation) -> str:
    return "an unknown number of" if seen.free is None else str(seen.free)


def _age(seen: GangObservation) -> float:
    """For how long the gang has been looked at; not at all where nobody knows since when."""
    return seen.now - seen.since if seen.since else 0.0


def _open(gate: str, seen: str, expected: str, next_step: str) -> Verdict:
    return inconclusive(gate, seen=seen, expected=expected, next_step=next_step, failure_class=FailureClass.RUNTIME)
