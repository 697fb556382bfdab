"""A simulated KAI scheduler, which places all pods of a gang or none (`steps/docs/facts/gpu.md`, KAI Scheduler).

KAI's operator creates the other Deployments, its pod-grouper a PodGroup for each Job, and its scheduler binds the pods.
"""

from __future__ import annotations

from collections.abc import Iterator

from workflows.rehearsal.simulator import gang_placement, simulated_pods
from workflows.rehearsal.simulator.api_kinds import DEPLOYMENTS, JOBS, NODES, PODS, Obj, annotations_of, custom, labels_of
from workflows.rehearsal.simulator.chart_installers import ChartRelease, chart
from workflows.rehearsal.simulator.operators import ensure_deployment, has_ready_pod
from workflows.rehearsal.simulator.world import Changes, World

GROUPS = custom("scheduling.run.ai", "PodGroup")
QUEUES = custom("scheduling.run.ai", "Queue")
SYSTEM, NAME = "kai-scheduler", "kai-scheduler"
OPERATOR, SCHEDULER, GROUPER = "kai-operator", "kai-scheduler-default", "pod-grouper"
MADE = (SCHEDULER, "admission", "binder", GROUPER, "podgroup-controller", "queue-controller")
LEAST = "kai.scheduler/batch-min-member"
CYCLE = 1.0


@chart("kai-scheduler")
def install(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart kai-scheduler: its CRDs and the operator's Deployment. The operator creates everything else."""
    release.crds("scheduling.run.ai")
    release.crds("kai.scheduler")
    release.deployment(OPERATOR)


class Kai:
    """Simulated KAI: its operator, its pod-grouper and its scheduler."""

    name = "kai"
    kinds = (GROUPS, QUEUES, DEPLOYMENTS, JOBS, PODS, NODES)

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
    for name in MADE:
        ensure_deployment(world, SYSTEM, name, f"simulated/{name}:1")
    world.ensure(QUEUES, {"metadata": {"name": "default-parent-queue"}, "spec": {}})
    world.ensure(QUEUES, {"metadata": {"name": "default-queue"}, "spec": {"parentQueue": "default-parent-queue"}})


def _jobs(world: World) -> Iterator[Obj]:
    for job in world.objects(JOBS):
        if job["spec"]["template"]["spec"].get("schedulerName") == NAME and "deletionTimestamp" not in job["metadata"]:
            yield job


def _name(job: Obj) -> str:
    return f"pg-{job['metadata']['name']}-{job['metadata']['uid']}"


def _group(world: World, job: Obj) -> None:
    """Create the PodGroup of a Job. A Job without the annotation `kai.scheduler/batch-min-member` needs only one pod at a time."""
    meta = job["metadata"]
    least = int(annotations_of(job).get(LEAST, "1"))
    spec = {"minMember": least, "queue": labels_of(job).get("kai.scheduler/queue", "default-queue")}
    place = {"name": _name(job), "namespace": meta["namespace"], "ownerReferences": [JOBS.owner(job)]}
    world.create(GROUPS, {"metadata": place, "spec": spec})


def _cycle(world: World) -> None:
    """Place the pods that wait for KAI, gang by gang. Pods of a Job that has no PodGroup yet wait for the next cycle."""
    owned: dict[str, list[Obj]] = {}
    for pod in world.objects(PODS):
        if gang_placement.waits_for_scheduler(pod, NAME):
            owned.setdefault(simulated_pods.owner_uid(pod), []).append(pod)
    jobs = {job["metadata"]["uid"]: job for job in _jobs(world)}
    for uid, waiting in sorted(owned.items()):
        job = jobs.get(uid)
        group = world.find(GROUPS, _name(job), job["metadata"]["namespace"]) if job else None
        if group is not None or job is None:
            _place(world, group, waiting)


def _place(world: World, group: Obj | None, waiting: list[Obj]) -> None:
    least = group["spec"]["minMember"] if group else 1
    placed = gang_placement.place(world, waiting)
    if len(placed) >= min(least, len(waiting)) and placed:
        for pod in waiting:
            if pod["metadata"]["name"] in placed:
                gang_placement.bind(world, pod, placed[pod["metadata"]["name"]])
    if group is None or len(placed) == len(waiting):
        return
    message = f"Resources were found for {len(placed)} pods while {least} are required for gang scheduling"
    wanted = {"type": "UnschedulableOnNodePool", "status": "True", "reason": "Unschedulable", "message": message}
    wanted |= {"nodePool": "default", "lastTransitionTime": world.stamp()}
    present = (group.get("status", {}).get("schedulingConditions") or [{}])[0]
    if present.get("message") != message:
        world.patch(GROUPS, group, {"status": {"schedulingConditions": [wanted]}}, status=True)
    for pod in waiting:
        if pod["metadata"]["name"] not in placed or len(placed) < least:
            gang_placement.refuse(world, pod, message)
