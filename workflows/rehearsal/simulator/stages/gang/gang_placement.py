"""Placement for the simulated gang schedulers Volcano and KAI, and what they write on pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from workflows.rehearsal.simulator.api.api_kinds import NODES, PODS, Obj
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.scheduler import Candidates, Occupancy, requests
from workflows.rehearsal.simulator.world import World

Placement = dict[str, str]
"""Names of nodes by names of the pods that are placed there."""


def place(world: World, waiting: Sequence[Obj], reasons: Counter[str] | None = None) -> Placement:
    """Return a node for each of the waiting pods that fits now, tried in the order of their names. Nothing is written.

    Into `reasons` go the numbers of nodes by the reason for which they take no more of the pods that are left over.
    """
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
                if reasons is not None:
                    reasons.update(candidates.reasons)
                break
            placed[pod["metadata"]["name"]] = node
    return placed


def waits_for_scheduler(pod: Obj, scheduler: str) -> bool:
    """Return True if a pod names this scheduler, has no node yet, and is not gated, finished or being deleted."""
    mine = pod["spec"].get("schedulerName") == scheduler and not pod["spec"].get("schedulingGates")
    return mine and not simulated_pods.node(pod) and not simulated_pods.finished(pod) and "deletionTimestamp" not in pod["metadata"]


def bind(world: World, pod: Obj, node: str) -> None:
    """Assign a pod to a node, and write the Event `Scheduled` as schedulers do."""
    world.bind(pod, node, world.stamp())
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    world.event(PODS, pod, "Scheduled", f"Successfully assigned {name} to {node}")


def refuse(world: World, pod: Obj, message: str) -> None:
    """Set a pod's condition PodScheduled to False, with the reason in `message`."""
    conditions = world.conditions(pod, ("PodScheduled", "False", "Unschedulable", message))
    world.patch_soon(PODS, pod, {"status": {"phase": "Pending", "conditions": conditions}}, status=True)


def denied(pod: Obj, node: str) -> str:
    """Return the words of a scheduler whose binding of a pod to a node was refused by the site's admission."""
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    policy = 'admission webhook "validate.kyverno.svc-fail" denied the request'
    return f"failed to bind pod {name} to node {node}: {policy}: resource Pod/{name} was blocked by policy restrict-binding"


def capacity(world: World, resource: str) -> float:
    """Return the allocatable amount of a resource on all nodes that are not cordoned, pods on them not subtracted."""
    nodes = Occupancy((node for node in world.objects(NODES) if not node["spec"].get("unschedulable")), ())
    return sum(free.get(resource, 0.0) for free in nodes.free.values())
