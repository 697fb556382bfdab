"""Rules and texts that the gates on both test gangs share: the gang's group, its queue, and the newest event about it."""

from collections.abc import Iterator

from steps.contract.verdict import FailureClass
from steps.stages.gang.contract import GangEvent, GangGroup, GangObservation, GroupCondition, Scheduler
from steps.stages.shared.finding import Finding, fail, unknown

LOG = {
    Scheduler.VOLCANO: "kubectl -n volcano-system logs deploy/volcano-scheduler",
    Scheduler.KAI: "kubectl -n kai-scheduler logs deploy/kai-scheduler-default",
    Scheduler.KUEUE: "kubectl -n kueue-system logs deploy/kueue-controller-manager",
}
MADE_BY = {Scheduler.VOLCANO: "volcano-controllers", Scheduler.KAI: "pod-grouper", Scheduler.KUEUE: "kueue-controller-manager"}
DENIED = ("admission webhook", "denied the request", "ValidatingAdmissionPolicy", "is forbidden")
"""Texts by which the API server reports that a webhook, a policy or a missing right refused a request."""


def judge_group(seen: GangObservation, count: int, scheduler: Scheduler) -> Iterator[Finding]:
    """Yield a problem unless the scheduler knows the pods as one gang of `count`: separate pods could pass the tests by luck."""
    if seen.group is None:
        step = f"see {MADE_BY[scheduler]}: it makes the group"
        yield undecided(f"no group of the check's pods exists{event_text(seen)}", "one group for the whole gang", step)
    elif seen.group.least != count:
        problem = f"group {seen.group.name} wants {seen.group.least} members"
        step = "see minAvailable (Volcano) or the annotation kai.scheduler/batch-min-member (KAI)"
        yield fail(FailureClass.COMPARISON, problem, f"{count}: the pods are no gang otherwise", step, final=True)


def judge_queue(seen: GangObservation, scheduler: Scheduler, least: float) -> Iterator[Finding]:
    """Yield a problem if the gang's queue is unknown, not active, or admits less than `least` units.

    Every scheduler reports a gang that its queue keeps out in the same condition as one that is too large for the nodes.
    """
    queue = seen.queue
    if queue is None:
        yield undecided("the queue in which the gang waits was not found", "it, active", LOG[scheduler])
    elif not queue.active:
        problem = f"{queue.name} is not active: {queue.why or 'it does not say why'}"
        yield undecided(problem, "an active queue: otherwise the gang waits because of it", "correct what it names")
    elif queue.limit is None and scheduler is Scheduler.KUEUE:
        yield undecided(f"the quota of {queue.name} is unknown", "its nominal quota: Kueue has no unlimited queue", LOG[scheduler])
    elif queue.limit is not None and queue.limit < least:
        expected = f"at least {least:g}: otherwise its limit keeps the gang out"
        yield undecided(f"{queue.name} admits at most {queue.limit:g} units", expected, f"raise the limit of {queue.name}")


def quota_of(count: int, units: int, quota: int) -> int:
    """Return the amount of a queue's quota that a gang takes; `quota` 0 means that it is the same as its units on the nodes."""
    return quota or count * units


def group_text(group: GangGroup | None) -> str:
    """Return phase and conditions of the gang's group for a sentence, with a leading `; `; empty without a group."""
    if group is None:
        return ""
    phase = [f"phase {group.phase}"] if group.phase else []
    conditions = [condition_text(condition) for condition in group.conditions] or ["no condition"]
    return f"; group {group.name}: {', '.join((*phase, *conditions))}"


def condition_text(condition: GroupCondition) -> str:
    """Return a condition as `TYPE=STATUS REASON (CAUSES): MESSAGE`, without the parts that are empty."""
    causes = f"({', '.join(condition.causes)})" if condition.causes else ""
    head = " ".join(filter(None, (f"{condition.type}={condition.status}", condition.reason, causes)))
    return f"{head}: {condition.message}" if condition.message else head


def newest_event(seen: GangObservation) -> GangEvent | None:
    """Return the newest warning about the gang; without any, the newest event about its group; None if there is no event."""
    newest = sorted(seen.events, key=lambda event: (event.warning, event.time), reverse=True)
    return newest[0] if newest else None


def event_text(seen: GangObservation) -> str:
    """Return the newest event about the gang for a sentence, with a leading `; `; empty if there is none."""
    event = newest_event(seen)
    return f"; event about {event.about}: {event.reason} {event.message}".rstrip() if event else ""


def next_step(seen: GangObservation, scheduler: Scheduler) -> str:
    """Return where to look for the reason of a gang that waits: a policy that refused a request, else the scheduler's log."""
    event = newest_event(seen)
    if event and any(text in event.message for text in DENIED):
        return "let the policy or webhook that the message names admit pods of namespace bringup-check"
    return LOG[scheduler]


def count_text(seen: GangObservation) -> str:
    """Return the number of free units as a word for a sentence."""
    return "an unknown number of" if seen.free is None else str(seen.free)


def age(seen: GangObservation) -> float:
    """Return the seconds since the gang was created; 0 if that time is unknown."""
    return seen.now - seen.since if seen.since else 0.0


def undecided(seen: str, expected: str, step: str) -> Finding:
    """Return an inconclusive finding of class runtime."""
    return unknown(FailureClass.RUNTIME, seen, expected, step)
