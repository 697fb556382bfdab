"""A simulated Kueue: quotas admit whole Jobs; a Job above its queue's quota stays suspended (`steps/docs/facts/gpu.md`, Kueue)."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from workflows.rehearsal.simulator import simulated_pods
from workflows.rehearsal.simulator.api_kinds import (
    DEPLOYMENTS,
    JOBS,
    Obj,
    ObjectKind,
    annotations_of,
    custom,
    has_condition,
    labels_of,
)
from workflows.rehearsal.simulator.chart_installers import ChartRelease, chart
from workflows.rehearsal.simulator.operators import has_ready_pod
from workflows.rehearsal.simulator.scheduler import quantity, requests
from workflows.rehearsal.simulator.world import Changes, World

CLUSTER_QUEUES = custom("kueue.x-k8s.io", "ClusterQueue")
LOCAL_QUEUES = custom("kueue.x-k8s.io", "LocalQueue")
FLAVORS = custom("kueue.x-k8s.io", "ResourceFlavor")
WORKLOADS = custom("kueue.x-k8s.io", "Workload")
SYSTEM, CONTROLLER = "kueue-system", "kueue-controller-manager"
QUEUE = "kueue.x-k8s.io/queue-name"


@chart("kueue")
def install(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart kueue: its CRDs and the controller's Deployment."""
    release.crds("kueue.x-k8s.io")
    release.deployment(CONTROLLER, image=f"registry.k8s.io/kueue/kueue:v{release.version}")


class Kueue:
    """Simulated Kueue controller for batch Jobs. They must be created suspended, as no webhook suspends them here."""

    name = "kueue"
    kinds = (CLUSTER_QUEUES, LOCAL_QUEUES, FLAVORS, WORKLOADS, JOBS, DEPLOYMENTS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Write if each queue is active, then a Workload for each Job that names a queue; resume the Jobs that are admitted."""
        if not world.served(WORKLOADS) or not has_ready_pod(world, SYSTEM, CONTROLLER) or not changed.concern(*self.kinds):
            return
        for queue in world.objects(CLUSTER_QUEUES):
            _change_quota(world, queue)
        for queue in world.objects(CLUSTER_QUEUES):
            _cluster_queue(world, queue)
        for queue in world.objects(LOCAL_QUEUES):
            missing = world.find(CLUSTER_QUEUES, queue["spec"]["clusterQueue"]) is None
            message = "Can't submit new workloads" if missing else "Can submit new workloads to localQueue"
            _active(world, LOCAL_QUEUES, queue, "ClusterQueueDoesNotExist" if missing else "Ready", message)
        # the fault `gang_kueue_without_jobs`: a configuration whose integrations lack batch/job
        for job in () if world.fault("gang_kueue_without_jobs") else world.objects(JOBS):
            if QUEUE in labels_of(job) and "deletionTimestamp" not in job["metadata"]:
                _job(world, job)


def _flavors(queue: Obj) -> Iterator[Obj]:
    return (flavor for group in queue["spec"].get("resourceGroups") or () for flavor in group["flavors"])


CHANGED = "simulated/quota-changed"


def _change_quota(world: World, queue: Obj) -> None:
    """Let somebody change the quotas of a queue, once, if a fault says so."""
    if CHANGED in annotations_of(queue):
        return
    groups = copy.deepcopy(queue["spec"].get("resourceGroups") or [])
    for resource in (resource for group in groups for flavor in group["flavors"] for resource in flavor["resources"]):
        planned = int(quantity(resource["nominalQuota"]))
        changed = _changed_quota(world, labels_of(queue).get(simulated_pods.CHECK, ""), planned)
        if changed == planned:
            return
        resource["nominalQuota"] = str(changed)
    world.patch(CLUSTER_QUEUES, queue, {"metadata": {"annotations": {CHANGED: "done"}}, "spec": {"resourceGroups": groups}})


def _changed_quota(world: World, check_name: str, planned: int) -> int:
    """Return a quota of a check's queue (empty name: of a tenant's queue) as the active faults leave it, in units."""
    if not check_name:
        return planned * 10 if world.fault("gang_quota_above_fleet") else planned
    if check_name == "gang-oversize" and world.fault("gang_check_quota_zero"):
        return 0
    return min(planned, 2) if world.fault("gang_queue_limited") else planned


def _cluster_queue(world: World, queue: Obj) -> None:
    missing = [flavor["name"] for flavor in _flavors(queue) if world.find(FLAVORS, flavor["name"]) is None]
    refusal = f"Can't admit new workloads: references missing ResourceFlavor(s): {missing}."
    message = refusal if missing else "Can admit new workloads"
    _active(world, CLUSTER_QUEUES, queue, "FlavorNotFound" if missing else "Ready", message)


def _active(world: World, kind: ObjectKind, queue: Obj, reason: str, message: str) -> None:
    world.set_condition(kind, queue, "Active", "True" if reason == "Ready" else "False", reason, message)


def _job(world: World, job: Obj) -> None:
    """Create a Job's Workload. If the quota suffices, resume the Job and add the flavor's node labels to its node selector."""
    meta = job["metadata"]
    name = f"job-{meta['name']}-{meta['uid'][:5]}"
    local = world.find(LOCAL_QUEUES, meta["labels"][QUEUE], meta["namespace"])
    queue = world.find(CLUSTER_QUEUES, local["spec"]["clusterQueue"]) if local else None
    count = job["spec"].get("parallelism", 1)
    pod_set = {"name": "main", "count": count, "template": job["spec"]["template"]}
    place = {"name": name, "namespace": meta["namespace"], "ownerReferences": [JOBS.owner(job)]}
    workload = world.create(WORKLOADS, {"metadata": place, "spec": {"podSets": [pod_set], "queueName": meta["labels"][QUEUE]}})
    if has_condition(job, "Complete") or has_condition(job, "Failed"):
        reason = "Succeeded" if has_condition(job, "Complete") else "Failed"
        world.set_condition(WORKLOADS, workload, "Finished", "True", reason, "Job finished")
    if queue is None or not job["spec"].get("suspend"):
        return
    short = _short(queue, job, count)
    if short:
        world.set_condition(WORKLOADS, workload, "QuotaReserved", "False", "ExceedsMaxQuota", short)
        return
    for kind in ("QuotaReserved", "Admitted"):
        message = f"{kind} in ClusterQueue {queue['metadata']['name']}"
        workload = world.set_condition(WORKLOADS, workload, kind, "True", kind, message) or workload
    flavor = world.find(FLAVORS, next(_flavors(queue))["name"])
    labels = (flavor or {}).get("spec", {}).get("nodeLabels") or {}
    world.patch(JOBS, job, {"spec": {"suspend": False, "template": {"spec": {"nodeSelector": labels}}}})


def _short(queue: Obj, job: Obj, count: int) -> str:
    """Return why a Job of `count` pods exceeds its queue's quota; empty if it fits. Other workloads in the queue do not count."""
    requested = requests(job["spec"]["template"])
    for flavor in _flavors(queue):
        for resource in flavor["resources"]:
            wanted, most = requested.get(resource["name"], 0.0) * count, quantity(resource["nominalQuota"])
            if wanted > most:
                why = f"insufficient quota for {resource['name']} in flavor {flavor['name']}, previously considered podsets"
                sums = f"requests (0) + current podset request ({wanted:g}) > maximum capacity ({most:g})"
                return f"couldn't assign flavors to pod set main: {why} {sums}"
    return ""
