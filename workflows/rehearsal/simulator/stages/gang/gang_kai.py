"""A simulated KAI scheduler, which places all pods of a gang or none (`steps/docs/facts/gpu.md`, KAI Scheduler).

KAI's operator creates the other Deployments, its pod-grouper a PodGroup for each Job, and its scheduler binds the pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from workflows.rehearsal.simulator.api.api_kinds import (
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    Obj,
    annotations_of,
    custom,
    labels_of,
    owner_uid,
)
from workflows.rehearsal.simulator.charts.chart_installers import ChartRelease, chart
from workflows.rehearsal.simulator.charts.operators import ensure_deployment, has_ready_pod
from workflows.rehearsal.simulator.controllers.scheduler import requests
from workflows.rehearsal.simulator.stages.gang import gang_placement
from workflows.rehearsal.simulator.world import Changes, World

GROUPS = custom("scheduling.run.ai", "PodGroup")
MPI_JOBS = custom("kubeflow.org", "MPIJob")
QUEUES = custom("scheduling.run.ai", "Queue")
SYSTEM, NAME = "kai-scheduler", "kai-scheduler"
OPERATOR, SCHEDULER, GROUPER = "kai-operator", "kai-scheduler-default", "pod-grouper"
IMAGES = "ghcr.io/kai-scheduler/kai-scheduler"
MADE = {
    SCHEDULER: "scheduler",
    "admission": "admission",
    "binder": "binder",
    GROUPER: "podgrouper",
    "podgroup-controller": "podgroupcontroller",
    "queue-controller": "queuecontroller",
}
"""Deployment that the operator creates → name of its image."""
UNLIMITED = {"quota": 0, "limit": -1, "overQuotaWeight": 1}
"""Share of each resource that the chart gives its two queues (deployments/kai-scheduler/values.yaml of KAI)."""
LIMIT = 2
"""GPUs that the queue admits while the fault `gang_queue_limited` is active."""
LEAST = "kai.scheduler/batch-min-member"
CYCLE = 1.0


@chart("kai-scheduler")
def install(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart kai-scheduler: its CRDs and the operator's Deployment. The operator creates everything else."""
    release.crds("scheduling.run.ai")
    release.crds("kai.scheduler")
    release.deployment(OPERATOR, image=f"{IMAGES}/operator:{release.version}")


class Kai:
    """Simulated KAI: its operator, its pod-grouper and its scheduler."""

    name = "kai"
    kinds = (GROUPS, QUEUES, DEPLOYMENTS, JOBS, MPI_JOBS, PODS, NODES)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Create what the operator creates and a PodGroup for each Job; schedule the next cycle while a pod waits for KAI."""
        if not world.served(GROUPS) or not changed.concern(*self.kinds):
            return
        if has_ready_pod(world, SYSTEM, OPERATOR):
            _operate(world)
        if has_ready_pod(world, SYSTEM, GROUPER):
            for job in _jobs(world):
                _group(world, job)
        waits = any(gang_placement.waits_for_scheduler(pod, NAME) for pod in world.objects(PODS))
        if waits and has_ready_pod(world, SYSTEM, SCHEDULER):
            world.later("kai/cycle", CYCLE, CYCLE, lambda: _cycle(world))


def _operate(world: World) -> None:
    """Create the Deployments of KAI's scheduler, pod-grouper and four helpers, and KAI's two default queues.

    KAI's operator creates them and not the chart, so they carry none of the labels and annotations of a Helm release.
    """
    for name, image in MADE.items():
        ensure_deployment(world, SYSTEM, name, f"{IMAGES}/{image}:v0.16.8")
    resources = {"resources": dict.fromkeys(("cpu", "gpu", "memory"), UNLIMITED)}
    world.ensure(QUEUES, {"metadata": {"name": "default-parent-queue"}, "spec": resources})
    if world.fault("gang_queue_limited"):
        resources = {"resources": resources["resources"] | {"gpu": UNLIMITED | {"limit": LIMIT}}}
    child = resources | {"parentQueue": "default-parent-queue"}
    world.ensure(QUEUES, {"metadata": {"name": "default-queue"}, "spec": child})


def _jobs(world: World) -> Iterator[Obj]:
    """Yield the Jobs and MPIJobs whose pods KAI places."""
    mpi_jobs = world.objects(MPI_JOBS) if world.served(MPI_JOBS) else ()
    for job in (*world.objects(JOBS), *mpi_jobs):
        if _template(job)["spec"].get("schedulerName") == NAME and "deletionTimestamp" not in job["metadata"]:
            yield job


def _template(job: Obj) -> Obj:
    """Return the pod template of a Job, or that of an MPIJob's workers."""
    spec = job["spec"]
    template: Obj = spec["mpiReplicaSpecs"]["Worker"]["template"] if "mpiReplicaSpecs" in spec else spec["template"]
    return template


