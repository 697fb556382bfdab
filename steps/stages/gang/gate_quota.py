"""Judges Kueue's quotas against the nodes: they count what nodes advertise, promise no more than exists, and admit something."""

from collections.abc import Iterator

from steps.contract.verdict import FailureClass
from steps.stages.gang.contract import ControlExpectation, ControlObservation, FlavorPool, Quota
from steps.stages.shared.finding import Finding, fail, unknown

CLUSTER_QUEUE = "ClusterQueue "


def judge_quotas(seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    """Yield the problems of all ClusterQueues that the gate expects, then those of the quotas on each flavor together."""
    for queue in sorted(name for name in want.queues if name.startswith(CLUSTER_QUEUE)):
        yield from _covered(queue, seen, want)
        usable = [list(_usable(queue, resource, seen, want)) for resource in want.covered]
        # a queue may be for some of several flavors, and the resources of the others are then out of its reach
        spared = FailureClass.COMPARISON if want.pools and not all(usable) else None
        yield from (finding for findings in usable for finding in findings if finding.failure_class is not spared)
    for flavor in () if want.claims else want.flavors:
        pool = want.pools.get(flavor, FlavorPool(resources=want.covered, spare=want.spare, spares=want.spares))
        for resource in want.covered:
            yield from _backed(flavor, resource, seen, pool)


def _covered(queue: str, seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    covered = seen.covered.get(queue.removeprefix(CLUSTER_QUEUE), ())
    missing = [resource for resource in want.covered if resource not in covered]
    if missing:
        problem = f"{queue} covers {', '.join(covered) or 'nothing'}"
        step = "correct scheduler.flavor.covered_resources: the quota would govern nothing"
        yield fail(FailureClass.COMPARISON, problem, f"{missing[0]}, which the nodes advertise", step)


def _usable(queue: str, resource: str, seen: ControlObservation, want: ControlExpectation) -> Iterator[Finding]:
    """Yield a problem unless the queue has a quota on the resource in a planned flavor, of its own or to borrow."""
    own = (quota for quota in seen.quotas if quota.queue == queue and quota.resource == resource)
    rows = [quota for quota in own if quota.flavor in want.flavors]
    unread = next((quota for quota in rows if quota.nominal is None), None)
    if not rows:
        problem = f"{queue} shows no quota on {resource} in flavor {' or '.join(want.flavors)}"
        yield _unknown(problem, "its nominal quota", "see spec.resourceGroups of the ClusterQueue")
    elif unread is not None:
        yield _unknown(f"{queue}: the quota on {resource} is no quantity", "a number of units", "correct nominalQuota")
    elif sum(_reach(quota, seen.quotas) for quota in rows) < 1:
        problem = f"{queue} admits no unit of {resource}: its nominal quota is 0, and it can borrow nothing"
        step = "raise scheduler.queues[].gpus, or give the queue a cohort that lends and a borrowing limit"
        yield fail(FailureClass.COMPARISON, problem, "at least 1: no gang could ever be admitted", step)


def _reach(quota: Quota, quotas: tuple[Quota, ...]) -> float:
    """Return the most units that a queue can use: its nominal quota, and what the others of its cohort lend up to its limit."""
    nominal = quota.nominal or 0.0
    if not quota.cohort:
        return nominal
    lenders = (other for other in quotas if other.queue != quota.queue and _shares(other, quota))
    lent = sum(_lendable(other) for other in lenders)
    return nominal + (lent if quota.borrowing is None else min(lent, quota.borrowing))


def _shares(other: Quota, quota: Quota) -> bool:
    return (other.cohort, other.flavor, other.resource) == (quota.cohort, quota.flavor, quota.resource)


def _lendable(quota: Quota) -> float:
    nominal = quota.nominal or 0.0
    return nominal if quota.lending is None else min(nominal, quota.lending)


def _backed(flavor: str, resource: str, seen: ControlObservation, pool: FlavorPool) -> Iterator[Finding]:
    """Yield a problem if all queues together promise more of a resource than the flavor's nodes advertise."""
    rows = [quota for quota in seen.quotas if quota.flavor == flavor and quota.resource == resource]
    capacity = seen.capacity.get(flavor)
    if capacity is None:
        yield _unknown(f"what the nodes of flavor {flavor} advertise is unknown", "a number of units", "apply this stage again")
        return
    exists = capacity.get(resource, 0.0)
    if not exists and resource in pool.resources:
        problem = f"no expected node with the labels of ResourceFlavor {flavor} advertises {resource}"
        step = "correct scheduler.flavor: sharing changes the resource and nvidia.com/gpu.product, and quotas then count nothing"
        yield fail(FailureClass.COMPARISON, problem, "the nodes on which the quotas are spent", step)
    promised = sum(quota.nominal or 0.0 for quota in rows)
    # units that the quorum forgives are of resources that the pool has
    spare = pool.spares.get(resource, pool.spare) if resource in pool.resources else 0
    if promised <= exists + spare:
        return
    named = ", ".join(f"{quota.queue} {quota.nominal:g}" for quota in rows if quota.nominal)
    forgiven = f" and {spare} units of nodes that the quorum forgives" if spare else ""
    problem = f"quotas on {resource} in flavor {flavor} add up to {promised:g} ({named})"
    step = "lower scheduler.queues[].gpus or the quota that was added by hand; or see gang/nodes for nodes that are missing"
    expected = f"at most the {exists:g} that the expected nodes with its labels advertise{forgiven}"
    yield fail(FailureClass.COMPARISON, problem, expected, step)


def _unknown(seen: str, expected: str, step: str) -> Finding:
    return unknown(FailureClass.HEALTH, seen, expected, step)
