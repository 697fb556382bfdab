"""KAI scheduler: its operator makes the Deployments, its pod-grouper the PodGroups; it binds gangs as a whole (gpu_stack §4.2)."""

from __future__ import annotations

from collections.abc import Iterator

from workflows.rehearsal.simulator import gang_placement, pods
from workflows.rehearsal.simulator.charts import Release, chart
from workflows.rehearsal.simulator.kinds import DEPLOYMENTS, JOBS, NODES, PODS, Obj, custom
from workflows.rehearsal.simulator.operands import runs
from workflows.rehearsal.simulator.role import Changed
from workflows.rehearsal.simulator.world import World

GROUPS = custom("scheduling.run.ai", "PodGroup")
QUEUES = custom("scheduling.run.ai", "Queue")
SYSTEM, NAME = "kai-scheduler", "kai-scheduler"
OPERATOR, SCHEDULER, GROUPER = "kai-operator", "kai-scheduler-default", "pod-grouper"
MADE = (SCHEDULER, "admission", "binder", GROUPER, "podgroup-controller", "queue-controller")
LEAST = "kai.scheduler/batch-min-member"
CYCLE = 1.0


@chart("kai-scheduler")
def install(_world: World, release: Release) -> None:
    """The operator and its CRDs; everything else is the operator's."""
    release.crds("scheduling.run.ai")
    release.crds("kai.scheduler")
    release.deployment(OPERATOR)


class Kai:
    """Plays KAI's operator, pod-grouper and scheduler."""

    name = "kai"
    kinds = (GROUPS, QUEUES, DEPLOYMENTS, JOBS, PODS, NODES)

    def reconcile(self, world: World, changed: Changed) -> None:
        """Operator first; then groups for new Jobs; then the next scheduling cycle while somebody waits."""
        if not world.served(GROUPS) or not (changed.everything or any(changed.refs(kind) for kind in self.kinds)):
            return
        if runs(world, SYSTEM, OPERATOR):
            _operate(world)
        if runs(world, SYSTEM, GROUPER):
            for job in _jobs(world):
                _group(world, job)
        if runs(world, SYSTEM, SCHEDULER) and any(gang_placement.waits(pod, NAME) for pod in world.objects(PODS)):
            world.later("kai/cycle", CYCLE, CYCLE, lambda: _cycle(world))


def _operate(world: World) -> None:
    """Deployments without Helm's marks, since no chart made them, and the two default queues."""
    for name in MADE:
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": name, "image": f"simulated/{name}:1"}]}}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        world.ensure(DEPLOYMENTS, {"metadata": {"name": name, "namespace": SYSTEM, "labels": labels}, "spec": spec})
    world.ensure(QUEUES, {"metadata": {"name": "default-parent-queue"}, "spec": {}})
    world.ensure(QUEUES, {"metadata": {"name": "default-queue"}, "spec": {"parentQueue": "default-parent-queue"}})


def _jobs(world: World) -> Iterator[Obj]:
    for job in world.objects(JOBS):
        if job["spec"]["template"]["spec"].get("schedulerName") == NAME and "deletionTimestamp" not in job["metadata"]:
            yield job


def _name(job: Obj) -> str:
    return f"pg-{job['metadata']['name']}-{job['metadata']['uid']}"


def _group(world: World, job: Obj) -> None:
    """A batch Job is a gang only by its annotation; without it the group wants one member."""
    meta = job["metadata"]
    least = int((meta.get("annotations") or {}).get(LEAST, "1"))
    spec = {"minMember": least, "queue": (meta.get("labels") or {}).get("kai.scheduler/queue", "default-queue")}
    place = {"name": _name(job), "namespace": meta["namespace"], "ownerReferences": [JOBS.owner(job)]}
    world.create(GROUPS, {"metadata": place, "spec": spec})


def _cycle(world: World) -> None:
    """One session over all gangs, then over pods that belong to none."""
    owned: dict[str, list[Obj]] = {}
    for pod in world.objects(PODS):
        if gang_placement.waits(pod, NAME):
            owned.setdefault(pods.owner_uid(pod), []).append(pod)
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
    wanted = {
        "type": "UnschedulableOnNodePool",
        "status": "True",
        "reason": "Unschedulable",
        "message": message,
        "nodePool": "default",
        "lastTransitionTime": world.stamp(),
    }
    known = (group.get("status", {}).get("schedulingConditions") or [{}])[0]
    if known.get("message") != message:
        world.patch(GROUPS, group, {"status": {"schedulingConditions": [wanted]}}, status=True)
    for pod in waiting:
        if pod["metadata"]["name"] not in placed or len(placed) < least:
            gang_placement.refuse(world, pod, message)
