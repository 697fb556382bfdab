"""All-or-nothing placement for the simulated gang schedulers Volcano and KAI, and what they write on pods."""

from __future__ import annotations

from collections.abc import Sequence

from workflows.rehearsal.simulator import simulated_pods
from workflows.rehearsal.simulator.api_kinds import NODES, PODS, Obj
from workflows.rehearsal.simulator.scheduler import Candidates, Occupancy, requests
from workflows.rehearsal.simulator.world import World

Placement = dict[str, str]
"""Node by pod name."""


def place(world: World, waiting: Sequence[Obj]) -> Placement:
    """Return nodes for as many of these pods as fit now, in the order of their names."""
    occupancy = Occupancy(world.objects(NODES), world.objects(PODS))
    groups: dict[str, list[Obj]] = {}
    for pod in sorted(waiting, key=lambda pod: pod["metadata"]["name"]):
        spec = pod["spec"]
        key = repr((spec.get("nodeSelector"), spec.get("affinity"), spec.get("tolerations"), requests(pod)))
        groups.setdefault(key, []).append(pod)
    placed: Placement = {}
    for group in groups.values():
        candidates = Candidates(occupancy, group[0])
        for pod in group:
            node = candidates.take(pod)
            if not node:
                break
            placed[pod["metadata"]["name"]] = node
    return placed


def waits_for_scheduler(pod: Obj, scheduler: str) -> bool:
    """Return True if a pod waits for this scheduler."""
    mine = pod["spec"].get("schedulerName") == scheduler and not pod["spec"].get("schedulingGates")
    return mine and not simulated_pods.node(pod) and not simulated_pods.finished(pod) and "deletionTimestamp" not in pod["metadata"]


def bind(world: World, pod: Obj, node: str) -> None:
    """Bind one pod and write the event that schedulers write."""
    world.bind(pod, node, world.stamp())
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    world.event(PODS, pod, "Scheduled", f"Successfully assigned {name} to {node}")


def refuse(world: World, pod: Obj, message: str) -> None:
    """Write on a pod why it is not placed."""
    conditions = world.conditions(pod, ("PodScheduled", "False", "Unschedulable", message))
    world.patch_soon(PODS, pod, {"status": {"phase": "Pending", "conditions": conditions}}, status=True)


def capacity(world: World, resource: str) -> float:
    """Return the units of a resource on all schedulable nodes."""
    nodes = Occupancy((node for node in world.objects(NODES) if not node["spec"].get("unschedulable")), ())
    return sum(free.get(resource, 0.0) for free in nodes.free.values())
