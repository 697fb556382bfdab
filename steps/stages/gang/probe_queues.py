"""Reads the queues of Volcano, KAI and Kueue, with their limits, and Kueue's flavors and quotas."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from steps.contract.objects.checks import CHECK_LABEL
from steps.stages.gang.contract import Flavor, Queue, Quota, Scheduler
from steps.stages.shared import kube_objects
from steps.stages.shared.kube_objects import Conditions
from steps.stages.shared.kube_reader import KubeReader
from steps.stages.shared.quantities import quantity

VOLCANO = "/apis/scheduling.volcano.sh/v1beta1"
KAI = "/apis/scheduling.run.ai"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
GPU = "nvidia.com/gpu"
"""The only resource that KAI's queues limit as `gpu`."""

Quantity = str | int | float
"""A Kubernetes quantity as the API server returns it; custom resources without a schema keep numbers."""


class _QueueStatus(Conditions, frozen=True):
    state: str = ""


class _ResourceQuota(Struct, frozen=True, rename="camel"):
    """A quota of Kueue on one resource in one flavor."""

    name: str = ""
    nominal_quota: Quantity = ""
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class _FlavorQuotas(Struct, frozen=True):
    """The quotas of a ClusterQueue or Cohort in one flavor."""

    name: str = ""
    resources: tuple[_ResourceQuota, ...] = ()


class _ResourceGroup(Struct, frozen=True, rename="camel"):
    covered_resources: tuple[str, ...] = ()
    flavors: tuple[_FlavorQuotas, ...] = ()


class _KaiShare(Struct, frozen=True):
    """KAI's limit on one resource of a queue; -1 means no limit, and the default 0 admits nothing."""

    limit: float = 0.0


class _KaiResources(Struct, frozen=True):
    gpu: _KaiShare = _KaiShare()


class _Guarantee(Struct, frozen=True):
    resource: dict[str, Quantity] = {}


class _QueueSpec(Struct, frozen=True, rename="camel"):
    """Spec of a queue: fields of Volcano, KAI and Kueue together, of which each sets its own."""

    capability: dict[str, Quantity] = {}
    guarantee: _Guarantee = _Guarantee()
    parent: str = ""
    parent_queue: str = ""
    resources: _KaiResources = _KaiResources()
    resource_groups: tuple[_ResourceGroup, ...] = ()
    cohort_name: str = ""


class RawQueue(Struct, frozen=True):
    """A queue of Volcano, KAI or Kueue, or a Cohort of Kueue, as the API returns it."""

    metadata: kube_objects.ObjectMeta = kube_objects.ObjectMeta()
    spec: _QueueSpec = _QueueSpec()
    status: _QueueStatus = _QueueStatus()


class _FlavorSpec(Struct, frozen=True, rename="camel"):
    node_labels: dict[str, str] = {}


class _RawFlavor(Struct, frozen=True):
    """A ResourceFlavor as the API returns it."""

    metadata: kube_objects.ObjectMeta = kube_objects.ObjectMeta()
    spec: _FlavorSpec = _FlavorSpec()


def cluster_queues(kube: KubeReader) -> tuple[RawQueue, ...]:
    """Return Kueue's ClusterQueues without those of checks, which last as long as a check."""
    every = kube.list(f"{KUEUE}/clusterqueues", RawQueue) or ()
    return tuple(queue for queue in every if CHECK_LABEL not in queue.metadata.labels)


def queues(kube: KubeReader, clusters: Iterable[RawQueue]) -> tuple[Queue, ...]:
    """Return the queues of all schedulers, with Kueue's ClusterQueues as they are given.

    KAI's queues have no state, so their existence counts as active.
    """
    volcano = map(_volcano_queue, kube.list(f"{VOLCANO}/queues", RawQueue) or ())
    kai = (Queue(name=f"Queue {queue.metadata.name}", active=True) for queue in kube.list(f"{KAI}/v2/queues", RawQueue) or ())
    local = (_kueue_queue("LocalQueue", queue) for queue in kube.list(f"{KUEUE}/localqueues", RawQueue) or ())
    return (*volcano, *kai, *local, *(_kueue_queue("ClusterQueue", queue) for queue in clusters))


def flavors(kube: KubeReader) -> tuple[Flavor, ...]:
    """Return Kueue's ResourceFlavors."""
    every = kube.list(f"{KUEUE}/resourceflavors", _RawFlavor) or ()
    return tuple(Flavor(name=flavor.metadata.name, labels=flavor.spec.node_labels) for flavor in every)


