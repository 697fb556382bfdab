"""A simulated Kueue: quotas admit whole Jobs; a Job above its queue's quota stays suspended (`steps/docs/facts/gpu.md`, Kueue)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Set

from steps.contract.node_taints import tolerates
from workflows.rehearsal.simulator.api.api_kinds import (
    DEPLOYMENTS,
    JOBS,
    Obj,
    ObjectKind,
    annotations_of,
    custom,
    has_condition,
    labels_of,
)
from workflows.rehearsal.simulator.charts.chart_installers import ChartRelease, chart
from workflows.rehearsal.simulator.charts.operators import has_ready_pod
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.scheduler import admits, node_terms, quantity, requests
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
    assigned, refusal = _assigned(world, queue, job, count)
    if refusal:
        reason = "ExceedsMaxQuota" if INSUFFICIENT in refusal else "NoMatchingFlavor"
        world.set_condition(WORKLOADS, workload, "QuotaReserved", "False", reason, refusal)
        return
    for kind in ("QuotaReserved", "Admitted"):
        message = f"{kind} in ClusterQueue {queue['metadata']['name']}"
        workload = world.set_condition(WORKLOADS, workload, kind, "True", kind, message) or workload
    pod = job["spec"]["template"]["spec"]
    labels = {key: value for flavor in assigned for key, value in (flavor["spec"].get("nodeLabels") or {}).items()}
    added = [toleration for flavor in assigned for toleration in flavor["spec"].get("tolerations") or ()]
    tolerations = {"tolerations": [*(pod.get("tolerations") or ()), *added]} if added else {}
    world.patch(JOBS, job, {"spec": {"suspend": False, "template": {"spec": {"nodeSelector": labels, **tolerations}}}})


INSUFFICIENT = "insufficient quota"


def _assigned(world: World, queue: Obj, job: Obj, count: int) -> tuple[list[Obj], str]:
    """Return the flavor that a Job of `count` pods gets in each resource group of its queue, or why it gets none in one.

    Kueue tries the flavors of a group in the order of the queue and takes the first that fits. A group none of whose resources
    the Job requests assigns no flavor. Other workloads in the queue do not count.
    """
    requested, assigned = requests(job["spec"]["template"]), list[Obj]()
    for group in queue["spec"].get("resourceGroups") or ():
        if not any(requested.get(name) for name in group["coveredResources"]):
            continue
        keys = {key for quota in group["flavors"] for key in _flavor_spec(world, quota["name"]).get("nodeLabels") or {}}
        refusals: list[str] = []
        for quota in group["flavors"]:
            refusal = _refusal(quota, _flavor_spec(world, quota["name"]), job, requested, count, keys)
            if not refusal:
                assigned.append({"spec": _flavor_spec(world, quota["name"])})
                break
            refusals.append(refusal)
        else:
            return [], f"couldn't assign flavors to pod set main: {', '.join(refusals)}"
    return assigned, ""


def _flavor_spec(world: World, name: str) -> Obj:
    return (world.find(FLAVORS, name) or {}).get("spec") or {}


def _refusal(quota: Obj, flavor: Obj, job: Obj, requested: Mapping[str, float], count: int, keys: Set[str]) -> str:
    """Return why a Job gets no quota in a flavor; empty if it does. Its node selection counts as far as `keys` go."""
    pod = job["spec"]["template"]["spec"]
    tolerations = [*(pod.get("tolerations") or ()), *(flavor.get("tolerations") or ())]
    node = {"metadata": {"name": quota["name"], "labels": flavor.get("nodeLabels") or {}}, "spec": {}}
    if admits(node, _selection(pod, keys)):
        return f"flavor {quota['name']} doesn't match node affinity"
    for taint in flavor.get("nodeTaints") or ():
        if taint["effect"] != "PreferNoSchedule" and not tolerates(tolerations, taint):
            shown = f"{{{taint['key']} {taint.get('value', '')} {taint['effect']} <nil>}}"
            return f"untolerated taint {shown} in flavor {quota['name']}"
    for resource in quota["resources"]:
        wanted, most = requested.get(resource["name"], 0.0) * count, quantity(resource["nominalQuota"])
        if wanted > most:
            why = f"{INSUFFICIENT} for {resource['name']} in flavor {quota['name']}, previously considered podsets"
            return f"{why} requests (0) + current podset request ({wanted:g}) > maximum capacity ({most:g})"
    return ""


def _selection(pod: Obj, keys: Set[str]) -> Obj:
    """Return the node selection of a pod spec as far as it is about labels that flavors have; flavors say nothing of the others."""
    selector = {key: value for key, value in (pod.get("nodeSelector") or {}).items() if key in keys}
    expressions = [
        [entry for entry in term.get("matchExpressions") or () if entry["key"] in keys] for term in node_terms(pod) or ()
    ]
    if not expressions or not all(expressions):  # one term without expressions matches every flavor
        return {"nodeSelector": selector}
    required = {"nodeSelectorTerms": [{"matchExpressions": entries} for entries in expressions]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {"nodeSelector": selector, "affinity": affinity}
