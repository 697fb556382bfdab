"""A simulated Volcano, which places all pods of a gang or none (`steps/docs/facts/gpu.md`, Volcano).

Its controllers create PodGroups and pods; its scheduler lets gangs into the queue and binds their pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from workflows.rehearsal.simulator.api.api_kinds import DEPLOYMENTS, NODES, PODS, Obj, Ref, annotations_of, custom, ref
from workflows.rehearsal.simulator.charts.chart_installers import ChartRelease, chart
from workflows.rehearsal.simulator.charts.operators import has_ready_pod
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.scheduler import quantity, requests
from workflows.rehearsal.simulator.controllers.simulated_pods import blocked_by
from workflows.rehearsal.simulator.stages.gang import gang_placement
from workflows.rehearsal.simulator.world import Changes, World

JOBS = custom("batch.volcano.sh", "Job")
GROUPS = custom("scheduling.volcano.sh", "PodGroup")
QUEUES = custom("scheduling.volcano.sh", "Queue")
SYSTEM = "volcano-system"
SCHEDULER, CONTROLLERS, ADMISSION = "volcano-scheduler", "volcano-controllers", "volcano-admission"
GROUP_NAME = "scheduling.k8s.io/group-name"
CYCLE = 1.0
MOMENT = "simulated/moment"
ENDED = ("Completed", "Failed")
"""Phases of a Job none of whose pods will run again."""


@chart("volcano")
def install(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart volcano: CRDs and three Deployments. Its scheduler creates the queue `default` once it runs."""
    for group in ("batch.volcano.sh", "bus.volcano.sh", "scheduling.volcano.sh"):
        release.crds(group)
    images = {ADMISSION: "vc-webhook-manager", CONTROLLERS: "vc-controller-manager", SCHEDULER: "vc-scheduler"}
    for name, image in images.items():
        release.deployment(name, image=f"docker.io/volcanosh/{image}:v{release.version}")


blocked_by("gang_scheduler_crashes", "app", SCHEDULER, f"back-off 5m0s restarting failed container={SCHEDULER}")


