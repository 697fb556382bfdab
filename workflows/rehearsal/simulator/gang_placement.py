"""All-or-nothing placement as gang schedulers do it, and what they write on pods; shared by the simulated Volcano and KAI."""

from __future__ import annotations

from collections.abc import Sequence

from workflows.rehearsal.simulator import pods
from workflows.rehearsal.simulator.kinds import NODES, PODS, Obj
from workflows.rehearsal.simulator.placement import Occupancy, requests
from workflows.rehearsal.simulator.scheduler import Candidates
from workflows.rehearsal.simulator.world import World

Placement = dict[str, str]
"""Pod name → node."""


def place(world: World, waiting: Sequence[Obj]) -> Placement:
    """Nodes for as many of these pods as fit now, in the order of their names."""
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


def waits(pod: Obj, scheduler: str) -> bool:
    """Whether a pod waits for this scheduler."""
    mine = pod["spec"].get("schedulerName") == scheduler and not pod["spec"].get("schedulingGates")
    return mine and not pods.node(pod) and not pods.finished(pod) and "deletionTimestamp" not in pod["metadata"]


def bind(world: World, pod: Obj, node: str) -> None:
    """Bind one pod, with the event that schedulers write."""
    world.bind_pod(pod, node)
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    world.event(PODS, pod, "Scheduled", f"Successfully assigned {name} to {node}")


def refuse(world: World, pod: Obj, message: str) -> None:
    """Say on a pod why it is not placed."""
    conditions = world.condition(pod, "PodScheduled", "False", "Unschedulable", message)
    world.patch_soon(PODS, pod, {"status": {"phase": "Pending", "conditions": conditions}}, status=True)


def capacity(world: World, resource: str) -> float:
    """Units of a resource on all nodes that take pods."""
    nodes = Occupancy((node for node in world.objects(NODES) if not node["spec"].get("unschedulable")), ())
    return sum(free.get(resource, 0.0) for free in nodes.free.values())