def covered(clusters: Iterable[RawQueue]) -> dict[str, tuple[str, ...]]:
    """Return ClusterQueue name → resources under its quota."""
    return {
        queue.metadata.name: tuple(name for group in queue.spec.resource_groups for name in group.covered_resources)
        for queue in clusters
    }


def quotas(kube: KubeReader, clusters: Iterable[RawQueue]) -> tuple[Quota, ...]:
    """Return the quotas of the ClusterQueues, and those that Cohorts own themselves."""
    own = (quota for queue in clusters for quota in _quotas(f"ClusterQueue {queue.metadata.name}", queue.spec.cohort_name, queue))
    cohorts = kube.list(f"{KUEUE}/cohorts", RawQueue) or ()
    shared = (quota for cohort in cohorts for quota in _quotas(f"Cohort {cohort.metadata.name}", cohort.metadata.name, cohort))
    return (*own, *shared)


def _quotas(name: str, cohort: str, queue: RawQueue) -> Iterable[Quota]:
    for flavor in (flavor for group in queue.spec.resource_groups for flavor in group.flavors):
        for resource in flavor.resources:
            yield Quota(
                queue=name,
                flavor=flavor.name,
                resource=resource.name,
                nominal=quantity(resource.nominal_quota),
                cohort=cohort,
                borrowing=None if resource.borrowing_limit is None else quantity(resource.borrowing_limit),
                lending=None if resource.lending_limit is None else quantity(resource.lending_limit),
            )


# ---- the queue of a gang -------------------------------------------------------------------------------------------------------


def gang_queue(kube: KubeReader, scheduler: Scheduler, name: str, resource: str, total: float) -> Queue | None:
    """Return the queue of a gang with its limit on a resource, of which all nodes together have `total`; None if there is none.

    The limit is the smallest of the queue and its parents. For Kueue the name is that of the check's ClusterQueue.
    """
    if scheduler is Scheduler.KUEUE:
        queue = kube.get(f"{KUEUE}/clusterqueues/{name}", RawQueue)
        return _with_limit(_kueue_queue("ClusterQueue", queue), [_nominal(queue, resource)]) if queue else None
    path = f"{VOLCANO}/queues" if scheduler is Scheduler.VOLCANO else f"{KAI}/v2/queues"
    by_name = {queue.metadata.name: queue for queue in kube.list(path, RawQueue) or ()}
    chain = _chain(by_name, name)
    if not chain:
        return None
    if scheduler is Scheduler.KAI:
        limits = [queue.spec.resources.gpu.limit for queue in chain] if resource == GPU else []
        return _with_limit(Queue(name=f"Queue {name}", active=True), [None if limit < 0 else limit for limit in limits])
    reserved = sum(_amount(queue.spec.guarantee.resource, resource) or 0.0 for key, queue in by_name.items() if key != name)
    capabilities = [_amount(queue.spec.capability, resource) for queue in chain]
    # what other queues are guaranteed is out of reach for this one
    return _with_limit(_volcano_queue(chain[0]), [*capabilities, total - reserved if reserved else None])


def _chain(by_name: Mapping[str, RawQueue], name: str) -> list[RawQueue]:
    """Return a queue with its parents, up to the root; empty if there is no such queue."""
    chain: list[RawQueue] = []
    queue = by_name.get(name)
    while queue is not None and queue not in chain:
        chain.append(queue)
        queue = by_name.get(queue.spec.parent or queue.spec.parent_queue)
    return chain


def _with_limit(queue: Queue, limits: Iterable[float | None]) -> Queue:
    known = [limit for limit in limits if limit is not None]
    return Queue(name=queue.name, active=queue.active, why=queue.why, limit=min(known, default=None))


def _nominal(queue: RawQueue, resource: str) -> float | None:
    """Return a ClusterQueue's nominal quota on a resource over all flavors; 0 if it has none, because it then admits nothing."""
    rows = (quota for quota in _quotas("", "", queue) if quota.resource == resource)
    return sum(quota.nominal or 0.0 for quota in rows)


def _amount(amounts: Mapping[str, Quantity], resource: str) -> float | None:
    return quantity(amounts[resource]) if resource in amounts else None


def _volcano_queue(queue: RawQueue) -> Queue:
    state = queue.status.state
    return Queue(name=f"Queue {queue.metadata.name}", active=state == "Open", why=f"state {state or 'none'}")


def _kueue_queue(kind: str, queue: RawQueue) -> Queue:
    active = queue.status.of_type("Active")
    place = f"{queue.metadata.namespace}/" if queue.metadata.namespace else ""
    return Queue(
        name=f"{kind} {place}{queue.metadata.name}",
        active=active.status == "True" if active.status else None,
        why=f"{active.reason}: {active.message}" if active.status == "False" else "",
    )