class Volcano:
    """Simulated Volcano: its controllers and its scheduler."""

    name = "volcano"
    kinds = (JOBS, GROUPS, QUEUES, DEPLOYMENTS, PODS, NODES)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Write the queue `default`, and PodGroup, pods and state of each Job; schedule the next cycle while a gang waits."""
        if not world.served(GROUPS) or not changed.concern(*self.kinds):
            return
        _cordon(world)
        if has_ready_pod(world, SYSTEM, SCHEDULER):
            _queue(world)
        if has_ready_pod(world, SYSTEM, CONTROLLERS):
            for job in world.objects(JOBS):
                if "deletionTimestamp" not in job["metadata"]:
                    _control(world, job)
        hangs = world.fault("gang_scheduler_hangs") is not None
        if has_ready_pod(world, SYSTEM, SCHEDULER) and not hangs and any(_open_groups(world)):
            world.later("volcano/cycle", CYCLE, CYCLE, lambda: _cycle(world))


def _queue(world: World) -> None:
    """Write the queue `default`: open, or closed or with a limit where a fault says so."""
    closed = world.fault("gang_queue_closed") or (world.fault("gang_queue_closes_later") and world.objects(JOBS))
    spec: Obj = {"weight": 1} | ({"capability": {"nvidia.com/gpu": "2"}} if world.fault("gang_queue_limited") else {})
    world.ensure(QUEUES, {"metadata": {"name": "default"}, "spec": spec, "status": {"state": "Closed" if closed else "Open"}})


def _cordon(world: World) -> None:
    """Play the fault `gang_nodes_cordoned`: cordon the victims, and again if somebody uncordons them."""
    active = world.fault("gang_nodes_cordoned")
    for name in active.nodes if active else ():
        if world.find(NODES, name) is not None:
            world.patch(NODES, Ref("", name), {"spec": {"unschedulable": True}})


# ---- controllers ---------------------------------------------------------------------------------------------------------------


def _control(world: World, job: Obj) -> None:
    """Create the PodGroup of a Volcano Job, then its pods once the scheduler has let the group into the queue; write its state.

    The PodGroup of a Job that has ended is deleted: https://github.com/volcano-sh/volcano/blob/master/pkg/controllers/job/state/finished.go
    """
    at = ref(job)
    name = f"{at.name}-{job['metadata']['uid']}"
    group = world.find(GROUPS, name, at.namespace)
    if job.get("status", {}).get("state", {}).get("phase") in ENDED:
        if group is not None:
            world.delete(GROUPS, group)
        return
    if group is None:
        spec = {"minMember": job["spec"]["minAvailable"], "queue": job["spec"].get("queue", "default")}
        spec["minResources"] = _least_resources(job)
        meta = {"name": name, "namespace": at.namespace, "ownerReferences": [JOBS.owner(job)]}
        world.create(GROUPS, {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})
        return
    if group.get("status", {}).get("phase") in ("Inqueue", "Running"):
        for pod in _pods(job, name):
            world.create_soon(PODS, pod)
    world.patch(JOBS, job, {"status": _state(world, job)}, status=True)


def _least_resources(job: Obj) -> dict[str, str]:
    """Return the resources that the first `minAvailable` pods of a Volcano Job request together, as quantities."""
    left: int = job["spec"]["minAvailable"]
    total: dict[str, float] = {}
    for task in job["spec"]["tasks"]:
        count = min(left, task["replicas"])
        left -= count
        for name, amount in requests(task["template"]).items():
            total[name] = total.get(name, 0.0) + amount * count
    return {name: f"{amount:g}" for name, amount in total.items() if name != "pods"}


def _pods(job: Obj, group: str) -> Iterator[Obj]:
    for task in job["spec"]["tasks"]:
        for number in range(task["replicas"]):
            labels = {"volcano.sh/job-name": job["metadata"]["name"], "volcano.sh/task-spec": task["name"]}
            name = f"{job['metadata']['name']}-{task['name']}-{number}"
            pod = simulated_pods.from_template(task["template"], name, JOBS, job, labels=labels)
            pod["metadata"]["annotations"] = pod["metadata"].get("annotations", {}) | {GROUP_NAME: group}
            pod["spec"]["schedulerName"] = "volcano"
            yield pod


def _state(world: World, job: Obj) -> Obj:
    own = world.owned(PODS, job["metadata"]["uid"])
    phases = Counter(map(simulated_pods.phase, own))
    least, replicas = job["spec"]["minAvailable"], sum(task["replicas"] for task in job["spec"]["tasks"])
    if phases["Succeeded"] + phases["Failed"] == replicas:
        phase = "Completed" if phases["Succeeded"] >= least else "Failed"
    else:
        phase = "Running" if phases["Running"] + phases["Succeeded"] >= least else "Pending"
    counts = {"minAvailable": least, **{name.lower(): phases[name] for name in ("Pending", "Running", "Succeeded", "Failed")}}
    present = job.get("status", {}).get("state", {})
    since = present.get("lastTransitionTime") if present.get("phase") == phase else None
    return {"state": {"phase": phase, "lastTransitionTime": since or world.stamp()}, **counts}


# ---- scheduler -----------------------------------------------------------------------------------------------------------------


def _open_groups(world: World) -> Iterator[Obj]:
    for group in world.objects(GROUPS):
        waits = group.get("status", {}).get("phase") in (None, "", "Pending", "Inqueue")
        if waits and "deletionTimestamp" not in group["metadata"]:
            yield group


def _cycle(world: World) -> None:
    """Run one scheduling cycle over the gangs in open queues.

    A new gang is let into its queue if the cluster is large enough; a gang in the queue is bound if it fits. The others get the
    reason.
    """
    for group in list(_open_groups(world)):
        queue = world.find(QUEUES, group["spec"].get("queue", "default"))
        if queue is None or queue.get("status", {}).get("state") != "Open":
            if group.get("status", {}).get("phase") != "Inqueue":
                _refuse(world, group, "")
            continue
        if group.get("status", {}).get("phase") != "Inqueue":
            _enqueue(world, group)
        else:
            _allocate(world, group)


def _enqueue(world: World, group: Obj) -> None:
    """Let a gang into its queue, or write the events of a refusal: its pods are not created, so that it gets no condition.

    The plugin proportion refuses what exceeds the queue's capability, which is at most the cluster's resources:
    https://github.com/volcano-sh/volcano/blob/master/pkg/scheduler/plugins/proportion/proportion.go
    """
    queue = world.find(QUEUES, group["spec"].get("queue", "default")) or {}
    capability = queue.get("spec", {}).get("capability") or {}
    short = [
        name
        for name, amount in (group["spec"].get("minResources") or {}).items()
        if float(amount) > min(gang_placement.capacity(world, name), quantity(capability.get(name, "1e12")))
    ]
    # these faults are of a scheduler that is configured without the action enqueue
    if not short or world.fault("gang_binds_partially") or world.fault("gang_binds_for_a_moment"):
        world.patch(GROUPS, group, {"status": {"phase": "Inqueue"}})
        return
    _refuse(world, group, f"queue resource quota insufficient: insufficient {', '.join(sorted(short))}")


def _refuse(world: World, group: Obj, why: str) -> None:
    """Write the events of a group that is not let in. From Volcano 1.12 on a group without pods gets no condition.

    `why` is the plugin's reason; empty if it gives none, as for a queue that is not open.
    """
    least = group["spec"]["minMember"]
    if why:
        world.event(GROUPS, group, "Unschedulable", why)
    message = f"0/0 tasks in gang unschedulable: pod group is not ready, {least} minAvailable"
    world.event(GROUPS, group, "Unschedulable", message, warning=True)
    world.patch(GROUPS, group, {"status": {"phase": "Pending"}})


def _allocate(world: World, group: Obj) -> None:
    name, least = group["metadata"]["name"], group["spec"]["minMember"]
    mine = [pod for pod in world.objects(PODS) if annotations_of(pod).get(GROUP_NAME) == name]
    waiting = [pod for pod in mine if gang_placement.waits_for_scheduler(pod, "volcano")]
    placed = gang_placement.place(world, waiting)
    bound = sum(bool(simulated_pods.node(pod)) for pod in mine)
    if world.fault("gang_starves") and least * 2 <= gang_placement.capacity(world, "nvidia.com/gpu"):
        placed = dict(list(placed.items())[: least // 2])  # the fault makes half of the GPUs count as taken
    complete = bool(waiting) and bound + len(placed) >= least
    if complete and world.fault("gang_bind_refused"):
        _bind_refused(world, waiting, placed)
        return
    if complete or (placed and world.fault("gang_binds_partially")):
        for pod in waiting:
            if pod["metadata"]["name"] in placed:
                gang_placement.bind(world, pod, placed[pod["metadata"]["name"]])
    elif placed and world.fault("gang_binds_for_a_moment"):
        _bind_for_a_moment(world, group, waiting[0], placed[waiting[0]["metadata"]["name"]])
    if complete:
        conditions = world.conditions(group, ("Scheduled", "True", "tasks in gang are ready to be scheduled", ""))
        world.patch(GROUPS, group, {"status": {"phase": "Running", "running": bound + len(placed), "conditions": conditions}})
        return
    counts = f"{len(waiting)} Pending, {least} minAvailable"
    message = f"{len(waiting)}/{len(mine)} tasks in gang unschedulable: pod group is not ready, {counts}"
    _say(world, group, "Inqueue", message)
    for pod in waiting:
        if not (placed and world.fault("gang_binds_partially") and pod["metadata"]["name"] in placed):
            gang_placement.refuse(world, pod, message)


def _bind_for_a_moment(world: World, group: Obj, pod: Obj, node: str) -> None:
    """Play the fault `gang_binds_for_a_moment`: bind one pod of a gang and delete it a second later. Its Event stays."""
    if MOMENT in annotations_of(group):
        return
    at = ref(pod)
    world.patch(GROUPS, group, {"metadata": {"annotations": {MOMENT: "done"}}})
    gang_placement.bind(world, pod, node)
    world.later(f"volcano/unbind/{at.namespace}/{at.name}", CYCLE, CYCLE, lambda: world.delete(PODS, at))


def _bind_refused(world: World, waiting: list[Obj], placed: gang_placement.Placement) -> None:
    """Play the fault `gang_bind_refused`: the API server's admission refuses every binding, and the scheduler tries again."""
    for pod in waiting:
        message = gang_placement.denied(pod, placed[pod["metadata"]["name"]])
        gang_placement.refuse(world, pod, message)
        world.event(PODS, pod, "FailedScheduling", message, warning=True)


def _say(world: World, group: Obj, phase: str, message: str) -> None:
    conditions = world.conditions(group, ("Unschedulable", "True", "NotEnoughResources", message))
    world.patch(GROUPS, group, {"status": {"phase": phase, "conditions": conditions}})