def _name(job: Obj) -> str:
    return f"pg-{job['metadata']['name']}-{job['metadata']['uid']}"


def _group(world: World, job: Obj) -> None:
    """Create the PodGroup of a Job. A Job without the annotation `kai.scheduler/batch-min-member` needs only one pod at a time.

    An MPIJob needs all of its workers.
    """
    meta, replicas = job["metadata"], job["spec"].get("mpiReplicaSpecs")
    least = int(replicas["Worker"]["replicas"] if replicas else annotations_of(job).get(LEAST, "1"))
    spec = {"minMember": least, "queue": labels_of(job).get("kai.scheduler/queue", "default-queue")}
    owner = MPI_JOBS.owner(job) if replicas else JOBS.owner(job)
    place = {"name": _name(job), "namespace": meta["namespace"], "ownerReferences": [owner]}
    world.create(GROUPS, {"metadata": place, "spec": spec})


def _cycle(world: World) -> None:
    """Place the pods that wait for KAI, gang by gang. Pods of a Job that has no PodGroup yet wait for the next cycle."""
    owned: dict[str, list[Obj]] = {}
    for pod in world.objects(PODS):
        if gang_placement.waits_for_scheduler(pod, NAME):
            owned.setdefault(owner_uid(pod), []).append(pod)
    jobs = {job["metadata"]["uid"]: job for job in _jobs(world)}
    for uid, waiting in sorted(owned.items()):
        job = jobs.get(uid)
        group = world.find(GROUPS, _name(job), job["metadata"]["namespace"]) if job else None
        if group is not None or job is None:
            _place(world, group, waiting)


def _place(world: World, group: Obj | None, waiting: list[Obj]) -> None:
    least = group["spec"]["minMember"] if group else 1
    wanted = sum(requests(pod).get("nvidia.com/gpu", 0.0) for pod in waiting[:least])
    if group is not None and world.fault("gang_queue_limited") and wanted > LIMIT:
        message = f"OverLimit: default-queue quota has reached the allowable limit of GPUs. Limit is {LIMIT} GPUs"
        _explain(world, group, "OverLimit", message)
        return
    reasons = Counter[str]()
    placed = gang_placement.place(world, waiting, reasons)
    if len(placed) >= min(least, len(waiting)) and placed:
        by_name = {pod["metadata"]["name"]: pod for pod in waiting}
        if world.fault("gang_bind_refused"):
            # the binder reports by event and by the condition PodBound, and leaves PodScheduled alone
            for name, node in placed.items():
                world.event(PODS, by_name[name], "BindingError", gang_placement.denied(by_name[name], node), warning=True)
            return
        for name, node in placed.items():
            gang_placement.bind(world, by_name[name], node)
    if group is None or len(placed) == len(waiting):
        return
    gathered = f"Resources were found for {len(placed)} pods while {least} are required for gang scheduling"
    nodes = ", ".join(f"{count} {_words(reason)}" for reason, count in sorted(reasons.items()))
    rest = "Additional pods cannot be scheduled due to: no nodes with enough resources were found"
    message = f"{gathered}. {rest}: {nodes}."
    _explain(world, group, "PodSchedulingErrors", message)
    for pod in waiting:
        if pod["metadata"]["name"] not in placed or len(placed) < least:
            gang_placement.refuse(world, pod, message)


def _words(reason: str) -> str:
    """Return KAI's words for the default scheduler's reason to leave a node out."""
    if reason.startswith("Insufficient "):
        name = reason.removeprefix("Insufficient ")
        if name.startswith("nvidia.com/mig-"):
            return f"node(s) didn't have enough of mig profile: {name}"
        return f"node(s) didn't have enough resources: {'GPUs' if name == 'nvidia.com/gpu' else name}"
    return "node(s) had untolerated taint(s)" if "untolerated taint" in reason else reason


def _explain(world: World, group: Obj, reason: str, message: str) -> None:
    """Set the condition of a PodGroup that is left out; KAI states the cause in its `reasons`, and always the same reason above."""
    wanted: Obj = {"type": "UnschedulableOnNodePool", "status": "True", "reason": "Unschedulable", "message": message}
    wanted["reasons"] = [{"reason": reason, "message": message}]
    wanted |= {"nodePool": "default", "lastTransitionTime": world.stamp()}
    present = (group.get("status", {}).get("schedulingConditions") or [{}])[0]
    if present.get("message") != message:
        world.patch(GROUPS, group, {"status": {"schedulingConditions": [wanted]}}, status=True)
